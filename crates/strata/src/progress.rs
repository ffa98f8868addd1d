//! Progress on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Files below this load in no time.
const LONG_LOAD_BYTES: u64 = 256 << 20;

/// A line that goes away when dropped.
pub struct Line(ProgressBar);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn bar(len: u64, style: &str) -> Line {
    let target = if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    Line(ProgressBar::with_draw_target(Some(len), target).with_style(style.progress_chars("=> ")))
}

/// Shows that a model of `bytes` is being loaded, if that takes long.
pub fn loading(name: &str, bytes: u64) -> Option<Line> {
    if bytes < LONG_LOAD_BYTES {
        return None;
    }
    let line = bar(bytes, "{spinner} loading {msg} ({total_bytes}) {elapsed}");
    line.0.set_message(name.to_owned());
    line.0.enable_steady_tick(Duration::from_millis(120));
    Some(line)
}

/// A bar over `all` bytes that are being written.
pub fn bytes(all: u64) -> Line {
    bar(all, "writing [{bar:32}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")
}

/// A bar over `all` bytes that are being converted, with the tensor at work.
pub fn converting(all: u64) -> Line {
    bar(all, "converting [{bar:32}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left, {msg}")
}

/// A bar over `all` tokens that are being scored.
pub fn tokens(all: u64) -> Line {
    bar(all, "scoring [{bar:32}] {pos}/{len} tokens, {per_sec}, {eta} left")
}

impl Line {
    /// What is at work.
    pub fn name(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }

    /// So much is done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

/// A bar over the tokens of a prompt, from its second chunk on.
#[derive(Default)]
pub struct Prompt(Option<Line>);

impl Prompt {
    /// `done` of `all` tokens have been run.
    pub fn update(&mut self, done: usize, all: usize) {
        if done >= all {
            self.0 = None;
        } else if done > 0 {
            let new = || bar(all as u64, "prompt [{bar:32}] {pos}/{len} tokens, {per_sec}, {eta} left");
            self.0.get_or_insert_with(new).0.set_position(done as u64);
        }
    }
}
