//! How a question is called: by people, and by the answer that a client brings back.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name of a question, for people: eight characters that are not taken for each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code(Box<str>);

/// Without 0 and O, 1 and I.
const LETTERS: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

impl Code {
    pub(super) fn random() -> Self {
        let random = Uuid::new_v4();
        // The bytes of a UUID that are random through and through.
        let bytes = random.as_bytes()[..6].iter().chain(&random.as_bytes()[10..12]);
        Self(bytes.map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect::<String>().into())
    }

    /// As a person types it: in any case, with or without dashes.
    pub fn typed(text: &str) -> Self {
        let kept = text.chars().filter(char::is_ascii_alphanumeric).take(16);
        Self(kept.map(|c| c.to_ascii_uppercase()).collect::<String>().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What goes out with a question and must come back with its answer. The front door seals it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) nonce: Uuid,
    /// On the monotonic clock: a ticket does not outlive the process either.
    pub(super) ends_ms: i64,
    /// A digest of the key, the session, the tool and its arguments.
    pub(super) bound: [u8; 32],
}

impl Ticket {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (nonce, ends, bound) = (parts.next()?, parts.next()?, parts.next()?);
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(bound.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self { nonce: nonce.parse().ok()?, ends_ms: ends.parse().ok()?, bound: bytes })
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.nonce.simple(), self.ends_ms)?;
        self.bound.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
