//! Where the next byte of a kind stands. All the looking ahead together is one pass over the text.

use super::value::is_mark;

#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Blank,
    At,
    DoubleQuote,
    SingleQuote,
    Backtick,
    Greater,
    /// The end of a user's name in `user:password`.
    LoginEnd,
}

/// What was found last, by kind. It stays true until the scan has passed it, because scans only go forward.
#[derive(Debug, Default)]
pub(super) struct Ahead([Option<usize>; 7]);

impl Ahead {
    /// Where the next one stands at or after `from`, or the length. `from` must never go back.
    pub(super) fn next(&mut self, wanted: Wanted, bytes: &[u8], from: usize) -> usize {
        let known = &mut self.0[wanted as usize];
        match *known {
            Some(at) if at >= from => at,
            _ => {
                let rest = bytes.get(from..).unwrap_or_default();
                let at = rest.iter().position(|b| wanted.is(*b)).map_or(bytes.len(), |length| from + length);
                *known = Some(at);
                at
            }
        }
    }
}

impl Wanted {
    fn is(self, byte: u8) -> bool {
        match self {
            Self::Blank => byte.is_ascii_whitespace(),
            Self::At => byte == b'@',
            Self::DoubleQuote => byte == b'"',
            Self::SingleQuote => byte == b'\'',
            Self::Backtick => byte == b'`',
            Self::Greater => byte == b'>',
            Self::LoginEnd => b":&;),".contains(&byte) || byte.is_ascii_whitespace() || is_mark(byte),
        }
    }
}
