//! The GPT-2 byte alphabet: a printable character for each of the 256 bytes, so that vocabularies can be written as text.
//!
//! Printable bytes of Latin-1 stand for themselves; the other 68 take U+0100 onwards in order of the byte.

/// Whether a byte stands for itself.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const BYTE_TO_CHAR: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut next = 0x100u32;
    let mut byte = 0usize;
    while byte < 256 {
        table[byte] = if is_printable(byte as u8) {
            byte as u8 as char
        } else {
            next += 1;
            match char::from_u32(next - 1) {
                Some(c) => c,
                None => unreachable!(),
            }
        };
        byte += 1;
    }
    table
};

/// Characters below this number may be in the alphabet: 256 + 68.
const LIMIT: usize = 0x144;

const CHAR_TO_BYTE: [Option<u8>; LIMIT] = {
    let mut table = [None; LIMIT];
    let mut byte = 0usize;
    while byte < 256 {
        table[BYTE_TO_CHAR[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// The character that stands for `byte`.
pub(crate) fn char_of(byte: u8) -> char {
    BYTE_TO_CHAR[byte as usize]
}

/// Appends `bytes`, written in the alphabet, to `out`.
pub(crate) fn write(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|&b| char_of(b)));
}

/// Appends to `out` the bytes that `text` stands for. A text with a character outside the alphabet stands for its own UTF-8,
/// as a whole.
pub(crate) fn read(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in text.chars() {
        match CHAR_TO_BYTE.get(c as usize).copied().flatten() {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters() {
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        assert_eq!(char_of(0), 'Ā');
        assert_eq!(char_of(0xAD), '\u{143}');
        assert_eq!(char_of(b'a'), 'a');
    }

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let (mut text, mut back) = (String::new(), Vec::new());
        write(&all, &mut text);
        read(&text, &mut back);
        assert_eq!(back, all);
    }

    #[test]
    fn text_outside_the_alphabet_is_itself() {
        let mut out = vec![7];
        read("Ġa b", &mut out);
        assert_eq!(out, [&[7], "Ġa b".as_bytes()].concat());
    }
}
