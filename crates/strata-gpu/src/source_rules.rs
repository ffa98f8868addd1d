//! A rule of the kernel sources: a loop or pragma under `if (...)`, `if constexpr (...)` or `else` stands in braces. NVRTC takes the
//! pragma of an unrolled loop for the whole branch, so that the loop runs whatever the condition is.

use crate::sources;

/// An identifier or one character of anything else, and its line.
type Token<'a> = (&'a str, usize);

/// Words that may not begin a branch, with the macros that stand for them.
const FORBIDDEN: [&str; 4] = ["for", "while", "do", "_Pragma"];

/// The text with comments and contents of literals blanked, length and lines kept.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let number = out.ends_with(|c: char| c.is_ascii_alphanumeric());
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or(rest.len(), |at| at + 4)
        } else if c == '"' || c == '\'' && !number {
            literal(rest, c)
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(rest[..length].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &rest[length..];
    }
    out
}

/// Bytes of a literal that `text` begins with.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Identifiers and single characters of a line.
fn words(line: &str) -> Vec<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut found, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = if word(first) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}

/// Tokens of a blanked source. Of the preprocessor's lines only macros, without `#define`, and `#pragma`, as `_Pragma`, are left.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = words(line);
        let kept: &[&str] = match words.as_slice() {
            ["#", "pragma", ..] => &["_Pragma"],
            ["#", "define", macro_line @ ..] => macro_line,
            ["#", ..] => &[],
            code => code,
        };
        found.extend(kept.iter().filter(|w| **w != "\\").map(|w| (*w, number + 1)));
    }
    found
}

/// Names that macros of a blanked source give to what begins with a forbidden word.
fn aliases<'a>(text: &'a str, forbidden: &[&str]) -> Vec<&'a str> {
    let define = |line| match words(line).as_slice() {
        ["#", "define", name, body, ..] if forbidden.contains(body) => Some(*name),
        _ => None,
    };
    text.lines().filter_map(define).collect()
}

/// Lines of a blanked source with a branch that begins with a forbidden word.
fn branches(text: &str, forbidden: &[&str]) -> Vec<usize> {
    let tokens = tokens(text);
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|t| t.0 == word);
    let mut found = Vec::new();
    for (at, (word, _)) in tokens.iter().enumerate() {
        let body = match *word {
            "else" => at + 1,
            "if" => past_parentheses(&tokens, at + 1 + usize::from(is(at + 1, "constexpr"))),
            _ => continue,
        };
        found.extend(tokens.get(body).filter(|t| forbidden.contains(&t.0)).map(|t| t.1));
    }
    found
}

/// The token after the parenthesis that closes the one at `at`.
fn past_parentheses(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0;
    for (i, (word, _)) in tokens.iter().enumerate().skip(at) {
        depth += i32::from(*word == "(") - i32::from(*word == ")");
        if depth <= 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// What breaks the rule among sources: `path:line`.
fn broken(sources: &[(&str, &str)]) -> Vec<String> {
    let blank: Vec<(&str, String)> = sources.iter().map(|(path, text)| (*path, blanked(text))).collect();
    let mut forbidden = FORBIDDEN.to_vec();
    loop {
        let new: Vec<&str> = blank.iter().flat_map(|(_, text)| aliases(text, &forbidden)).filter(|n| !forbidden.contains(n)).collect();
        if new.is_empty() {
            break;
        }
        forbidden.extend(new);
    }
    blank.iter().flat_map(|(path, text)| branches(text, &forbidden).into_iter().map(move |line| format!("{path}:{line}"))).collect()
}

#[test]
fn loops_of_branches_have_braces() {
    let found = broken(sources::all());
    assert!(found.is_empty(), "without braces NVRTC takes the pragma alone for the branch: {}", found.join(" "));
}

#[test]
fn loops_without_braces_are_found() {
    const MACROS: &str = "#define UNROLL _Pragma(\"unroll\")\n# define LOOP UNROLL\n";
    for bad in [
        "if (a) for (;;) b();",
        "if constexpr (a<(b), c>()) UNROLL for (;;) b();",
        "if (a)\n    // why\n    UNROLL for (;;) b();",
        "if (a) {} else LOOP for (;;) b();",
        "if (a) {} else /* ( */ while (b) c();",
        "if (a == ')' || \"(\\\"\"[0] == b) do c(); while (d);",
        "if (a) b(); else if (c) _Pragma(\"unroll 1\") for (;;) d();",
        "if (a)\n#if B\n#pragma unroll\n#endif\n    for (;;) c();",
        "#define M(a)\\\n    if (a) \\\n        UNROLL for (;;) b();",
        "if (i32 a = 1'000'000; (a)) UNROLL for (;;) b();",
    ] {
        assert_eq!(broken(&[("macros", MACROS), ("a.cu", bad)]).len(), 1, "{bad}");
    }
}

#[test]
fn other_text_is_not_found() {
    for good in [
        "if (a) { for (;;) b(); }",
        "if constexpr (a) { UNROLL for (;;) b(); } else { for (;;) c(); }",
        "for (;;) if (a) b();\nUNROLL for (;;) c();",
        "#if A\nfor (;;) b();\n#else\nUNROLL for (;;) c();\n#endif",
        "// if (a) for\n/* else */ for (;;) b();",
        "log(\"if (a)\"); for (;;) b();",
        "do if (a) b(); while (c);",
        "iffy (a) UNROLL for (;;) b();",
    ] {
        assert_eq!(broken(&[("a.cu", good), ("macros", "#define UNROLL _Pragma(\"unroll\")")]), Vec::<String>::new(), "{good}");
    }
    let two = broken(&[("a.cu", "\n\nif (a)\n\n\tfor (;;) b();"), ("b.cuh", "else do {} while (a);")]);
    assert_eq!(two, ["a.cu:5", "b.cuh:1"]);
}
