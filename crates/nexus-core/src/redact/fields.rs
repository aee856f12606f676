//! What announces a secret in a tree of values: the name beside it, the item before it, its own beginning.

use serde_json::{Map, Value};

use super::names::names_a_secret;

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
pub(super) fn assignment(item: &str) -> Option<&str> {
    let (name, value) = item.split_once('=')?;
    let is_variable = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (is_variable && !value.is_empty() && !value.contains('\n') && names_a_secret(name)).then_some(name)
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
