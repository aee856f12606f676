//! What a tool gives back, without secrets: text as text, structured content as values, everything else untouched.

use std::borrow::Cow;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::fields::{assignment, follows, is_harmless, is_stored_login, paired_value};
use super::names::names_a_secret;
use super::{HIDDEN, clue, own, own_values, text};
use crate::reply::Reply;

/// The reply as the model may see it. Structured content stays JSON of the same form.
pub fn reply(reply: Reply) -> Reply {
    match reply {
        Reply::Plain { text, structured, is_error } => plain(text, structured, is_error, &Walk::all()),
        Reply::Verbatim(raw) => verbatim(raw, result),
    }
}

/// The same for a tool whose output the operator wants unredacted: only the hub's own secrets are hidden.
pub fn own_values_of_reply(reply: Reply) -> Reply {
    match reply {
        Reply::Plain { text, structured, is_error } => plain(text, structured, is_error, &Walk::own()),
        Reply::Verbatim(raw) => verbatim(raw, |tree| Walk::own().value(tree)),
    }
}

/// One JSON value without secrets, for instance a log line; `None` if there are none in it. What is no JSON is text.
pub fn json(json: &str) -> Option<String> {
    if !may_hold_secrets(json) {
        return None;
    }
    match serde_json::from_str::<Value>(json) {
        Ok(mut tree) => Walk::all().value(&mut tree).then(|| tree.to_string()),
        Err(_) => changed(json, text),
    }
}

fn plain(mut text: String, structured: Option<Box<RawValue>>, is_error: bool, walk: &Walk) -> Reply {
    let same = structured.as_ref().is_some_and(|raw| text == raw.get());
    // A tree that is too deep to be looked into is not given away.
    let structured = structured.and_then(|raw| in_tree(raw, |tree| walk.value(tree)).ok());
    match &structured {
        Some(raw) if same => {
            if text != raw.get() {
                raw.get().clone_into(&mut text);
            }
        }
        _ => {
            walk.string(&mut text);
        }
    }
    Reply::Plain { text, structured, is_error }
}

/// A result as a protocol peer made it. One that cannot be looked into is shown as text.
fn verbatim(raw: Box<RawValue>, hide: impl FnOnce(&mut Value) -> bool) -> Reply {
    in_tree(raw, hide).map_or_else(
        |raw| {
            let reply = Reply::Verbatim(raw);
            Reply::Plain { text: text(reply.text()).into_owned(), structured: None, is_error: reply.is_error() }
        },
        Reply::Verbatim,
    )
}

/// Lets `hide` work on the tree, if there may be anything in it. An error is what has no tree.
fn in_tree(raw: Box<RawValue>, hide: impl FnOnce(&mut Value) -> bool) -> Result<Box<RawValue>, Box<RawValue>> {
    if !may_hold_secrets(raw.get()) {
        return Ok(raw);
    }
    let Ok(mut tree) = serde_json::from_str::<Value>(raw.get()) else { return Err(raw) };
    if hide(&mut tree) { to_raw_value(&tree).map_err(|_| raw) } else { Ok(raw) }
}

/// A quick look at JSON. A clue could be written in escapes, so these are one, too.
fn may_hold_secrets(json: &str) -> bool {
    let bytes = json.as_bytes();
    clue::next(bytes, 0) < bytes.len()
        || json.contains("\\u")
        || json.contains("\\/")
        || own::with(|own| own.is_some_and(|own| (own.escaped && json.contains('\\')) || own.find(bytes, 0).is_some()))
}

/// Where text stands in results: of tools, of resources, of prompts.
const LISTS: [(&str, &[&str]); 3] = [
    ("content", &["/text", "/resource/text", "/uri", "/description", "/title"]),
    ("contents", &["/text"]),
    ("messages", &["/content/text", "/content/resource/text"]),
];

/// In the result of a call: text is text, structured content is a tree with telling names, and of everything else
/// (images, what the protocol needs) only the hub's own secrets are taken out.
fn result(tree: &mut Value) -> bool {
    let mut found = Walk::own().value(tree);
    for (list, places) in LISTS {
        for block in tree.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for place in places {
                if let Some(Value::String(words)) = block.pointer_mut(place) {
                    found |= Walk::all().string(words);
                }
            }
        }
    }
    if let Some(structured) = tree.get_mut("structuredContent") {
        found |= Walk::all().value(structured);
    }
    found
}

/// The text, if hiding changed it.
fn changed(words: &str, hide: impl Fn(&str) -> Cow<'_, str>) -> Option<String> {
    match hide(words) {
        Cow::Owned(hidden) => Some(hidden),
        Cow::Borrowed(_) => None,
    }
}

/// Hides in a tree, and tells whether it found anything.
struct Walk {
    text: fn(&str) -> Cow<'_, str>,
    by_name: bool,
}

impl Walk {
    fn all() -> Self {
        Self { text, by_name: true }
    }

    fn own() -> Self {
        Self { text: own_values, by_name: false }
    }

    fn value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(words) => self.string(words),
            Value::Array(items) => self.items(items),
            Value::Object(fields) => self.fields(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn string(&self, words: &mut String) -> bool {
        changed(words, self.text).map(|hidden| *words = hidden).is_some()
    }

    fn items(&self, items: &mut [Value]) -> bool {
        let mut found = false;
        let mut option = String::new();
        for item in items {
            let words = item.as_str().filter(|_| self.by_name).unwrap_or_default();
            let hidden = match assignment(&option, words) {
                _ if follows(&option, words) => Some(HIDDEN.to_owned()),
                name => name.map(|name| format!("{name}={HIDDEN}")),
            };
            option = if words.starts_with('-') { words.to_owned() } else { String::new() };
            found |= match hidden {
                Some(hidden) => replace(item, hidden.into()),
                None => self.value(item),
            };
        }
        found
    }

    fn fields(&self, fields: &mut Map<String, Value>) -> bool {
        let mut found = false;
        let paired = paired_value(fields).filter(|_| self.by_name).map(str::to_owned);
        for (name, value) in fields.iter_mut() {
            let is_login = name == "auth" && value.as_str().is_some_and(is_stored_login);
            let is_secret = self.by_name && (paired.as_ref() == Some(name) || is_login || names_a_secret(name));
            found |= if is_secret && !is_harmless(name, value) {
                self.under_a_secret_name(value)
            } else {
                self.value(value)
            };
        }
        if fields.keys().any(|name| matches!((self.text)(name), Cow::Owned(_))) {
            *fields =
                std::mem::take(fields).into_iter().map(|(name, value)| ((self.text)(&name).into(), value)).collect();
            found = true;
        }
        found
    }

    /// Keeps the kind of every value: a schema may ask for it. A list of objects is a list of things with secrets, not
    /// of secrets.
    fn under_a_secret_name(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(_) => replace(value, 0.into()),
            Value::String(words) if words.is_empty() => false,
            Value::String(_) => replace(value, HIDDEN.into()),
            Value::Array(items) => items.iter_mut().fold(false, |found, item| match item {
                Value::Object(fields) => self.fields(fields) | found,
                _ => self.under_a_secret_name(item) | found,
            }),
            Value::Object(fields) => {
                fields.values_mut().fold(false, |found, field| self.under_a_secret_name(field) | found)
            }
        }
    }
}

fn replace(value: &mut Value, with: Value) -> bool {
    let changes = *value != with;
    *value = with;
    changes
}
