//! `key=value` made into arguments: what each value is, the tool's schema says.

use serde_json::{Map, Number, Value};
use thiserror::Error;

use nexus_core::text;

use crate::config::faults::did_you_mean;

#[cfg(test)]
mod tests;

#[derive(Debug, Error, PartialEq)]
pub enum BadArgument {
    #[error("there is no argument `{key}`; {hint}")]
    Unknown { key: String, hint: String },
    #[error("`{key}` is given twice")]
    Twice { key: String },
    #[error("`{key}` must be {expected}, not `{value}`")]
    Wrong { key: String, expected: String, value: String },
    #[error("`{0}` is missing")]
    Missing(String),
}

/// References to follow, one inside the other. A schema may refer to itself.
const DEEPEST: usize = 8;

/// The arguments of a call.
pub fn arguments(schema: &Value, pairs: &[(String, String)]) -> Result<Map<String, Value>, BadArgument> {
    let mut fields = Map::new();
    for (key, value) in pairs {
        put(schema, schema, &mut fields, key, key, value)?;
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match required.into_iter().find(|name| !fields.contains_key(*name)) {
        Some(missing) => Err(BadArgument::Missing(text::clean(missing).into_owned())),
        None => Ok(fields),
    }
}

/// Puts one value where its key says: `login.user=x` reaches into an object.
fn put(
    root: &Value,
    schema: &Value,
    fields: &mut Map<String, Value>,
    whole: &str,
    key: &str,
    value: &str,
) -> Result<(), BadArgument> {
    let schema = followed(root, schema);
    let known = schema["properties"].as_object();
    if let Some(field) = known.and_then(|known| known.get(key)) {
        return set(root, field, fields, whole, key, value);
    }
    if let Some((outer, inner)) = key.split_once('.')
        && let Some(field) = known.and_then(|known| known.get(outer)).map(|field| followed(root, field))
        && kinds(field).contains(&Kind::Object)
    {
        let object = fields.entry(outer).or_insert_with(|| Value::Object(Map::new()));
        return match object {
            Value::Object(object) => put(root, field, object, whole, inner, value),
            _ => Err(BadArgument::Twice { key: outer.to_owned() }),
        };
    }
    match &schema["additionalProperties"] {
        // Most schemas do not say that they want no others, and mean it.
        Value::Bool(true) => set(root, &Value::Null, fields, whole, key, value),
        more @ Value::Object(_) => set(root, more, fields, whole, key, value),
        _ if known.is_none_or(Map::is_empty) && schema.get("additionalProperties").is_none() => {
            set(root, &Value::Null, fields, whole, key, value)
        }
        _ => Err(BadArgument::Unknown { key: whole.to_owned(), hint: hint(key, known) }),
    }
}

fn hint(key: &str, known: Option<&Map<String, Value>>) -> String {
    let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let hint = did_you_mean(key, names.iter().copied()).unwrap_or_else(|| match names.is_empty() {
        true => "it takes none".to_owned(),
        false => format!("there are {}", names.join(", ")),
    });
    text::cut(&text::clean(&hint), 400).into_owned()
}

/// Sets a value; a list grows with every time its key is given.
fn set(
    root: &Value,
    schema: &Value,
    fields: &mut Map<String, Value>,
    whole: &str,
    key: &str,
    value: &str,
) -> Result<(), BadArgument> {
    let schema = followed(root, schema);
    let wrong = || BadArgument::Wrong {
        key: whole.to_owned(),
        expected: expected(root, schema),
        value: text::cut(value, 80).into_owned(),
    };
    if kinds(schema).contains(&Kind::Array) && !value.trim_start().starts_with('[') {
        let item = typed(followed(root, &schema["items"]), value);
        // A value that may be a list or something else is a list once it is given twice.
        if let Some(list) = fields.get_mut(key) {
            let first = list.take();
            *list = match (first, item.ok_or_else(wrong)?) {
                (Value::Array(mut items), item) => {
                    items.push(item);
                    Value::Array(items)
                }
                (first, item) => Value::Array(vec![first, item]),
            };
            return Ok(());
        }
        if kinds(schema) == [Kind::Array] {
            fields.insert(key.to_owned(), Value::Array(vec![item.ok_or_else(wrong)?]));
            return Ok(());
        }
    }
    if fields.contains_key(key) {
        return Err(BadArgument::Twice { key: whole.to_owned() });
    }
    fields.insert(key.to_owned(), typed(schema, value).ok_or_else(wrong)?);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    Array,
    Object,
    String,
}

/// The words for each, in the order in which a value that may be several is tried.
const KINDS: [(&str, Kind); 7] = [
    ("null", Kind::Null),
    ("boolean", Kind::Boolean),
    ("integer", Kind::Integer),
    ("number", Kind::Number),
    ("array", Kind::Array),
    ("object", Kind::Object),
    ("string", Kind::String),
];

/// What a value may be. Empty: the schema does not say.
fn kinds(schema: &Value) -> Vec<Kind> {
    let mut words: Vec<&Value> = match &schema["type"] {
        Value::Array(several) => several.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    };
    for several in ["anyOf", "oneOf"] {
        words.extend(schema[several].as_array().into_iter().flatten().map(|either| &either["type"]));
    }
    KINDS.into_iter().filter(|(word, _)| words.iter().any(|known| *known == word)).map(|(_, kind)| kind).collect()
}

/// The value as the schema wants it. None: it cannot be.
fn typed(schema: &Value, value: &str) -> Option<Value> {
    if let Some(choices) = schema["enum"].as_array() {
        let spelt = |choice: &&Value| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned) == value;
        return choices.iter().find(spelt).cloned();
    }
    let kinds = kinds(schema);
    if kinds.is_empty() {
        // What looks like a value of JSON is one; anything else is a text.
        return Some(serde_json::from_str(value).unwrap_or_else(|_| value.into()));
    }
    kinds.into_iter().find_map(|kind| as_kind(kind, value))
}

fn as_kind(kind: Kind, value: &str) -> Option<Value> {
    match kind {
        Kind::Null => (value == "null").then_some(Value::Null),
        Kind::Boolean => match value.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true.into()),
            "false" | "no" | "off" => Some(false.into()),
            _ => None,
        },
        Kind::Integer => {
            serde_json::from_str::<Number>(value).ok().filter(|number| !number.is_f64()).map(Value::Number)
        }
        Kind::Number => serde_json::from_str::<Number>(value).ok().map(Value::Number),
        Kind::Array => serde_json::from_str(value).ok().filter(Value::is_array),
        Kind::Object => serde_json::from_str(value).ok().filter(Value::is_object),
        Kind::String => Some(value.into()),
    }
}

/// In words, for whoever typed something else.
fn expected(root: &Value, schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<String> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        return text::cut(&text::clean(&format!("one of {}", choices.join(", "))), 300).into_owned();
    }
    let word = |kind: &Kind| match kind {
        Kind::Null => "null".to_owned(),
        Kind::Boolean => "true or false".to_owned(),
        Kind::Integer => "a whole number".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::Array => format!("a list of which each is {}", expected(&Value::Null, followed(root, &schema["items"]))),
        Kind::Object => "a JSON object".to_owned(),
        Kind::String => "a text".to_owned(),
    };
    let kinds = kinds(schema);
    if kinds.is_empty() { "a value".to_owned() } else { kinds.iter().map(word).collect::<Vec<_>>().join(", or ") }
}

/// The schema itself in place of a reference to it, within the same document.
pub fn followed<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..DEEPEST {
        let Some(found) = schema["$ref"].as_str().and_then(|at| root.pointer(at.strip_prefix('#')?)) else { break };
        schema = found;
    }
    schema
}
