//! JSON of others without what would deceive the one who reads it: terminal escapes, bidi controls, invisible tags.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use nexus_core::text;

use super::result::BadResult;

/// Arrays and objects in one another. Parsers of callers end at about a hundred, some by crashing.
const DEEPEST: usize = 100;

/// The JSON with clean strings. Almost always it is as it came.
pub(crate) fn cleaned(raw: Box<RawValue>) -> Result<Box<RawValue>, BadResult> {
    if is_too_deep(raw.get()) {
        return Err(BadResult::TooDeep);
    }
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

/// Looks closely only where there are brackets enough.
fn is_too_deep(json: &str) -> bool {
    let opening = |byte: &&u8| matches!(byte, b'{' | b'[');
    if json.as_bytes().iter().filter(opening).count() <= DEEPEST {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for byte in json.bytes() {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => depth -= 1,
            _ => {}
        }
        if depth > DEEPEST {
            return true;
        }
    }
    false
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_texts_only() {
        check("{}", false);
        check(&("[".repeat(DEEPEST) + &"]".repeat(DEEPEST)), false);
        check(&("[".repeat(DEEPEST + 1) + &"]".repeat(DEEPEST + 1)), true);
        check(&("{\"a\":".repeat(50_000) + "1" + &"}".repeat(50_000)), true);
        check(&format!("[{}]", "{},".repeat(500) + "{}"), false);
        check(&format!(r#"["{}\"{}"]"#, "[".repeat(300), "{".repeat(300)), false);

        #[track_caller]
        fn check(json: &str, expected: bool) {
            assert_eq!(is_too_deep(json), expected, "{}", &json[..json.len().min(80)]);
        }
    }
}
