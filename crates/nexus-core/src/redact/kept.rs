//! A call's arguments as a record may keep them: without secrets, and small.

use serde_json::{Map, Value};

use super::fields::{assignment, follows, is_harmless, is_stored_login, paired_value};
use super::names::names_a_secret;
use super::{HIDDEN, beginning, text};

/// Characters of one string; the digest covers all of it.
pub(super) const LONGEST: usize = 2_000;
/// Characters of a field's name.
const LONGEST_NAME: usize = 100;
/// Bytes of all of a call's arguments, as JSON and about.
pub(super) const MOST: usize = 16 * 1024;
/// Fields and items of all of a call's arguments.
const MOST_VALUES: usize = 500;
const DEEPEST: usize = 16;

/// What stands for the rest that is not kept.
pub(super) const CUT: &str = "… (cut)";

/// The arguments as a record may keep them: secrets by schema (see `ToolSpec::secret_fields`), by the name of
/// their field and by their shape are hidden; long strings are cut, and so is what would be too much in all.
pub fn arguments(arguments: &Map<String, Value>, secret_fields: &[String]) -> Map<String, Value> {
    Keeper::new(secret_fields, LONGEST, MOST, MOST_VALUES).fields(arguments, 0)
}

/// The same for the human who is asked, as whole as can be kept until they answer.
pub fn whole_arguments(arguments: &Map<String, Value>, secret_fields: &[String]) -> Map<String, Value> {
    Keeper::new(secret_fields, usize::MAX, 4 * MOST, 10 * MOST_VALUES).fields(arguments, 0)
}

struct Keeper<'a> {
    secret_fields: &'a [String],
    /// The names down to the value at hand, with dots between; items of a list have none.
    path: String,
    /// How much may still be kept.
    bytes: usize,
    values: usize,
    /// Characters of one string.
    longest: usize,
}

impl<'a> Keeper<'a> {
    fn new(secret_fields: &'a [String], longest: usize, bytes: usize, values: usize) -> Self {
        Self { secret_fields, path: String::new(), bytes, values, longest }
    }

    fn fields(&mut self, fields: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut kept = Map::new();
        let paired = paired_value(fields);
        for (name, value) in fields {
            if self.is_full() {
                kept.insert("…".to_owned(), CUT.into());
                break;
            }
            self.values -= 1;
            let parent = self.path.len();
            if parent > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let shown = self.string(name, LONGEST_NAME);
            let is_secret = self.is_secret() || paired == Some(name.as_str());
            let value = if is_secret { self.hidden() } else { self.value(name, value, depth + 1) };
            kept.insert(shown, value);
            self.path.truncate(parent);
        }
        kept
    }

    fn value(&mut self, name: &str, value: &Value, depth: usize) -> Value {
        match value {
            Value::Null | Value::Bool(_) => self.plain(value),
            Value::Number(_) if is_harmless(name, value) => self.plain(value),
            Value::String(words) if name == "auth" && is_stored_login(words) => self.hidden(),
            _ if !is_harmless(name, value) && names_a_secret(name) => self.hidden(),
            Value::Number(_) => self.plain(value),
            Value::String(words) => self.string(words, self.longest).into(),
            Value::Array(_) | Value::Object(_) if depth >= DEEPEST => CUT.into(),
            Value::Array(items) => self.items(items, depth),
            Value::Object(fields) => self.fields(fields, depth).into(),
        }
    }

    fn items(&mut self, items: &[Value], depth: usize) -> Value {
        let mut kept = Vec::new();
        let mut option = "";
        for item in items {
            if self.is_full() {
                kept.push(CUT.into());
                break;
            }
            self.values -= 1;
            let words = item.as_str().unwrap_or_default();
            kept.push(match assignment(option, words) {
                _ if follows(option, words) => self.hidden(),
                Some(name) => self.string(&format!("{name}={HIDDEN}"), LONGEST).into(),
                None => self.value("", item, depth + 1),
            });
            option = words;
        }
        kept.into()
    }

    fn plain(&mut self, value: &Value) -> Value {
        self.spend(8);
        value.clone()
    }

    fn hidden(&mut self) -> Value {
        self.spend(HIDDEN.len());
        HIDDEN.into()
    }

    /// The string, cut to `most` characters and to what may still be kept.
    fn string(&mut self, words: &str, most: usize) -> String {
        let most = most.min(self.bytes);
        let kept = match words.char_indices().nth(most) {
            None => text(words).into_owned(),
            Some((at, _)) => format!("{}… ({} bytes)", beginning(&words[..at]), words.len()),
        };
        self.spend(json_length(&kept));
        kept
    }

    fn spend(&mut self, bytes: usize) {
        // A comma, a colon, quotes.
        self.bytes = self.bytes.saturating_sub(bytes + 4);
    }

    fn is_full(&self) -> bool {
        self.bytes == 0 || self.values == 0
    }

    fn is_secret(&self) -> bool {
        self.secret_fields.iter().any(|field| field.is_empty() || *field == self.path)
    }
}

fn json_length(text: &str) -> usize {
    let length = |byte| match byte {
        0..=0x1f => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.bytes().map(length).sum()
}
