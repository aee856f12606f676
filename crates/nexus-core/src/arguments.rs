//! A call's arguments, as they came: parsed only by the tool that wants them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::error::{ToolError, ToolResult};
use crate::{redact, text};

/// Either a tree (from a REPL, a test) or the bytes from the wire. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Arguments(Arc<Form>);

#[derive(Debug)]
enum Form {
    /// An object.
    Tree(Value),
    Raw {
        text: Box<RawValue>,
        /// The object that the text is, once somebody has asked for it.
        tree: OnceLock<Option<Value>>,
    },
}

/// Bytes of arguments whose tree is kept for the next who asks: a tree can be many times as large as its text.
const LARGEST_KEPT: usize = 64 * 1024;

#[derive(Debug, Error)]
enum BadArguments {
    #[error("the arguments do not fit: {reason}")]
    Whole { reason: String },
    #[error("the argument `{field}` does not fit: {reason}")]
    Field { field: String, reason: String },
}

impl Arguments {
    pub fn none() -> Self {
        Self::tree_of(Map::new())
    }

    pub fn tree_of(tree: Map<String, Value>) -> Self {
        Self(Arc::new(Form::Tree(Value::Object(tree))))
    }

    pub fn raw(text: Box<RawValue>) -> Self {
        Self(Arc::new(Form::Raw { text, tree: OnceLock::new() }))
    }

    /// As a type. What does not fit is the caller's to mend, and is told by its path.
    pub fn parse<T: DeserializeOwned>(&self) -> ToolResult<T> {
        let parsed = match &*self.0 {
            Form::Tree(tree) => serde_path_to_error::deserialize(tree),
            Form::Raw { text, .. } => {
                serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text.get()))
            }
        };
        parsed.map_err(|error| {
            let field = error.path().to_string();
            let reason = reason(&field, error.inner());
            ToolError::refused(if field == "." {
                BadArguments::Whole { reason }
            } else {
                BadArguments::Field { field: text::cut(&field, LONGEST_ECHO).into_owned(), reason }
            })
        })
    }

    /// As a tree, which is an object. None when they are none.
    pub fn tree(&self) -> Option<Cow<'_, Value>> {
        // As a map and not as a value, which a first key of serde's own could turn into something else.
        let object = |text: &RawValue| serde_json::from_str(text.get()).ok().map(Value::Object);
        match &*self.0 {
            Form::Tree(tree) => Some(Cow::Borrowed(tree)),
            Form::Raw { text, .. } if text.get().len() > LARGEST_KEPT => object(text).map(Cow::Owned),
            Form::Raw { text, tree } => tree.get_or_init(|| object(text)).as_ref().map(Cow::Borrowed),
        }
    }

    /// SHA-256 over the arguments with sorted keys: equal for equal calls, however they were written.
    pub fn digest(&self) -> [u8; 32] {
        self.digest_of(self.tree().as_deref())
    }

    /// The same, where the tree is at hand.
    pub fn digest_of(&self, tree: Option<&Value>) -> [u8; 32] {
        let mut canonical = Vec::new();
        match (tree, &*self.0) {
            (Some(tree), _) => write_sorted(tree, &mut canonical),
            (None, Form::Raw { text, .. }) => canonical.extend_from_slice(text.get().as_bytes()),
            (None, Form::Tree(_)) => {}
        }
        Sha256::digest(canonical).into()
    }
}

/// Characters of a name the caller made up.
const LONGEST_ECHO: usize = 100;
/// Characters of what a type says of a value.
const LONGEST_REASON: usize = 300;

/// What was expected, without the value: it may be a secret, and the caller knows what it sent.
fn reason(field: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    // The expectation is the type's own words and comes last; the value before it may say anything.
    let (found, expected) = message.rfind(", expected ").map_or((message, ""), |at| message.split_at(at));
    let unknown = |kind: &str| found.strip_prefix(kind)?.strip_suffix('`');
    let shown = if found.starts_with("invalid type: ") || found.starts_with("invalid value: ") {
        // `invalid type: string "hunter2"`, `invalid value: integer `0``
        format!("{}{expected}", found.split(['"', '`']).next().unwrap_or_default().trim_end())
    } else if found.starts_with("unknown variant `") {
        format!("unknown variant{expected}")
    } else if let Some(name) = unknown("unknown field `") {
        format!("unknown field `{}`{expected}", text::cut(name, LONGEST_ECHO))
    } else if redact::names_a_secret(field) && !found.starts_with("missing field `") {
        format!("invalid value{expected}")
    } else {
        format!("{}{expected}", text::cut(found, LONGEST_REASON))
    };
    text::cut(&shown, 2 * LONGEST_REASON).into_owned()
}

fn write_sorted(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            out.push(b'{');
            for (i, (name, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_plain(name, out);
                out.push(b':');
                write_sorted(value, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_sorted(item, out);
            }
            out.push(b']');
        }
        plain => write_plain(plain, out),
    }
}

/// A plain value is always JSON, and memory always takes it.
fn write_plain(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::num::NonZeroU16;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Args {
        port: NonZeroU16,
        tags: Option<Vec<String>>,
        mode: Option<Mode>,
        host: Option<Host>,
        password: Option<Host>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Fast,
        Slow,
    }

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "String")]
    struct Host;

    impl TryFrom<String> for Host {
        type Error = String;

        fn try_from(name: String) -> Result<Self, String> {
            Err(format!("`{name}` is not a host"))
        }
    }

    fn raw(json: &str) -> Arguments {
        Arguments::raw(RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn a_bad_argument_is_named_by_its_path_and_its_value_is_not_echoed() {
        let port = "the argument `port` does not fit: ";
        check(r#"{"port": "hunter2"}"#, &format!("{port}invalid type: string, expected a nonzero u16"));
        check(r#"{"port": "a\", expected `b"}"#, &format!("{port}invalid type: string, expected a nonzero u16"));
        check(r#"{"port": 0}"#, &format!("{port}invalid value: integer, expected a nonzero u16"));
        check(r#"{"port": true}"#, &format!("{port}invalid type: boolean, expected a nonzero u16"));
        check(
            r#"{"port": 1, "tags": ["a", 2]}"#,
            "the argument `tags[1]` does not fit: invalid type: integer, expected a string",
        );
        check(
            r#"{"port": 1, "mode": "x"}"#,
            "the argument `mode` does not fit: unknown variant, expected `fast` or `slow`",
        );
        check(r#"{"port": 1, "host": "a b"}"#, "the argument `host` does not fit: `a b` is not a host");
        check(r#"{"port": 1, "password": "hunter2"}"#, "the argument `password` does not fit: invalid value");
        check(
            r#"{"port": 1, "prot": 2}"#,
            "the argument `prot` does not fit: unknown field `prot`, \
             expected one of `port`, `tags`, `mode`, `host`, `password`",
        );
        check("{}", "the arguments do not fit: missing field `port`");
        check("[1]", "the arguments do not fit: invalid length 1, expected struct Args with 5 elements");

        #[track_caller]
        fn check(json: &str, message: &str) {
            let error = raw(json).parse::<Args>().unwrap_err();
            assert_eq!(error.kind(), "refused");
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn an_echo_is_short_whatever_was_sent() {
        let long = "x".repeat(4 << 20);
        check(&format!(r#"{{"port": "{long}"}}"#));
        check(&format!(r#"{{"port": 1, "host": "{long}"}}"#));
        check(&format!(r#"{{"port": 1, "mode": "{long}"}}"#));
        check(&format!(r#"{{"port": 1, "{long}": 2}}"#));

        #[track_caller]
        fn check(json: &str) {
            let text = raw(json).parse::<Args>().unwrap_err().to_string();
            assert!(text.len() < 800 && text.contains("does not fit"), "{text}");
        }
    }

    #[test]
    fn a_key_of_serdes_own_is_a_key_like_any_other() {
        let sly = raw(r#"{"$serde_json::private::RawValue":0,"name":"p"}"#);
        assert_eq!(sly.tree().unwrap()["name"], "p");
        assert!(raw(r#"{"a":{"$serde_json::private::RawValue":0}}"#).tree().is_none(), "which is not run");
        assert!(raw("[1]").tree().is_none());
    }

    #[test]
    fn the_digest_looks_at_meaning_not_at_spelling() {
        assert_eq!(raw(r#"{"a":1,"b":{"c":2,"d":3}}"#).digest(), raw(r#"{ "b": {"d":3,"c":2}, "a": 1 }"#).digest());
        assert_ne!(raw(r#"{"a":1}"#).digest(), raw(r#"{"a":2}"#).digest());
    }
}
