//! A call's arguments, as they came: parsed only by the tool that wants them.

use std::borrow::Cow;
use std::fmt::Write;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::error::{ToolError, ToolResult};

/// Either a tree (from a REPL, a test) or the bytes from the wire.
#[derive(Clone, Debug)]
pub enum Arguments {
    Tree(Map<String, Value>),
    Raw(Box<RawValue>),
}

#[derive(Debug, Error)]
enum BadArguments {
    #[error("the arguments do not fit: {0}")]
    Whole(serde_json::Error),
    #[error("the argument `{field}` does not fit")]
    Field { field: String, source: serde_json::Error },
}

impl Arguments {
    pub fn none() -> Self {
        Self::Tree(Map::new())
    }

    /// As a type. What does not fit is the caller's to mend, and is told by its path.
    pub fn parse<T: DeserializeOwned>(&self) -> ToolResult<T> {
        let parsed = match self {
            // The tree is cloned: it is small, and only people and tests send one.
            Self::Tree(tree) => serde_path_to_error::deserialize(Value::Object(tree.clone())),
            Self::Raw(raw) => serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(raw.get())),
        };
        parsed.map_err(|error| {
            let field = error.path().to_string();
            let source = error.into_inner();
            ToolError::refused(if field == "." {
                BadArguments::Whole(source)
            } else {
                BadArguments::Field { field, source }
            })
        })
    }

    /// As a tree, for the record. None when they are not an object.
    pub fn tree(&self) -> Option<Cow<'_, Map<String, Value>>> {
        match self {
            Self::Tree(tree) => Some(Cow::Borrowed(tree)),
            Self::Raw(raw) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
        }
    }

    /// SHA-256 over the arguments with sorted keys: equal for equal calls, however they were written.
    pub fn digest(&self) -> [u8; 32] {
        self.digest_of(self.tree().as_deref())
    }

    /// The same, where the tree is at hand.
    pub fn digest_of(&self, tree: Option<&Map<String, Value>>) -> [u8; 32] {
        let mut canonical = String::new();
        match tree {
            Some(tree) => write_fields(tree, &mut canonical),
            None => canonical.push_str(match self {
                Self::Raw(raw) => raw.get(),
                Self::Tree(_) => "",
            }),
        }
        Sha256::digest(canonical.as_bytes()).into()
    }
}

fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => write_fields(fields, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_sorted(item, out);
            }
            out.push(']');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

fn write_fields(fields: &Map<String, Value>, out: &mut String) {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    out.push('{');
    for (i, (name, value)) in sorted.into_iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(out, "{comma}{}:", Value::String(name.clone()));
        write_sorted(value, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Args {
        port: u16,
        tags: Option<Vec<String>>,
    }

    fn raw(json: &str) -> Arguments {
        Arguments::Raw(RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn a_bad_argument_is_named_by_its_path() {
        check(r#"{"port": "x"}"#, "the argument `port` does not fit: invalid type: string \"x\", expected u16");
        check(
            r#"{"port": 1, "tags": ["a", 2]}"#,
            "the argument `tags[1]` does not fit: invalid type: integer `2`, expected a string",
        );
        check(
            r#"{"port": 1, "prot": 2}"#,
            "the argument `prot` does not fit: unknown field `prot`, expected `port` or `tags`",
        );
        check("{}", "the arguments do not fit: missing field `port`");
        check("[1]", "");

        #[track_caller]
        fn check(json: &str, message: &str) {
            let error = raw(json).parse::<Args>().unwrap_err();
            assert_eq!(error.kind(), "refused");
            let text = error.to_string();
            assert!(text.starts_with(message) && text.matches("expected").count() <= 1, "{text}");
        }
    }

    #[test]
    fn the_digest_looks_at_meaning_not_at_spelling() {
        assert_eq!(raw(r#"{"a":1,"b":{"c":2,"d":3}}"#).digest(), raw(r#"{ "b": {"d":3,"c":2}, "a": 1 }"#).digest());
        assert_ne!(raw(r#"{"a":1}"#).digest(), raw(r#"{"a":2}"#).digest());
    }
}
