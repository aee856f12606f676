//! Which names announce a secret, and which only talk about one.

/// How far the secret reaches that a name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Word,
    /// After a colon, all that is left of the line: `Authorization: Digest a, b`, `Cookie: a=b; c=d`.
    Line,
}

/// Parts of the names of fields, variables and options that hold secrets. `secret_word` knows how they begin, and
/// `clue` has four letters of each.
pub(super) const SECRET_WORDS: &[(&str, Reach)] = &[
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

/// `passwordless`, `tokenizer`, `tokenise`, `secretary`: other words.
const OTHER_WORDS: &[&str] = &["less", "iz", "is", "ary", "aries"];

/// The last part of a name that says where a secret is, or how it is made, and not what it is: `token_env`,
/// `secretName`, `PASSWORD_FILE`, `--password-stdin`.
const ABOUT: &[&str] = &[
    "at",
    "backend",
    "budget",
    "count",
    "dir",
    "disabled",
    "domain",
    "enabled",
    "endpoint",
    "env",
    "expiration",
    "expired",
    "expires",
    "expiry",
    "field",
    "file",
    "files",
    "format",
    "header",
    "hint",
    "in",
    "kind",
    "label",
    "len",
    "length",
    "lifetime",
    "limit",
    "limits",
    "manager",
    "mode",
    "mount",
    "name",
    "names",
    "path",
    "paths",
    "policy",
    "prompt",
    "provider",
    "rate",
    "ref",
    "refs",
    "required",
    "size",
    "stdin",
    "timeout",
    "ttl",
    "type",
    "uri",
    "url",
    "usage",
    "var",
    "version",
];

/// Whether the value under this name is a secret.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let bytes = name.as_bytes();
    (0..bytes.len()).any(|at| secret_word(&bytes[at..]).is_some()) && !is_about(name)
}

/// Whether a number under this name counts something: `max_tokens`.
pub(super) fn counts(name: &str) -> bool {
    name.as_bytes().windows(6).any(|part| part.eq_ignore_ascii_case(b"tokens"))
}

/// The one of [`SECRET_WORDS`] these bytes begin with, whatever its case.
pub(super) fn secret_word(bytes: &[u8]) -> Option<Reach> {
    let [first, second, ..] = bytes else { return None };
    if !matches!((first | 0x20, second | 0x20), (b'p', b'a' | b'r') | (b's', b'e') | (b't' | b'c', b'o'))
        && !matches!((first | 0x20, second | 0x20), (b'a', b'p' | b'c' | b'u') | (b'm', b'y'))
    {
        return None;
    }
    let (word, reach) = SECRET_WORDS.iter().find(|(word, _)| begins(bytes, word))?;
    let rest = &bytes[word.len()..];
    (!OTHER_WORDS.iter().any(|other| begins(rest, other))).then_some(*reach)
}

/// Whether the last part of the name, after `_`, `-` or a hump, is one of [`ABOUT`].
pub(super) fn is_about(name: &str) -> bool {
    let bytes = name.as_bytes();
    let begins_part = |at: usize| {
        matches!(bytes[at - 1], b'_' | b'-') || (bytes[at - 1].is_ascii_lowercase() && bytes[at].is_ascii_uppercase())
    };
    let last = (1..bytes.len()).rev().take(10).find(|at| begins_part(*at));
    last.is_some_and(|at| ABOUT.iter().any(|part| part.as_bytes().eq_ignore_ascii_case(&bytes[at..])))
}

/// Whether the bytes begin with the word, whatever its case.
pub(super) fn begins(bytes: &[u8], word: &str) -> bool {
    bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}
