//! Whose answer a message was that is too large to be read: found in its first and last bytes.

use std::str;

/// Bytes at the beginning that are looked at.
const HEAD: usize = 4 * 1024;

/// Who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Request(u64),
    /// It is a question or a notification: nobody.
    Nobodys,
    Unknown,
}

impl Whose {
    pub(super) fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Whose::Unknown => other(),
            known => known,
        }
    }
}

pub(super) fn whose(beginning: &[u8], end: &[u8]) -> Whose {
    by_its_beginning(beginning).or_else(|| by_its_end(end))
}

/// Walks over the fields of the outermost object, as far as they are small. An id alone does not make an answer: a
/// server numbers its own questions as it likes.
pub(super) fn by_its_beginning(message: &[u8]) -> Whose {
    let head = &message[..message.len().min(HEAD)];
    let mut rest = head.trim_ascii_start().strip_prefix(b"{").unwrap_or_default();
    let mut whose = Whose::Unknown;
    while let Some((key, value)) = string(rest).and_then(|(key, rest)| Some((key, colon(rest)?))) {
        let after = match key {
            b"method" | b"params" => return Whose::Nobodys,
            b"id" => {
                let Some(id) = number(value) else { return Whose::Unknown };
                whose = Whose::Request(id);
                &value[value.iter().take_while(|byte| byte.is_ascii_digit()).count()..]
            }
            _ => match string(value) {
                Some((_, after)) => after,
                None => break,
            },
        };
        let Some(next) = after.trim_ascii_start().strip_prefix(b",") else { break };
        rest = next;
    }
    whose
}

/// The last field may be the id: `…,"jsonrpc":"2.0","id":7}`.
pub(super) fn by_its_end(message: &[u8]) -> Whose {
    let tail = &message[message.len().saturating_sub(HEAD)..];
    let end = tail.trim_ascii_end().strip_suffix(b"}").map(<[u8]>::trim_ascii_end).unwrap_or_default();
    let version: &[u8] = br#","jsonrpc":"2.0""#;
    let end = end.strip_suffix(version).unwrap_or(end);
    let digits = end.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = end.split_at(end.len() - digits);
    match before.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end) {
        Some(key) if key.ends_with(br#""id""#) => number(digits).map_or(Whose::Unknown, Whose::Request),
        _ => Whose::Unknown,
    }
}

/// A string at the beginning, still escaped, and what follows it.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn colon(text: &[u8]) -> Option<&[u8]> {
    text.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_found_at_either_end() {
        use Whose::{Nobodys, Request, Unknown};

        check(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9"#, Request(7));
        check(r#" { "id" : 12 , "result" : {"#, Request(12));
        check(r#"{"result":{"id":1},"jsonrpc":"2.0","id":33}"#, Request(33));
        check(r#"{"result":{"id":1},"id":33,"jsonrpc":"2.0"}"#, Request(33));
        check(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":3}}"#, Nobodys);
        check(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"#, Nobodys);
        check(r#"{"id":7,"jsonrpc":"2.0","params":{"message":"#, Nobodys);
        check(r#"{"id":7,"jsonrpc":"2.0","error":{"#, Request(7));
        check(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, Unknown);
        check(r#"{"jsonrpc":"2.0","result":{"id":7}}"#, Unknown);
        check(r#"{"a\"id":"x","id":4"#, Request(4));
        check(r#"[{"id":4}]"#, Unknown);
        check("", Unknown);

        #[track_caller]
        fn check(message: &str, expected: Whose) {
            assert_eq!(whose(message.as_bytes(), message.as_bytes()), expected, "{message}");
        }
    }
}
