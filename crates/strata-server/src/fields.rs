//! Reading of JSON field by field, with errors that name the field.

use crate::generate::RequestError;
use serde_json::{Map, Value};

/// A value of a request and where it stands, such as `messages[3].content`.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    pub value: &'a Value,
    pub path: String,
}

impl<'a> At<'a> {
    /// The body of a request.
    ///
    /// # Errors
    /// It is no object.
    pub fn body(value: &'a Value) -> Result<At<'a>, RequestError> {
        let at = At { value, path: String::new() };
        at.object().map_err(|_| RequestError::field("body", "a JSON object", describe(value)))?;
        Ok(at)
    }

    /// A field of an object; `None` if it is absent or null, or this is no object.
    pub fn get(&self, name: &str) -> Option<At<'a>> {
        let value = self.value.get(name).filter(|v| !v.is_null())?;
        Some(At { value, path: self.field(name) })
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is not.
    pub fn need(&self, name: &str, expected: &str) -> Result<At<'a>, RequestError> {
        self.get(name).ok_or_else(|| RequestError::field(self.field(name), expected, "nothing"))
    }

    pub fn object(&self) -> Result<&'a Map<String, Value>, RequestError> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    pub fn text(&self) -> Result<&'a str, RequestError> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    pub fn flag(&self) -> Result<bool, RequestError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// A whole number of at least `least`.
    pub fn count(&self, least: u64) -> Result<u64, RequestError> {
        let found = self.value.as_u64().filter(|n| *n >= least);
        found.ok_or_else(|| self.wrong(format!("a whole number of at least {least}")))
    }

    pub fn number(&self) -> Result<f32, RequestError> {
        self.value.as_f64().map(|n| n as f32).ok_or_else(|| self.wrong("a number"))
    }

    pub fn list(&self) -> Result<impl Iterator<Item = At<'a>> + use<'a>, RequestError> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let path = self.path.clone();
        Ok(list.iter().enumerate().map(move |(i, value)| At { value, path: format!("{path}[{i}]") }))
    }

    /// The string in the field `type`.
    pub fn kind(&self) -> Result<&'a str, RequestError> {
        self.object()?;
        self.need("type", "a string")?.text()
    }

    /// The error that this value is not what it should be.
    pub fn wrong(&self, expected: impl Into<String>) -> RequestError {
        RequestError::field(self.path.as_str(), expected, describe(self.value))
    }

    fn field(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// A value in words, short enough for an error.
fn describe(value: &Value) -> String {
    const MOST: usize = 40;
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) if s.chars().nth(MOST).is_none() => format!("{s:?}"),
        Value::String(s) => format!("{:?}...", s.chars().take(MOST).collect::<String>()),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_name_the_field_what_was_expected_and_what_was_found() {
        let value = json!({"a": [{"b": "x".repeat(50), "n": -1, "z": null}]});
        let body = At::body(&value).unwrap();
        let item = body.get("a").unwrap().list().unwrap().next().unwrap();
        let message = |e: RequestError| e.to_string();
        assert_eq!(
            message(item.get("b").unwrap().flag().unwrap_err()),
            format!("a[0].b: expected true or false, found \"{}\"...", "x".repeat(40))
        );
        assert_eq!(message(item.get("n").unwrap().count(0).unwrap_err()), "a[0].n: expected a whole number of at least 0, found -1");
        assert_eq!(message(item.need("z", "a string").unwrap_err()), "a[0].z: expected a string, found nothing");
        assert_eq!(message(At::body(&json!([])).unwrap_err()), "body: expected a JSON object, found a list");
    }
}
