//! Sequences, prefill and decode, speculative decoding, sampling
