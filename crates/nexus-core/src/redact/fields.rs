//! What announces a secret in a tree of values: the name beside it, the item before it, its own beginning.

use serde_json::{Map, Value};

use super::expression::is_run;
use super::names::{counts, names_a_secret};
use super::value::is_script_option;

/// Whether an item is the secret that the option before it announces: `["--password", "hunter2"]`.
pub(super) fn follows(option: &str, item: &str) -> bool {
    match option {
        "-u" | "--user" => item.contains(':') && !item.bytes().all(|b| b.is_ascii_digit() || b == b':'),
        _ => {
            option.starts_with('-') && !option.contains(['=', ' ']) && !item.starts_with('-') && names_a_secret(option)
        }
    }
}

/// The name in an item like `DB_PASSWORD=correct horse`, where all that follows is its value: a container's variables.
/// After an option like `-c` it is a script, where more may follow.
pub(super) fn assignment<'a>(option: &str, item: &'a str) -> Option<&'a str> {
    if is_script_option(option.as_bytes()) {
        return None;
    }
    let (name, value) = item.split_once('=')?;
    let is_variable = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_value = !value.is_empty() && !value.contains('\n') && !is_run(value);
    (is_variable && is_value && names_a_secret(name)).then_some(name)
}

/// The field with the secret in `{"name": "DB_PASSWORD", "value": …}`.
pub(super) fn paired_value(fields: &Map<String, Value>) -> Option<&str> {
    let is = |name: &str, words: &[&str]| words.iter().any(|word| name.eq_ignore_ascii_case(word));
    let (value, _) = fields.iter().find(|(name, _)| is(name, &["value"]))?;
    let named = fields.iter().any(|(name, told)| {
        is(name, &["name", "key", "variable", "field"]) && told.as_str().is_some_and(names_a_secret)
    });
    named.then_some(value)
}

/// Whether the name does not make this value a secret: a number of tokens, a directory.
pub(super) fn is_harmless(name: &str, value: &Value) -> bool {
    match value {
        Value::Number(_) => counts(name),
        Value::String(words) => name == "pwd" && words.starts_with('/'),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether this is `user:password` in Base64, as Docker keeps it under the name `auth`.
pub(super) fn is_stored_login(encoded: &str) -> bool {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Option<Vec<u8>> = encoded.trim_end_matches('=').bytes().map(digit).collect();
    let Some(digits) = digits.filter(|_| encoded.len().is_multiple_of(4) && encoded.len() >= 8) else { return false };
    let decoded = digits.chunks(4).flat_map(|four| {
        let bits = (0..4).fold(0_u32, |bits, i| bits << 6 | u32::from(four.get(i).copied().unwrap_or(0)));
        bits.to_be_bytes().into_iter().skip(1).take(four.len() - 1)
    });
    let decoded: Vec<u8> = decoded.collect();
    decoded.contains(&b':') && decoded.iter().all(|b| *b >= b' ')
}
