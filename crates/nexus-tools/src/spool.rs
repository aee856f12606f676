//! Output that did not fit its reply, kept in memory for a while so that `read_output` can read on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexus_core::call::CallCx;
use nexus_core::principal::PrincipalId;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::clip;

/// Bytes, of all principals together.
const MOST: usize = 64 << 20;
/// Bytes of one principal: both streams of one command at their longest.
const MOST_EACH: usize = 16 << 20;
/// Bytes of one text. A little under half of a principal's share, so that two fit.
pub const LONGEST: usize = (8 << 20) - 4096;
/// Texts, of all principals together: looking one up is a walk.
const MOST_TEXTS: usize = 1_000;
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// Where to read on: a text that cannot be guessed, and a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Cursor {
    text: Uuid,
    at: usize,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("not a cursor; take it from a reply of run_command or read_output as it stands there")]
pub struct BadCursor;

impl TryFrom<String> for Cursor {
    type Error = BadCursor;

    fn try_from(cursor: String) -> Result<Self, BadCursor> {
        let (text, at) = cursor.trim().split_once('-').ok_or(BadCursor)?;
        Ok(Self { text: Uuid::try_parse(text).map_err(|_| BadCursor)?, at: at.parse().map_err(|_| BadCursor)? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.text.simple(), self.at)
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

/// Who may read a text: the session that made it, and there only the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    principal: PrincipalId,
    session: Uuid,
}

impl Owner {
    pub fn of(cx: &CallCx) -> Self {
        Self { principal: cx.principal.id.clone(), session: cx.session.id }
    }
}

/// A piece of a kept text.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub text: String,
    pub next: Option<Cursor>,
    /// Characters after this piece.
    pub left: usize,
}

/// The kept texts, oldest first.
#[derive(Default)]
pub struct Spool {
    texts: Mutex<VecDeque<Text>>,
}

struct Text {
    id: Uuid,
    owner: Owner,
    words: Arc<str>,
    until: Instant,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("texts", &self.texts.lock().len()).finish()
    }
}

impl Spool {
    /// Keeps a text for an hour; older ones make room. One that is too long loses its middle.
    pub fn keep(&self, owner: Owner, words: &str, now: Instant) -> Cursor {
        let words: Arc<str> = fitting(words).into();
        let id = Uuid::new_v4();
        let mut texts = self.texts.lock();
        texts.retain(|text| text.until > now);
        let room = |texts: &VecDeque<Text>, mine: bool| -> usize {
            let counts = |text: &&Text| !mine || text.owner.principal == owner.principal;
            texts.iter().filter(counts).map(|text| text.words.len()).sum::<usize>() + words.len()
        };
        while room(&texts, true) > MOST_EACH {
            let Some(oldest) = texts.iter().position(|text| text.owner.principal == owner.principal) else { break };
            texts.remove(oldest);
        }
        while !texts.is_empty() && (room(&texts, false) > MOST || texts.len() >= MOST_TEXTS) {
            texts.pop_front();
        }
        texts.push_back(Text { id, owner, words, until: now + KEPT_FOR });
        Cursor { text: id, at: 0 }
    }

    /// At most `most` characters from the cursor on. None: not there, not any more, or not for this owner.
    pub fn read(&self, owner: &Owner, cursor: Cursor, most: usize, now: Instant) -> Option<Page> {
        let words = {
            let mut texts = self.texts.lock();
            texts.retain(|text| text.until > now);
            texts.iter().find(|text| text.id == cursor.text && text.owner == *owner)?.words.clone()
        };
        let (piece, rest) = clip::split(words.get(cursor.at..)?, most.max(1));
        let next = (!rest.is_empty()).then_some(Cursor { text: cursor.text, at: cursor.at + piece.len() });
        Some(Page { text: piece.to_owned(), next, left: rest.chars().count() })
    }
}

/// The text, or as much of its ends as may be kept.
fn fitting(words: &str) -> String {
    if words.len() <= LONGEST {
        return words.to_owned();
    }
    // Room for the note; a character at a cut may be given up.
    let half = (LONGEST - 200) / 2;
    let head = words.floor_char_boundary(half);
    let tail = words.ceil_char_boundary(words.len() - half);
    format!("{}\n… {} bytes were not kept …\n{}", &words[..head], tail - head, &words[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner { principal: PrincipalId::new(name), session: Uuid::from_u128(1) }
    }

    #[test]
    fn a_chain_of_reads_gives_the_whole_text() {
        let spool = Spool::default();
        let now = Instant::now();
        let words = "äb\n".repeat(100);
        let mut next = Some(spool.keep(owner("a"), &words, now));
        let mut all = String::new();
        while let Some(cursor) = next {
            let page = spool.read(&owner("a"), cursor, 7, now).unwrap();
            all += &page.text;
            assert_eq!(page.left, 300 - all.chars().count());
            next = page.next;
        }
        assert_eq!(all, words);
    }

    #[test]
    fn a_cursor_is_its_sessions_and_ends_after_an_hour() {
        let spool = Spool::default();
        let now = Instant::now();
        let cursor = spool.keep(owner("a"), "text", now);
        assert!(spool.read(&owner("a"), cursor, 9, now).is_some());
        assert!(spool.read(&owner("b"), cursor, 9, now).is_none());
        let other_session = Owner { session: Uuid::from_u128(2), ..owner("a") };
        assert!(spool.read(&other_session, cursor, 9, now).is_none());
        assert!(spool.read(&owner("a"), Cursor { at: 99, ..cursor }, 9, now).is_none());
        assert!(spool.read(&owner("a"), cursor, 9, now + KEPT_FOR).is_none());
    }

    #[test]
    fn a_place_inside_a_character_is_no_place() {
        let spool = Spool::default();
        let now = Instant::now();
        let cursor = spool.keep(owner("a"), "ä", now);
        assert!(spool.read(&owner("a"), Cursor { at: 1, ..cursor }, 9, now).is_none());
    }

    #[test]
    fn a_principal_pushes_out_its_own_oldest_first() {
        let spool = Spool::default();
        let now = Instant::now();
        let others = spool.keep(owner("b"), "small", now);
        let big = "x".repeat(LONGEST);
        let first = spool.keep(owner("a"), &big, now);
        let second = spool.keep(owner("a"), &big, now);
        assert!(spool.read(&owner("a"), first, 1, now).is_some());
        let third = spool.keep(owner("a"), &big, now);
        assert!(spool.read(&owner("a"), first, 1, now).is_none());
        assert!(spool.read(&owner("a"), second, 1, now).is_some());
        assert!(spool.read(&owner("a"), third, 1, now).is_some());
        assert!(spool.read(&owner("b"), others, 1, now).is_some());
    }

    #[test]
    fn the_whole_is_bounded_in_bytes_and_in_texts() {
        let spool = Spool::default();
        let now = Instant::now();
        let big = "x".repeat(2 * LONGEST);
        for n in 0..12 {
            spool.keep(owner(&n.to_string()), &big, now);
        }
        let bytes = |spool: &Spool| spool.texts.lock().iter().map(|text| text.words.len()).sum::<usize>();
        assert!(bytes(&spool) <= MOST);
        for _ in 0..MOST_TEXTS + 10 {
            spool.keep(owner("a"), "x", now);
        }
        assert!(spool.texts.lock().len() <= MOST_TEXTS);
    }

    #[test]
    fn a_cursor_survives_its_own_spelling_and_nothing_else_does() {
        let cursor = Cursor { text: Uuid::new_v4(), at: 42 };
        assert_eq!(Cursor::try_from(cursor.to_string()), Ok(cursor));
        for bad in ["", "x", "1-2", "-", &format!("{}-", cursor.text.simple()), &format!("{}--1", cursor.text.simple())]
        {
            assert_eq!(Cursor::try_from(bad.to_owned()), Err(BadCursor), "{bad}");
        }
    }
}
