//! Compilers of device code.
