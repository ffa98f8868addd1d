//! A reader of MessagePack, in which AMD's code objects describe their kernels.

/// A value. Kinds that do not occur there are refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

/// Depth that no code object reaches.
const DEEPEST: u32 = 32;

impl Value {
    pub fn parse(data: &[u8]) -> Option<Value> {
        Reader { rest: data }.value(DEEPEST)
    }

    /// The value of a key of a map.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(k, _)| matches!(k, Value::Text(t) if t == key)).map(|(_, v)| v)
    }

    pub fn int(&self) -> Option<u64> {
        if let Value::Int(i) = self { u64::try_from(*i).ok() } else { None }
    }

    pub fn text(&self) -> Option<&str> {
        if let Value::Text(t) = self { Some(t) } else { None }
    }

    pub fn list(&self) -> &[Value] {
        if let Value::List(l) = self { l } else { &[] }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, n: usize) -> Option<&[u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }

    /// A big-endian number of 1, 2, 4 or 8 bytes.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn text(&mut self, length: usize) -> Option<Value> {
        Some(Value::Text(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    fn list(&mut self, length: usize, depth: u32) -> Option<Value> {
        (0..length).map(|_| self.value(depth)).collect::<Option<_>>().map(Value::List)
    }

    fn map(&mut self, length: usize, depth: u32) -> Option<Value> {
        (0..length).map(|_| Some((self.value(depth)?, self.value(depth)?))).collect::<Option<_>>().map(Value::Map)
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let tag = self.number(1)? as u8;
        let low = |bits: u8| usize::from(tag & bits);
        match tag {
            0x00..=0x7f => Some(Value::Int(i64::from(tag))),
            0x80..=0x8f => self.map(low(15), depth),
            0x90..=0x9f => self.list(low(15), depth),
            0xa0..=0xbf => self.text(low(31)),
            0xc0 => Some(Value::Nil),
            0xc2 | 0xc3 => Some(Value::Bool(tag == 0xc3)),
            0xcc..=0xcf => i64::try_from(self.number(1 << (tag - 0xcc))?).ok().map(Value::Int),
            0xd0..=0xd3 => {
                let bytes = 1 << (tag - 0xd0);
                let shift = 64 - 8 * bytes;
                Some(Value::Int((self.number(bytes)? << shift) as i64 >> shift))
            }
            0xd9..=0xdb => self.number(1 << (tag - 0xd9)).and_then(|n| self.text(n as usize)),
            0xdc | 0xdd => self.number(2 << (tag - 0xdc)).and_then(|n| self.list(n as usize, depth)),
            0xde | 0xdf => self.number(2 << (tag - 0xde)).and_then(|n| self.map(n as usize, depth)),
            0xe0..=0xff => Some(Value::Int(i64::from(tag as i8))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let data = b"\x83\xa1a\x01\xa1b\x92\xcd\x01\x00\xd0\xff\xa1c\xd9\x02hi";
        let map = Value::parse(data).expect("whole");
        assert_eq!(map.get("a").and_then(Value::int), Some(1));
        assert_eq!(map.get("b").map(Value::list), Some(&[Value::Int(256), Value::Int(-1)][..]));
        assert_eq!(map.get("c").and_then(Value::text), Some("hi"));
        for cut in 0..data.len() {
            assert_eq!(Value::parse(&data[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Value::parse(&[0x91; 100]), None, "too deep");
        assert_eq!(Value::parse(b"\xdf\xff\xff\xff\xff"), None, "a length without contents");
    }
}
