//! Timings on a device.
