//! Output that did not fit its reply, kept in memory for a while so that `read_output` can read on.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
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
    /// Keeps a text for an hour; older ones make room, first of whoever keeps most. One that is too long loses its
    /// middle.
    pub fn keep(&self, owner: Owner, words: &str, now: Instant) -> Cursor {
        let text = Text { id: Uuid::new_v4(), owner, words: fitting(words).into(), until: now + KEPT_FOR };
        let cursor = Cursor { text: text.id, at: 0 };
        let mut texts = self.texts.lock();
        texts.retain(|text| text.until > now);
        texts.push_back(text);
        while let Some(excess) = excess(&texts) {
            texts.remove(excess);
        }
        cursor
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

/// Which text has to go, if any: the oldest of the principal who keeps most of what there is too much of. So nobody's
/// flood pushes out what others keep, who keep less.
fn excess(texts: &VecDeque<Text>) -> Option<usize> {
    let mut shares: HashMap<&PrincipalId, Share> = HashMap::new();
    for (at, text) in texts.iter().enumerate() {
        let share = shares.entry(&text.owner.principal).or_insert(Share { oldest: at, bytes: 0, texts: 0 });
        share.bytes += text.words.len();
        share.texts += 1;
    }
    // Of two who keep the same, the one whose text is older.
    let by_bytes = shares.values().max_by_key(|share| (share.bytes, Reverse(share.oldest)))?;
    let by_texts = shares.values().max_by_key(|share| (share.texts, Reverse(share.oldest)))?;
    let bytes: usize = shares.values().map(|share| share.bytes).sum();
    if by_bytes.bytes > MOST_EACH || bytes > MOST {
        return Some(by_bytes.oldest);
    }
    (texts.len() > MOST_TEXTS).then_some(by_texts.oldest)
}

/// What one principal keeps.
struct Share {
    /// Its place among all texts.
    oldest: usize,
    bytes: usize,
    texts: usize,
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
    fn a_flood_of_one_principal_pushes_out_nothing_of_the_others() {
        let spool = Spool::default();
        let now = Instant::now();
        let kept: Vec<_> = ["b", "c"].map(|name| (owner(name), spool.keep(owner(name), "small", now))).into();
        for _ in 0..2 * MOST_TEXTS {
            spool.keep(owner("a"), "x", now);
        }
        // Together with the big ones of others there is no room left, either.
        let big = "x".repeat(LONGEST);
        for n in 0..20 {
            spool.keep(owner(&(n % 5).to_string()), &big, now);
        }
        for (owner, cursor) in kept {
            assert_eq!(spool.read(&owner, cursor, 9, now).unwrap().text, "small");
        }
    }

    #[test]
    fn the_newest_text_is_always_kept() {
        let spool = Spool::default();
        let now = Instant::now();
        let big = "x".repeat(LONGEST);
        for n in 0..40 {
            let owner = owner(&(n % 7).to_string());
            let cursor = spool.keep(owner.clone(), &big, now);
            assert!(spool.read(&owner, cursor, 1, now).is_some(), "{n}");
        }
    }

    #[test]
    fn the_whole_is_bounded_in_bytes_and_in_texts() {
        let spool = Spool::default();
        let now = Instant::now();
        let bytes = |spool: &Spool, whose: Option<Owner>| {
            let texts = spool.texts.lock();
            let counts = |text: &&Text| whose.as_ref().is_none_or(|owner| text.owner == *owner);
            texts.iter().filter(counts).map(|text| text.words.len()).sum::<usize>()
        };
        // Three bytes to a character.
        let big = "…".repeat(LONGEST / 3);
        for n in 0..24 {
            let owner = owner(&(n / 2).to_string());
            spool.keep(owner.clone(), &big, now);
            spool.keep(owner.clone(), &big, now);
            assert!(bytes(&spool, Some(owner)) <= MOST_EACH);
            assert!(bytes(&spool, None) <= MOST);
        }
        assert!(bytes(&spool, None) > MOST - LONGEST);
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
