//! Which names announce a secret, and which only talk about one.

/// How far the secret reaches that a name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Word,
    /// A word, but in a sentence it is no name: before a colon it starts the line, or is quoted.
    Shy,
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
    ("preshared_key", Reach::Word),
    ("preshared-key", Reach::Word),
    ("presharedkey", Reach::Word),
    ("encryption_key", Reach::Word),
    ("encryption-key", Reach::Word),
    ("encryptionkey", Reach::Word),
    ("signing_key", Reach::Word),
    ("signing-key", Reach::Word),
    ("private_key", Reach::Word),
    ("private-key", Reach::Word),
    ("privatekey", Reach::Word),
    ("authorization", Reach::Line),
    ("cookie", Reach::Line),
    ("mysql_pwd", Reach::Word),
    ("credential", Reach::Shy),
];

/// The same where they are the last part of a name: `DB_PASS`, `smtp-pass`, `wifiPsk`; not `compass`.
const LAST_WORDS: &[(&str, Reach)] = &[("pass", Reach::Shy), ("pwd", Reach::Word), ("psk", Reach::Word)];

/// Where the shell is.
const DIRECTORIES: &[&str] = &["PWD", "OLDPWD"];

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
    let is_secret = last_word(name).is_some() || (0..bytes.len()).any(|at| secret_word(&bytes[at..]).is_some());
    is_secret && !is_about(name)
}

/// The one of [`LAST_WORDS`] the name ends with, as a part of its own.
pub(super) fn last_word(name: &str) -> Option<Reach> {
    if !matches!(name.as_bytes().last()? | 0x20, b's' | b'd' | b'k') {
        return None;
    }
    let (bytes, (word, reach)) = (name.as_bytes(), LAST_WORDS.iter().find(|(word, _)| ends(name.as_bytes(), word))?);
    let at = bytes.len() - word.len();
    let is_hump = at > 0 && bytes[at - 1].is_ascii_lowercase() && bytes[at].is_ascii_uppercase();
    let is_part = at == 0 || is_hump || matches!(bytes[at - 1], b'_' | b'-');
    (is_part && !DIRECTORIES.contains(&name)).then_some(*reach)
}

fn ends(bytes: &[u8], word: &str) -> bool {
    bytes.len().checked_sub(word.len()).is_some_and(|at| bytes[at..].eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a number under this name counts something: `max_tokens`, `pass`.
pub(super) fn counts(name: &str) -> bool {
    if name.eq_ignore_ascii_case("pass") {
        return true;
    }
    name.as_bytes().windows(6).any(|part| part.eq_ignore_ascii_case(b"tokens"))
}

/// The one of [`SECRET_WORDS`] these bytes begin with, whatever its case.
pub(super) fn secret_word(bytes: &[u8]) -> Option<Reach> {
    let [first, second, ..] = bytes else { return None };
    if !matches!((first | 0x20, second | 0x20), (b'p', b'a' | b'r') | (b's', b'e' | b'i') | (b't' | b'c', b'o'))
        && !matches!(
            (first | 0x20, second | 0x20),
            (b'a', b'p' | b'c' | b'u') | (b'm', b'y') | (b'e', b'n') | (b'c', b'r')
        )
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
