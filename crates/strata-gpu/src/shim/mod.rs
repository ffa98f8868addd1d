//! Runs device code on the CPU.
