//! Keeps secrets out of everything that is stored, logged, shipped or shown.

use std::borrow::Cow;
use std::fmt;

mod ahead;
mod assigned;
mod kept;
mod scan;
mod schema;
mod shapes;
#[cfg(test)]
mod tests;
mod value;

pub use kept::arguments;
pub(crate) use schema::secret_fields;

use scan::{End, Scan};

/// What stands where a secret was.
pub const HIDDEN: &str = "[redacted]";

/// The text with whatever looks like a secret hidden: tokens of known shapes, private key blocks, passwords in
/// URLs and on command lines, and the values of headers, variables, options and fields with telling names.
///
/// One pass, linear in the text whatever it holds; what is already hidden stays as it is.
pub fn text(text: &str) -> Cow<'_, str> {
    Scan::new(text, End::Whole).run()
}

/// The same for a text whose end was cut off, perhaps in the middle of a secret.
pub fn beginning(text: &str) -> Cow<'_, str> {
    Scan::new(text, End::Cut).run()
}

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

/// `max_tokens` counts, `token_env` names: neither is a secret, but hiding one too many is harmless.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let bytes = name.as_bytes();
    (0..bytes.len()).any(|at| secret_word(&bytes[at..]).is_some())
}

/// How far the secret reaches that a name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Word,
    /// After a colon, all that is left of the line: `Authorization: Digest a, b`, `Cookie: a=b; c=d`.
    Line,
}

/// Parts of the names of fields, variables and options that hold secrets. `secret_word` knows how
/// they begin.
const SECRET_WORDS: &[(&str, Reach)] = &[
    ("password", Reach::Word),
    ("passwd", Reach::Word),
    ("passcode", Reach::Word),
    ("passphrase", Reach::Line),
    ("secret", Reach::Word),
    ("token", Reach::Word),
    ("apikey", Reach::Word),
    ("api_key", Reach::Word),
    ("api-key", Reach::Word),
    ("access_key", Reach::Word),
    ("access-key", Reach::Word),
    ("accesskey", Reach::Word),
    ("private_key", Reach::Word),
    ("private-key", Reach::Word),
    ("privatekey", Reach::Word),
    ("authorization", Reach::Line),
    ("cookie", Reach::Line),
    ("mysql_pwd", Reach::Word),
];

/// The one of [`SECRET_WORDS`] these bytes begin with, whatever its case.
fn secret_word(bytes: &[u8]) -> Option<Reach> {
    let [first, second, ..] = bytes else { return None };
    if !matches!((first | 0x20, second | 0x20), (b'p', b'a' | b'r') | (b's', b'e') | (b't' | b'c', b'o'))
        && !matches!((first | 0x20, second | 0x20), (b'a', b'p' | b'c' | b'u') | (b'm', b'y'))
    {
        return None;
    }
    SECRET_WORDS.iter().find(|(word, _)| begins(bytes, word)).map(|(_, reach)| *reach)
}

/// Whether the bytes begin with the word, whatever its case.
fn begins(bytes: &[u8], word: &str) -> bool {
    bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}
