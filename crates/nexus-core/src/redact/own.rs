//! The hub's own secrets, known by their exact values: hidden wherever they stand, however they are written.
//!
//! The one thing in this program that is global. Whatever is shown, stored or logged passes here, from places that
//! have nothing else in common, and a secret that one of them did not know of would get out there.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use parking_lot::RwLock;

use super::HIDDEN;
use spelling::{Spelling, percent_decoded, spellings};

mod spelling;

/// Bytes. What is shorter may be a word that stands everywhere.
const SHORTEST: usize = 8;
/// Bytes of a secret's beginning, at the end of a text that was cut, for it to be one.
const SHORTEST_BEGINNING: usize = 4;

/// All that was learnt. `GENERATION` counts its changes, so that a thread that has seen the last one takes no lock.
static LEARNT: RwLock<Option<Arc<Own>>> = RwLock::new(None);
static GENERATION: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SEEN: RefCell<(u64, Option<Arc<Own>>)> = const { RefCell::new((0, None)) };
}

/// Hides these values from now on, in all threads and for as long as the program runs. Too short ones are left out:
/// see [`can_be_learnt`].
pub fn learn<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) {
    let mut learnt = LEARNT.write();
    let mut all = learnt.as_ref().map_or_else(Vec::new, |own| own.secrets.clone());
    let before = all.len();
    for secret in secrets {
        let secret = secret.as_ref();
        if can_be_learnt(secret) && !all.iter().any(|known| **known == *secret) {
            all.push(secret.into());
        }
    }
    if all.len() > before
        && let Some(own) = Own::new(all)
    {
        *learnt = Some(Arc::new(own));
        GENERATION.fetch_add(1, Ordering::Release);
    }
}

/// Whether a secret is long enough to be known by its value. A shorter one is hidden only where something announces it.
pub fn can_be_learnt(secret: &str) -> bool {
    secret.len() >= SHORTEST && !HIDDEN.contains(secret)
}

/// The text without the hub's own secrets. What other secrets look like is left as it is.
pub fn own_values(text: &str) -> Cow<'_, str> {
    with(|own| own.map_or(Cow::Borrowed(text), |own| own.hide(text)))
}

/// Lends what was learnt, if anything was.
pub(super) fn with<T>(look: impl FnOnce(Option<&Own>) -> T) -> T {
    let generation = GENERATION.load(Ordering::Acquire);
    if generation == 0 {
        return look(None);
    }
    let mut look = Some(look);
    let looked = SEEN.try_with(|seen| {
        if seen.borrow().0 != generation
            && let Ok(mut seen) = seen.try_borrow_mut()
        {
            *seen = (generation, LEARNT.read().clone());
        }
        look.take().map(|look| look(seen.borrow().1.as_deref()))
    });
    match (looked, look) {
        (Ok(Some(looked)), _) => looked,
        // The thread is ending and has nothing of its own any more.
        (_, Some(look)) => look(LEARNT.read().clone().as_deref()),
        (_, None) => unreachable!("it was looked, or it was not"),
    }
}

/// What was learnt, ready to be looked for.
pub(super) struct Own {
    secrets: Vec<Box<str>>,
    spellings: Vec<Spelling>,
    automaton: AhoCorasick,
    /// One has characters that are escaped in JSON: how often, nobody knows.
    pub(super) escaped: bool,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Own {
    fn new(secrets: Vec<Box<str>>) -> Option<Self> {
        // A password out of a URL may be written with `%`, and is used without.
        let decoded: Vec<_> = secrets.iter().filter_map(|secret| percent_decoded(secret)).collect();
        let all = secrets.iter().map(|secret| &**secret).chain(decoded.iter().map(String::as_str));
        let mut spellings: Vec<_> = all.filter(|secret| can_be_learnt(secret)).flat_map(spellings).collect();
        spellings.sort_by(|a, b| a.text.cmp(&b.text));
        spellings.dedup_by(|a, b| a.text == b.text);
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(spellings.iter().map(|spelling| &spelling.text))
            .ok()?;
        let escaped = secrets.iter().any(|secret| secret.contains(['"', '\\', '/']) || !secret.is_ascii());
        Some(Self { secrets, spellings, automaton, escaped })
    }

    /// The next secret at or after `from`.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<Range<usize>> {
        let found = self.automaton.find(Input::new(bytes).range(from..))?;
        Some(self.spellings[found.pattern().as_usize()].reach(bytes, from, found.range()))
    }

    /// Where a secret starts that the end of the text cuts off.
    pub(super) fn cut_off(&self, bytes: &[u8]) -> Option<usize> {
        let start = |spelling: &Spelling| {
            let whole = spelling.text.as_bytes();
            let lengths = SHORTEST_BEGINNING..whole.len().min(bytes.len() + 1);
            lengths.rev().find(|length| bytes.ends_with(&whole[..*length])).map(|length| bytes.len() - length)
        };
        self.spellings.iter().filter_map(start).min()
    }

    fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let (mut shown, mut copied) = (String::new(), 0);
        while let Some(secret) = self.find(text.as_bytes(), copied) {
            shown.push_str(&text[copied..secret.start]);
            shown.push_str(HIDDEN);
            copied = secret.end;
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        shown.push_str(&text[copied..]);
        Cow::Owned(shown)
    }
}
