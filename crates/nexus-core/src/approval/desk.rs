//! The desk itself: questions in the order they were asked, bounded, with no clock of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use uuid::Uuid;

use super::{CODE_LIFE, Code, Scope, Shown, millis};
use crate::call::CallKey;
use crate::clock;
use crate::gate::{About, Why};
use crate::principal::PrincipalId;
use crate::session::Session;

/// Questions one session may have on the desk. A model that asks for more loses its oldest.
const MOST_OF_A_SESSION: usize = 32;
/// Those of one key, over all its sessions.
const MOST_OF_A_KEY: usize = 512;
const MOST: usize = 4096;

/// Bytes of one question's words that are kept; of more, the end is counted.
const MOST_WORDS: usize = 64 * 1024;
/// Bytes of all questions of one key, and of all keys.
const MOST_BYTES_OF_A_KEY: usize = 8 * 1024 * 1024;
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Used tickets that are remembered, to tell a replay from an answer that came too late.
const MOST_USED: usize = 4096;

/// Tries of one call that may be on their way back with an answer.
const MOST_TICKETS: usize = 16;

/// What a question is about.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub call: CallKey,
    pub session: Arc<Session>,
    pub principal: PrincipalId,
    pub client: Option<Arc<str>>,
    pub tool: Arc<str>,
    pub node: Option<String>,
    pub summary: String,
    /// As JSON, with everything secret taken out.
    pub arguments: Arc<str>,
    pub about: About,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Open,
    /// Approved, for the next try of the call.
    Once,
    /// Approved for its session.
    Session,
    Denied,
}

/// A question on the desk. It does not keep its session alive.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub code: Code,
    pub call: CallKey,
    pub session: Weak<Session>,
    pub session_id: Uuid,
    pub principal: PrincipalId,
    pub client: Option<Arc<str>>,
    pub tool: Arc<str>,
    pub about: About,
    pub standing: Standing,
    node: Option<String>,
    summary: String,
    arguments: Arc<str>,
    asked: Timestamp,
    ends_ms: i64,
    tickets: Vec<Uuid>,
}

impl Waiting {
    pub(super) fn new(code: Code, facts: Facts, now_ms: i64) -> Self {
        Self {
            code,
            call: facts.call,
            session: Arc::downgrade(&facts.session),
            session_id: facts.session.id,
            principal: facts.principal,
            client: facts.client,
            tool: facts.tool,
            about: facts.about,
            standing: Standing::Open,
            node: facts.node,
            summary: bounded_summary(facts.summary),
            arguments: bounded_arguments(facts.arguments),
            asked: clock::now(),
            ends_ms: now_ms + millis(CODE_LIFE),
            tickets: Vec::new(),
        }
    }

    pub(super) fn shown(&self) -> Shown {
        Shown {
            code: self.code.clone(),
            asked: self.asked,
            key: self.principal.to_string(),
            client: self.client.as_deref().map(str::to_owned),
            session: self.session_id.to_string(),
            tool: self.tool.as_ref().to_owned(),
            node: self.node.clone().unwrap_or_else(|| "local".to_owned()),
            summary: self.summary.clone(),
            arguments: serde_json::from_str(&self.arguments).unwrap_or_default(),
            what: match &self.about {
                About::Connect(server) | About::ConfirmUpstream(server) => format!("all tools of the server {server}"),
                About::ApproveWrites | About::Unlock | About::ConfirmCall => "all writes".to_owned(),
            },
            offers: self.about.offers().iter().filter_map(|answer| Scope::of(*answer)).collect(),
        }
    }

    /// Its session is over: nobody can be given anything.
    fn is_gone(&self) -> bool {
        self.session.upgrade().is_none_or(|session| session.is_over())
    }

    /// A no holds as long as its session does.
    fn is_over(&self, now_ms: i64) -> bool {
        self.ends_ms <= now_ms && (self.standing != Standing::Denied || self.is_gone())
    }

    fn bytes(&self) -> usize {
        let server = match &self.about {
            About::Connect(server) | About::ConfirmUpstream(server) => server.as_str().len(),
            About::ApproveWrites | About::Unlock | About::ConfirmCall => 0,
        };
        self.summary.len() + self.arguments.len() + server
    }

    fn is(&self, session: Uuid, call: &CallKey) -> bool {
        self.session_id == session && self.call == *call
    }
}

fn bounded_summary(summary: String) -> String {
    if summary.len() <= MOST_WORDS {
        return summary;
    }
    let (kept, rest) = summary.split_at(summary.floor_char_boundary(MOST_WORDS));
    format!("{kept} … and {} characters more, which are not kept", rest.chars().count())
}

/// They were kept by their characters, of up to four bytes each. Half of a JSON document is none.
fn bounded_arguments(arguments: Arc<str>) -> Arc<str> {
    if arguments.len() <= 4 * MOST_WORDS {
        return arguments;
    }
    serde_json::json!({ "not_shown": format!("{} bytes of arguments are too many to keep", arguments.len()) })
        .to_string()
        .into()
}

/// Oldest first. A look at all of them is cheap beside the human who is asked.
#[derive(Debug, Default)]
pub(super) struct Desk {
    asked: VecDeque<Waiting>,
    /// Tickets that have counted, oldest first.
    used: VecDeque<Uuid>,
}

impl Desk {
    pub(super) fn put(&mut self, facts: Facts, now_ms: i64) -> Code {
        self.sweep(now_ms);
        if let Some(known) = self.asked.iter_mut().find(|waiting| waiting.is(facts.session.id, &facts.call)) {
            known.ends_ms = now_ms + millis(CODE_LIFE);
            known.about = facts.about;
            if known.standing != Standing::Denied {
                known.standing = Standing::Open;
            }
            return known.code.clone();
        }
        let (session, key) = (facts.session.id, facts.principal.clone());
        let mut code = Code::random();
        while self.asked.iter().any(|waiting| waiting.code == code) {
            code = Code::random();
        }
        let new = Waiting::new(code.clone(), facts, now_ms);
        let bytes = new.bytes();
        self.make_room(MOST_OF_A_SESSION, usize::MAX, |waiting| waiting.session_id == session);
        self.make_room(MOST_OF_A_KEY, MOST_BYTES_OF_A_KEY - bytes, |waiting| waiting.principal == key);
        self.make_room(MOST, MOST_BYTES - bytes, |_| true);
        self.asked.push_back(new);
        code
    }

    /// The oldest of those it is about give way: first what nobody can answer, a no of the operator last.
    fn make_room(&mut self, most: usize, most_bytes: usize, about: impl Fn(&Waiting) -> bool) {
        loop {
            let (count, bytes) = self
                .asked
                .iter()
                .filter(|waiting| about(waiting))
                .fold((0, 0), |(count, bytes), waiting| (count + 1, bytes + waiting.bytes()));
            if count == 0 || (count < most && bytes <= most_bytes) {
                return;
            }
            let oldest = |fits: &dyn Fn(&Waiting) -> bool| self.asked.iter().position(|w| about(w) && fits(w));
            let goes = oldest(&Waiting::is_gone)
                .or_else(|| oldest(&|waiting| waiting.standing != Standing::Denied))
                .or_else(|| oldest(&|_| true));
            goes.map(|goes| self.asked.remove(goes));
        }
    }

    /// Clears away what is too old. Of a session that is over the words go, and the code stays to be told so.
    pub(super) fn sweep(&mut self, now_ms: i64) {
        self.asked.retain(|waiting| !waiting.is_over(now_ms));
        self.asked.iter_mut().filter(|waiting| waiting.is_gone()).for_each(|waiting| {
            waiting.summary = String::new();
            waiting.arguments = "null".into();
        });
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Waiting> {
        self.asked.iter().filter(|waiting| waiting.standing == Standing::Open && !waiting.is_gone())
    }

    pub(super) fn find(&self, code: &Code, now_ms: i64) -> Option<Waiting> {
        self.asked.iter().find(|waiting| waiting.code == *code && !waiting.is_over(now_ms)).cloned()
    }

    pub(super) fn stand(&mut self, code: &Code, standing: Standing) {
        self.asked.iter_mut().filter(|waiting| waiting.code == *code).for_each(|waiting| waiting.standing = standing);
    }

    /// The writes of its session are approved: its other first writes wait for nobody any more. Answers that are on
    /// their way are still known when they come. A no to one of them stays.
    pub(super) fn covered(&mut self, by: &Waiting) {
        let covers = |about: &About| match &by.about {
            About::ApproveWrites | About::Unlock => matches!(about, About::ApproveWrites | About::Unlock),
            About::Connect(server) | About::ConfirmUpstream(server) => {
                matches!(about, About::Connect(other) | About::ConfirmUpstream(other) if other == server)
            }
            About::ConfirmCall => false,
        };
        let covered =
            |other: &Waiting| other.code != by.code && other.session_id == by.session_id && covers(&other.about);
        let covered = |other: &Waiting| other.standing != Standing::Denied && covered(other);
        self.asked.retain(|other| !covered(other) || !other.tickets.is_empty());
        self.asked.iter_mut().filter(|other| covered(other)).for_each(|other| other.standing = Standing::Session);
    }

    /// Its question is answered, unless other tries of the same call still wait for their answers. A no stays.
    pub(super) fn close(&mut self, session: Uuid, call: &CallKey) {
        let stays = |waiting: &Waiting| waiting.standing == Standing::Denied || !waiting.tickets.is_empty();
        self.asked.retain(|waiting| !waiting.is(session, call) || stays(waiting));
    }

    pub(super) fn add_ticket(&mut self, code: &Code, nonce: Uuid) {
        if let Some(waiting) = self.asked.iter_mut().find(|waiting| waiting.code == *code) {
            if waiting.tickets.len() >= MOST_TICKETS {
                waiting.tickets.remove(0);
            }
            waiting.tickets.push(nonce);
        }
    }

    /// Takes a ticket out: it works once. One that is neither known nor used has been forgotten with its question.
    pub(super) fn take_ticket(&mut self, nonce: Uuid) -> Result<Code, Why> {
        let taken = self.asked.iter_mut().find_map(|waiting| {
            let at = waiting.tickets.iter().position(|known| *known == nonce)?;
            waiting.tickets.remove(at);
            Some(waiting.code.clone())
        });
        let Some(code) = taken else {
            return Err(if self.used.contains(&nonce) { Why::Replayed } else { Why::Expired });
        };
        if self.used.len() >= MOST_USED {
            self.used.pop_front();
        }
        self.used.push_back(nonce);
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{SessionKey, Transport};

    fn session() -> Arc<Session> {
        Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio))
    }

    fn facts(session: &Arc<Session>, key: &str, call: usize) -> Facts {
        Facts {
            call: CallKey::of(&call.to_string(), &[0; 32]),
            session: session.clone(),
            principal: PrincipalId::new(key),
            client: None,
            tool: "change".into(),
            node: None,
            summary: "change something".into(),
            arguments: "{}".into(),
            about: About::ApproveWrites,
        }
    }

    #[test]
    fn the_same_call_of_a_session_keeps_its_code_and_another_sessions_does_not_get_it() {
        let (mut desk, one, other) = (Desk::default(), session(), session());
        let code = desk.put(facts(&one, "a", 1), 0);
        assert_eq!(desk.put(facts(&one, "a", 1), 5), code);
        assert_ne!(desk.put(facts(&one, "a", 2), 5), code);
        assert_ne!(desk.put(facts(&other, "a", 1), 5), code);
        assert_eq!(desk.open().count(), 3);
    }

    #[test]
    fn nobody_fills_the_desk_and_the_oldest_gives_way() {
        let (mut desk, loud) = (Desk::default(), session());
        let quiet = session();
        let kept = desk.put(facts(&quiet, "quiet", 0), 0);
        let first = desk.put(facts(&loud, "loud", 0), 0);
        (1..=MOST_OF_A_SESSION).for_each(|call| drop(desk.put(facts(&loud, "loud", call), 0)));
        assert_eq!(desk.open().count(), 1 + MOST_OF_A_SESSION);
        assert!(desk.find(&first, 1).is_none());

        let sessions: Vec<_> = (0..MOST_OF_A_KEY).map(|_| session()).collect();
        sessions.iter().for_each(|session| drop(desk.put(facts(session, "loud", 0), 0)));
        assert_eq!(desk.open().count(), 1 + MOST_OF_A_KEY);
        assert!(desk.find(&kept, 1).is_some(), "another key's question stays");

        let many: Vec<_> = (0..MOST).map(|_| session()).collect();
        many.iter().enumerate().for_each(|(n, session)| drop(desk.put(facts(session, &n.to_string(), 0), 0)));
        assert_eq!(desk.open().count(), MOST);
    }

    #[test]
    fn what_is_too_old_or_of_a_session_that_is_over_is_cleared_away() {
        let (mut desk, stays, goes) = (Desk::default(), session(), session());
        let late = millis(CODE_LIFE);
        let code = desk.put(facts(&stays, "a", 1), 0);
        desk.put(facts(&goes, "a", 1), 0);
        drop(goes);
        desk.sweep(1);
        assert_eq!(desk.open().count(), 1);
        assert!(desk.find(&code, late - 1).is_some() && desk.find(&code, late).is_none());
        desk.put(facts(&stays, "a", 2), late);
        assert_eq!(desk.open().count(), 1);
    }

    #[test]
    fn a_ticket_works_once_and_others_of_the_same_call_still_do() {
        let (mut desk, session) = (Desk::default(), session());
        let asked = facts(&session, "a", 1);
        let code = desk.put(asked.clone(), 0);
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        desk.add_ticket(&code, one);
        desk.add_ticket(&code, two);
        assert_eq!(desk.take_ticket(one), Ok(code.clone()));
        assert_eq!(desk.take_ticket(one), Err(Why::Replayed));
        assert_eq!(desk.take_ticket(Uuid::new_v4()), Err(Why::Expired), "forgotten, and never used");
        desk.close(session.id, &asked.call);
        assert_eq!(desk.take_ticket(two), Ok(code));
        desk.close(session.id, &asked.call);
        assert_eq!(desk.open().count(), 0);
    }

    #[test]
    fn an_approved_session_has_no_other_first_writes_waiting() {
        let (mut desk, one, other) = (Desk::default(), session(), session());
        let code = desk.put(facts(&one, "a", 1), 0);
        desk.put(facts(&one, "a", 2), 0);
        let confirm = desk.put(Facts { about: About::ConfirmCall, ..facts(&one, "a", 3) }, 0);
        let others = desk.put(facts(&other, "a", 1), 0);
        let waiting = desk.find(&code, 0).unwrap();
        desk.stand(&code, Standing::Session);
        desk.covered(&waiting);
        let left: Vec<_> = desk.open().map(|waiting| waiting.code.clone()).collect();
        assert_eq!(left, [confirm, others]);
    }

    #[test]
    fn a_no_is_not_covered_closed_crowded_out_or_forgotten_while_its_session_lives() {
        let (mut desk, one) = (Desk::default(), session());
        let asked = facts(&one, "a", 1);
        let no = desk.put(asked.clone(), 0);
        desk.stand(&no, Standing::Denied);
        let unlock = desk.put(Facts { about: About::Unlock, ..facts(&one, "a", 2) }, 0);
        let unlocked = desk.find(&unlock, 0).unwrap();
        desk.covered(&unlocked);
        desk.close(one.id, &asked.call);
        (3..=MOST_OF_A_SESSION + 3).for_each(|call| drop(desk.put(facts(&one, "a", call), 0)));
        desk.sweep(millis(CODE_LIFE) * 2);
        assert_eq!(desk.find(&no, millis(CODE_LIFE) * 2).unwrap().standing, Standing::Denied);
        one.end();
        desk.sweep(millis(CODE_LIFE) * 2);
        assert!(desk.find(&no, millis(CODE_LIFE) * 2).is_none());
    }

    #[test]
    fn the_words_are_kept_whole_and_what_is_too_long_says_so() {
        let (mut desk, one) = (Desk::default(), session());
        let words = |length: usize, call| Facts {
            summary: "x".repeat(length),
            arguments: format!("\"{}\"", "y".repeat(length)).into(),
            ..facts(&one, "a", call)
        };
        let shown = |desk: &Desk, code: &Code| desk.find(code, 0).unwrap().shown();
        let whole = desk.put(words(50_000, 1), 0);
        assert_eq!(shown(&desk, &whole).summary.len(), 50_000);
        assert_eq!(shown(&desk, &whole).arguments.as_str().unwrap().len(), 50_000);
        let long = desk.put(words(MOST_WORDS + 7, 2), 0);
        assert!(shown(&desk, &long).summary.ends_with("… and 7 characters more, which are not kept"));
        let long = desk.put(words(4 * MOST_WORDS, 3), 0);
        assert!(shown(&desk, &long).arguments["not_shown"].as_str().unwrap().contains("262146 bytes"));
        let many: Vec<_> = (0..200).map(|_| session()).collect();
        many.iter().for_each(|session| drop(desk.put(Facts { session: session.clone(), ..words(50_000, 1) }, 0)));
        assert!(desk.asked.iter().map(Waiting::bytes).sum::<usize>() <= MOST_BYTES_OF_A_KEY);
    }
}
