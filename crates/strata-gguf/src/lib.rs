//! GGUF container: checked reader (mmap, split files) and writer
