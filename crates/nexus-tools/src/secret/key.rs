//! Private keys in text: where one begins, where it ends, and whether one is open at some place of a file.

/// Bytes before a mark that tell whether it stands alone on its line.
const BEFORE: usize = 256;
/// Bytes from a mark on that tell what it is: a label, and the first line of a key.
const AFTER: usize = 300;

/// What stands at a key's first or last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Begin(Format),
    End(Format),
    /// The key is on the same line.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Pem,
    Putty,
}

/// A key, or at least its beginning, is in it.
pub(super) fn holds_private_key(content: &[u8]) -> bool {
    (0..content.len()).any(|at| matches!(mark_at(content, at), Some(Mark::Begin(_) | Mark::Whole)))
}

/// Follows a file from its start, in pieces of any size, and knows whether a key has begun and not ended.
#[derive(Debug, Default)]
pub struct OpenKey {
    /// The end of what was taken in: what is not judged yet, and before that what its judgement needs.
    held: Vec<u8>,
    judged: usize,
    open: Option<Format>,
}

impl OpenKey {
    pub fn take_in(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        self.judge_to(self.held.len().saturating_sub(AFTER));
        let spent = self.judged.saturating_sub(BEFORE);
        self.held.drain(..spent);
        self.judged -= spent;
    }

    /// Whether what follows, `next`, is the inside of a key that began in what was taken in.
    pub fn is_open_before(mut self, next: &[u8]) -> bool {
        let end = self.held.len();
        self.held.extend_from_slice(&next[..next.len().min(AFTER)]);
        self.judge_to(end);
        self.open.is_some()
    }

    fn judge_to(&mut self, end: usize) {
        for at in self.judged..end {
            match mark_at(&self.held, at) {
                Some(Mark::Begin(format)) => self.open = Some(format),
                Some(Mark::End(format)) if self.open == Some(format) => self.open = None,
                Some(Mark::End(_) | Mark::Whole) | None => {}
            }
        }
        self.judged = self.judged.max(end);
    }
}

/// A key's first line alone on its line, or one inside a string with the key after it. A text that only talks of
/// such lines has none.
fn mark_at(text: &[u8], at: usize) -> Option<Mark> {
    let (before, rest) = text.split_at(at);
    // Nearly every byte is none of these.
    if !matches!(rest.first(), Some(b'-' | b'P' | b'A')) {
        return None;
    }
    if let Some(label) = rest.strip_prefix(b"-----BEGIN ") {
        let after = after_label(label)?;
        return (nothing_but_marks(before) || is_key_material(after)).then_some(Mark::Begin(Format::Pem));
    }
    if let Some(label) = rest.strip_prefix(b"-----END ") {
        return after_label(label).map(|_| Mark::End(Format::Pem));
    }
    let mark = match rest {
        rest if rest.starts_with(b"PuTTY-User-Key-File-") => Mark::Begin(Format::Putty),
        rest if rest.starts_with(b"Private-MAC:") || rest.starts_with(b"Private-Hash:") => Mark::End(Format::Putty),
        rest if rest.starts_with(b"AGE-SECRET-KEY-1") => Mark::Whole,
        _ => return None,
    };
    nothing_but_marks(before).then_some(mark)
}

/// What follows a private key's label and its dashes.
fn after_label(text: &[u8]) -> Option<&[u8]> {
    let end = text.windows(5).take(60).position(|dashes| dashes == b"-----")?;
    let (label, after) = text.split_at(end);
    (label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK")).then(|| &after[5..])
}

/// The line so far is empty, but for what quotes and lists are marked with.
fn nothing_but_marks(before: &[u8]) -> bool {
    let near = &before[before.len().saturating_sub(BEFORE)..];
    let line = near.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).trim_matches(['\u{feff}', ' ', '\t', '|', '>', '-']).is_empty()
}

fn is_key_material(after: &[u8]) -> bool {
    let after = String::from_utf8_lossy(&after[..after.len().min(200)]);
    let body = after.replacen("\\r", "", 1).replacen("\\n", "", 1);
    let body = body.trim_start();
    let in_base64 = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    body.starts_with("Proc-Type:") || body.chars().take_while(in_base64).take(32).count() == 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BODY: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n";

    #[test]
    fn a_private_key_is_known_by_its_content() {
        check("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", true);
        check("# mine\n  -----BEGIN RSA PRIVATE KEY-----\n", true);
        check("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n", true);
        check("key: |\n    -----BEGIN EC PRIVATE KEY-----\n", true);
        check("-----BEGIN PGP PRIVATE KEY BLOCK-----\n", true);
        check(&format!(r#"{{"private_key": "-----BEGIN PRIVATE KEY-----\n{BODY}"}}"#), true);
        check("KEY='-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", true);
        check("PuTTY-User-Key-File-2: ssh-rsa", true);
        check("key: |\n  PuTTY-User-Key-File-3: ssh-rsa", true);
        check("AGE-SECRET-KEY-1QQQ", true);
        check("-----BEGIN PUBLIC KEY-----\nabc", false);
        check("-----BEGIN CERTIFICATE-----\nabc", false);
        check("-----END PRIVATE KEY-----\n", false);
        check(r#"check("-----BEGIN OPENSSH PRIVATE KEY-----\nabc")"#, false);
        check("the header says -----BEGIN PRIVATE KEY----- and then", false);
        check("a file that starts with PuTTY-User-Key-File-2", false);
        check("-----BEGIN ", false);

        #[track_caller]
        fn check(content: &str, expected: bool) {
            assert_eq!(holds_private_key(content.as_bytes()), expected, "{content}");
        }
    }

    #[test]
    fn a_key_is_open_from_its_first_line_to_its_last() {
        check("-----BEGIN PRIVATE KEY-----\n", "abc\n", true);
        check("-----BEGIN PRIVATE KEY-----\nabc\n", "def\n", true);
        check("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n", "text\n", false);
        check("-----BEGIN PRIVATE KEY-----\nabc\n-----END CERTIFICATE-----\n", "def\n", true);
        check("-----BEGIN PRIVATE KEY-----\nabc\nPrivate-MAC: 1\n", "def\n", true);
        check("KEY = '-----BEGIN PRIVATE KEY-----\n", BODY, true);
        check("KEY = '-----BEGIN PRIVATE KEY-----\n", "is what it starts with\n", false);
        check("text\n", "-----BEGIN PRIVATE KEY-----\n", false);
        check("PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\n", "abc\n", true);
        check("PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\nabc\nPrivate-MAC: 1\n", "text\n", false);
        check("AGE-SECRET-KEY-1QQQ\n", "text\n", false);

        #[track_caller]
        fn check(before: &str, next: &str, expected: bool) {
            let mut key = OpenKey::default();
            key.take_in(before.as_bytes());
            assert_eq!(key.is_open_before(next.as_bytes()), expected, "{before}");
        }
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_file_is_cut_into_pieces(
            fillers in prop::collection::vec(0..900usize, 4),
            pieces in prop::collection::vec(1..700usize, 1..40),
            first in prop::sample::select(&["-----BEGIN PRIVATE KEY-----\n", "k='-----BEGIN RSA PRIVATE KEY-----\n"][..]),
            ends in any::<bool>(),
        ) {
            let filler = |n: usize| "filler\n".repeat(fillers[n] / 7);
            let last = if ends { "-----END PRIVATE KEY-----\n" } else { "" };
            let text = [&filler(0), first, BODY, &BODY.repeat(fillers[1] / 60), last, &filler(2)].concat();
            let (mut key, mut rest) = (OpenKey::default(), text.as_bytes());
            for size in pieces.iter().cycle() {
                let (piece, more) = rest.split_at(rest.len().min(*size));
                key.take_in(piece);
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(key.held.len() <= BEFORE + AFTER + 700);
            prop_assert_eq!(key.is_open_before(filler(3).as_bytes()), !ends);
        }
    }
}
