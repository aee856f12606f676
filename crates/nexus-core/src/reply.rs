//! What a tool gives back, kept as JSON text from the moment it is made.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{ToolError, ToolResult};
use crate::text;

/// The result of a call.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Text, and the same as structured content where the tool has a reply type.
    Plain { text: String, structured: Option<Box<RawValue>>, is_error: bool },
    /// A whole result object as a protocol peer made it: content blocks of other kinds, or a question.
    Verbatim(Box<RawValue>),
}

impl Reply {
    /// A reply with structured content; its text is `text`, or the content as compact JSON.
    pub fn structured(content: &impl Serialize, text: Option<String>) -> ToolResult<Self> {
        let structured = to_raw_value(content).map_err(ToolError::internal)?;
        let structured = clean_json(structured);
        let text = match text {
            Some(text) => match text::clean(&text) {
                Cow::Borrowed(_) => text,
                Cow::Owned(clean) => clean,
            },
            None => structured.get().to_owned(),
        };
        Ok(Self::Plain { text, structured: Some(structured), is_error: false })
    }

    /// Text alone.
    pub fn plain(text: &str) -> Self {
        Self::Plain { text: text::clean(text).into_owned(), structured: None, is_error: false }
    }

    /// A result that tells the model what went wrong. No `outputSchema` binds it.
    pub fn error(text: String, body: &Value) -> Self {
        Self::Plain { text, structured: to_raw_value(body).ok().map(clean_json), is_error: true }
    }

    /// The same, where the body says all there is to say: its JSON is the text.
    pub fn error_body(body: &Value) -> Self {
        let structured = to_raw_value(body).ok().map(clean_json);
        let text = structured.as_ref().map_or_else(String::new, |body| body.get().to_owned());
        Self::Plain { text, structured, is_error: true }
    }

    /// What the model reads first.
    pub fn text(&self) -> &str {
        match self {
            Self::Plain { text, .. } => text,
            Self::Verbatim(raw) => raw.get(),
        }
    }

    pub fn is_error(&self) -> bool {
        match self {
            Self::Plain { is_error, .. } => *is_error,
            Self::Verbatim(raw) => {
                #[derive(serde::Deserialize)]
                struct Flag {
                    #[serde(rename = "isError", default)]
                    is_error: bool,
                }
                serde_json::from_str::<Flag>(raw.get()).is_ok_and(|flag| flag.is_error)
            }
        }
    }
}

/// Cleans the strings inside. JSON escapes control characters, so a look for `\u` and for the lead
/// bytes of what deceives tells cheaply that there is nothing to do.
fn clean_json(raw: Box<RawValue>) -> Box<RawValue> {
    let suspicious = raw.get().contains("\\u") || text::clean(raw.get()) != raw.get();
    if !suspicious {
        return raw;
    }
    let Ok(mut tree) = serde_json::from_str::<Value>(raw.get()) else { return raw };
    clean_tree(&mut tree);
    to_raw_value(&tree).unwrap_or(raw)
}

fn clean_tree(value: &mut Value) {
    match value {
        Value::String(words) => {
            if let Cow::Owned(clean) = text::clean(words) {
                *words = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_tree),
        Value::Object(fields) => {
            if fields.keys().any(|name| matches!(text::clean(name), Cow::Owned(_))) {
                *fields = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, value)| (text::clean(&name).into_owned(), value))
                    .collect();
            }
            fields.values_mut().for_each(clean_tree);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn escapes_leave_the_structured_content_too() {
        let reply = Reply::structured(&json!({ "name\u{1b}[1m": ["a\u{1b}[31mb\u{202e}", 1] }), None).unwrap();
        assert_eq!(reply.text(), r#"{"name":["ab",1]}"#);
    }

    #[test]
    fn clean_content_is_not_touched() {
        let reply = Reply::structured(&json!({ "a": "tab\tquote\" ü" }), Some("own text".into())).unwrap();
        let Reply::Plain { text, structured, .. } = reply else { panic!() };
        assert_eq!(text, "own text");
        assert_eq!(structured.unwrap().get(), r#"{"a":"tab\tquote\" ü"}"#);
    }
}
