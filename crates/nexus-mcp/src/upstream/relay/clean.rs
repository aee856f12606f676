//! JSON of others without what would deceive the one who reads it: terminal escapes, bidi controls, invisible tags.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use nexus_core::text;

use super::result::BadResult;

/// The JSON with clean strings. Almost always it is as it came.
pub(crate) fn cleaned(raw: Box<RawValue>) -> Result<Box<RawValue>, BadResult> {
    if is_clean(raw.get()) {
        return Ok(raw);
    }
    let mut tree: Value = serde_json::from_str(raw.get()).map_err(|_| BadResult::TooDeep)?;
    drop(raw);
    clean_tree(&mut tree);
    RawValue::from_string(tree.to_string()).map_err(|_| BadResult::NotAnObject)
}

/// Takes out of all strings and names what deceives.
pub(crate) fn clean_tree(value: &mut Value) {
    match value {
        Value::String(words) => {
            if let Cow::Owned(clean) = text::clean(words) {
                *words = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_tree),
        Value::Object(fields) => {
            if fields.keys().any(|name| matches!(text::clean(name), Cow::Owned(_))) {
                let dirty = std::mem::take(fields).into_iter();
                *fields = dirty.map(|(name, value)| (text::clean(&name).into_owned(), value)).collect();
            }
            fields.values_mut().for_each(clean_tree);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether no string in a JSON text holds what deceives, neither written out nor in escapes.
pub(crate) fn is_clean(json: &str) -> bool {
    if matches!(text::clean(json), Cow::Owned(_)) {
        return false;
    }
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        let length = match escape.as_bytes().first() {
            Some(b'u') if is_clean_escape(escape.get(1..5)) => 5,
            Some(b'u' | b'b' | b'f') | None => return false,
            Some(_) => 1,
        };
        rest = escape.get(length..).unwrap_or_default();
    }
    true
}

fn is_clean_escape(digits: Option<&str>) -> bool {
    let Some(code) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else { return false };
    match char::from_u32(code) {
        Some(c) => matches!(text::clean(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_)),
        // Half of a pair; the invisible tags begin with this one.
        None => code != 0xdb40,
    }
}
