//! Keeps secrets out of everything that is stored, logged, shipped or shown.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

/// What stands where a secret was.
pub const HIDDEN: &str = "[redacted]";

/// Longest string of an argument that a record keeps; the digest covers all of it.
const LONGEST: usize = 2_000;
const MARGIN: usize = 300;

/// A URL that prints without its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct SafeUrl(String);

impl SafeUrl {
    pub fn new(url: &str) -> Self {
        Self(text(url).into_owned())
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The arguments as a record may keep them: secrets by schema (`format: "secret"`), by the name
/// of their field and by their shape are hidden, long strings are cut.
pub fn arguments(arguments: &Map<String, Value>, secret_fields: &[String]) -> Map<String, Value> {
    arguments
        .iter()
        .map(|(name, value)| {
            let hidden = secret_fields.iter().any(|field| field == name);
            (name.clone(), if hidden { HIDDEN.into() } else { field(name, value) })
        })
        .collect()
}

fn field(name: &str, value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value.clone(),
        _ if names_a_secret(name) => HIDDEN.into(),
        Value::Number(_) => value.clone(),
        Value::String(words) => kept(words).into(),
        Value::Array(items) => items.iter().map(|item| field("", item)).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), field(name, value))).collect(),
    }
}

/// A string as a record keeps it. Only what may be kept is looked at, and a little more: a secret must
/// not be spared because the cut went through it.
fn kept(words: &str) -> String {
    let cut = |words: &str, most: usize| words.char_indices().nth(most).map_or(words.len(), |(at, _)| at);
    let looked_at = text(&words[..cut(words, LONGEST + MARGIN)]);
    match words.chars().nth(LONGEST) {
        None => looked_at.into_owned(),
        Some(_) => format!("{}… ({} bytes)", &looked_at[..cut(&looked_at, LONGEST)], words.len()),
    }
}

fn names_a_secret(name: &str) -> bool {
    // `max_tokens` counts, `token_env` names: neither is a secret, but hiding one too many is harmless.
    secret_word(name, 0).is_some()
}

/// The next of [`SECRET_WORDS`], whatever its case: where it starts and ends. One pass over the text.
fn secret_word(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    (from..bytes.len()).find_map(|at| {
        if !matches!(bytes[at] | 0x20, b'p' | b's' | b't' | b'a' | b'c') {
            return None;
        }
        let starts =
            |word: &&&str| bytes[at..].get(..word.len()).is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()));
        SECRET_WORDS.iter().find(starts).map(|word| (at, at + word.len()))
    })
}

/// Parts of the names of fields, variables and options that hold secrets. `secret_word` knows their first letters.
const SECRET_WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "private_key",
    "private-key",
    "authorization",
    "cookie",
];

/// The text with whatever looks like a secret hidden: tokens of known shapes, `user:password@`,
/// `Authorization` values and private key blocks.
pub fn text(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    if text.contains("-----BEGIN ") {
        hide(&mut out, key_block);
    }
    if text.contains("://") {
        hide(&mut out, url_password);
    }
    if TOKEN_SHAPES.iter().any(|(prefix, _)| text.contains(prefix)) {
        hide(&mut out, known_token);
    }
    if secret_word(text, 0).is_some() {
        hide(&mut out, assigned);
    }
    if contains_ignoring_case(text, "bearer ") || contains_ignoring_case(text, "basic ") {
        hide(&mut out, authorization);
    }
    out
}

/// Prefix of a well-known kind of token, and how many characters must follow for it to be one.
const TOKEN_SHAPES: &[(&str, usize)] = &[
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 16),
    ("sk-ant-", 20),
    ("sk-proj-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("AKIA", 16),
    ("tk_", 26),
    ("dckr_pat_", 20),
    ("nxk_", 32),
];

/// The value in `PGPASSWORD=…`, `--token=…`, `--password …` and `"secret": "…"`.
fn assigned(text: &str, from: usize) -> Option<(usize, usize)> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut at = from;
    loop {
        let (word, after) = secret_word(text, at)?;
        let name = text[..word].trim_end_matches(part_of_name).len();
        let end = text.len() - text[after..].trim_start_matches(part_of_name).len();
        at = end;
        let rest = &text[end..];
        let value =
            match rest.strip_prefix('=').or_else(|| rest.strip_prefix("\":")).or_else(|| rest.strip_prefix("':")) {
                Some(value) => value.trim_start(),
                None if text[name..].starts_with("--") && rest.starts_with(' ') => rest.trim_start(),
                None => continue,
            };
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let start = text.len() - value.len() + quote.map_or(0, char::len_utf8);
        let ends = |c: char| match quote {
            Some(quote) => c == quote,
            None => c.is_whitespace() || matches!(c, '"' | '\'' | '&' | ';' | ',' | ')'),
        };
        let stop = text[start..].find(ends).map_or(text.len(), |length| start + length);
        let is_option = rest.starts_with(' ') && text[start..].starts_with('-');
        if stop > start && !is_option && text[start..stop] != *HIDDEN {
            return Some((start, stop));
        }
    }
}

/// Finds the next secret at or after `from`: where it starts and ends.
type Finder = fn(&str, usize) -> Option<(usize, usize)>;

fn hide(text: &mut Cow<'_, str>, find: Finder) {
    let mut from = 0;
    while let Some((start, end)) = find(text, from) {
        text.to_mut().replace_range(start..end, HIDDEN);
        from = start + HIDDEN.len();
    }
}

fn key_block(text: &str, from: usize) -> Option<(usize, usize)> {
    let start = from + text[from..].find("-----BEGIN ")?;
    let label_end = start + 11 + text[start + 11..].find("-----")?;
    if !text[start..label_end].contains("PRIVATE KEY") {
        return key_block(text, label_end);
    }
    let body = label_end + 5;
    let end = text[body..].find("-----END ").map_or(text.len(), |at| {
        let tail = body + at + 9;
        text[tail..].find("-----").map_or(text.len(), |close| tail + close + 5)
    });
    Some((start, end))
}

fn url_password(text: &str, from: usize) -> Option<(usize, usize)> {
    let scheme = from + text[from..].find("://")?;
    let start = scheme + 3;
    let authority =
        text[start..].find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>'));
    let end = authority.map_or(text.len(), |at| start + at);
    match text[start..end].rfind('@') {
        Some(at) if text[start..start + at] != *HIDDEN && text[start..start + at].contains(':') => {
            Some((start, start + at))
        }
        _ => url_password(text, start),
    }
}

fn known_token(text: &str, from: usize) -> Option<(usize, usize)> {
    let body = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    TOKEN_SHAPES
        .iter()
        .filter_map(|(prefix, least)| {
            let mut at = from;
            loop {
                let start = at + text[at..].find(prefix)?;
                let length = text[start..].find(|c| !body(c)).unwrap_or(text.len() - start);
                if length >= prefix.len() + least {
                    return Some((start, start + length));
                }
                at = start + prefix.len();
            }
        })
        .min()
}

fn authorization(text: &str, from: usize) -> Option<(usize, usize)> {
    let rest = text.as_bytes().get(from..)?;
    let scheme = |word: &[u8]| {
        rest.windows(word.len()).position(|w| w.eq_ignore_ascii_case(word)).map(|at| from + at + word.len())
    };
    let start = [scheme(b"bearer "), scheme(b"basic ")].into_iter().flatten().min()?;
    let token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '/' | '=');
    let length = text[start..].find(|c| !token(c)).unwrap_or(text.len() - start);
    if length < 16 { authorization(text, start) } else { Some((start, start + length)) }
}

fn contains_ignoring_case(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn secrets_are_hidden_by_shape() {
        check("git clone https://me:hunter2@host/x", "git clone https://[redacted]@host/x");
        check("https://host/a@b:c", "https://host/a@b:c");
        check("Authorization: Bearer abcdefghijklmnop1234", "Authorization: Bearer [redacted]");
        check("bearer of news", "bearer of news");
        check("mysql --password=hunter2 -e 1", "mysql --password=[redacted] -e 1");
        check("mysql --password hunter2 -e 1", "mysql --password [redacted] -e 1");
        check("PGPASSWORD='correct horse' psql", "PGPASSWORD='[redacted]' psql");
        check("x?api_key=abc&y=1", "x?api_key=[redacted]&y=1");
        check(r#"{"client_secret": "abc"}"#, r#"{"client_secret": "[redacted]"}"#);
        check("a token ring, token=", "a token ring, token=");
        check("reading /etc/passwd: permission denied", "reading /etc/passwd: permission denied");
        check("--token --verbose", "--token --verbose");
        check(&format!("x ghp_{} y", "a".repeat(36)), "x [redacted] y");
        check("sk-ant-short", "sk-ant-short");
        check("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY----- tail", "[redacted] tail");
        check(
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        );

        #[track_caller]
        fn check(given: &str, expected: &str) {
            assert_eq!(text(given), expected);
        }
    }

    #[test]
    fn secrets_are_hidden_by_name_and_by_schema() {
        let given = json!({ "user": "me", "password": "x", "pin": "1234", "nested": { "apiKey": "y", "n": 1 } });
        let kept = arguments(given.as_object().unwrap(), &["pin".to_owned()]);
        assert_eq!(
            Value::Object(kept),
            json!({ "user": "me", "password": HIDDEN, "pin": HIDDEN, "nested": { "apiKey": HIDDEN, "n": 1 } })
        );
    }

    #[test]
    fn long_strings_are_cut_and_a_secret_at_the_cut_is_not_spared() {
        let long = format!("{}https://me:hunter2hunter2@host {}", "x".repeat(LONGEST - 20), "y".repeat(5_000));
        let kept = kept(&long);
        assert!(kept.chars().count() < LONGEST + 30);
        assert!(!kept.contains("hunter2"), "{}", &kept[LONGEST - 40..]);
        assert!(kept.ends_with(&format!("({} bytes)", long.len())));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_and_a_password_in_a_url_never_survives(before in "[ -~äö]{0,40}", password in "[a-zA-Z0-9]{8,20}", after in ".{0,40}") {
            let given = format!("{before} http://user:{password}@host/ {after}");
            let shown = text(&given);
            let marked = format!("user:{}@", password);
            prop_assert!(!shown.contains(&marked));
        }

        #[test]
        fn redaction_never_panics(any in "\\PC*") {
            let _ = text(&any);
        }
    }
}
