//! Tokenizer and chat template built from GGUF metadata
