//! qwen4exp: configuration, weight binding and the forward pass, once, over the op trait
