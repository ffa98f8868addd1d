//! Megabytes of anything encode in about linear time.

mod common;

use std::time::{Duration, Instant};

const MB: usize = 1 << 20;

fn check(name: &str, text: &str, at_most: Duration) {
    let tokenizer = common::tokenizer();
    let start = Instant::now();
    let ids = tokenizer.encode(text, false).unwrap();
    let took = start.elapsed();
    println!("{name}: {} bytes, {} tokens, {took:.2?}", text.len(), ids.len());
    assert!(took < at_most, "{name}: {took:.2?}");
    assert!(tokenizer.decode(&ids, false) == text, "{name}: text differs");
}

/// Twenty times what it takes on a slow core; quadratic time would be hours.
const LIMIT: Duration = Duration::from_secs(40);

#[test]
fn one_word() {
    check("a", &"a".repeat(2 * MB), LIMIT);
    check("the", &"the".repeat(MB / 3), LIMIT);
}

#[test]
fn spaces() {
    check("spaces", &" ".repeat(2 * MB), LIMIT);
    check("spaces before a word", &format!("{}x", " ".repeat(2 * MB)), LIMIT);
    check("spaces and line breaks", &" \n".repeat(MB), LIMIT);
    check("tabs between spaces", &"\t ".repeat(MB / 2), LIMIT);
}

#[test]
fn marks_and_signs() {
    check("marks", &format!("q{}", "\u{5b0}".repeat(MB / 2)), LIMIT);
    check("signs", &"!?".repeat(MB / 2), LIMIT);
    check("openings", &"<|im_".repeat(MB / 5), LIMIT);
}

#[test]
fn mixed() {
    let prose = common::data("heldout_prose.txt");
    check("prose", &prose.repeat(2 * MB / prose.len()), LIMIT);
    check("mixed", &"Привет, 世界! x=12.5\n\t  'tis 😀 ".repeat(MB / 24), LIMIT);
}
