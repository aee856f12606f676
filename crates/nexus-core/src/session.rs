//! A session: what one client's calls share, above all the human's yes.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock;
use crate::gate::Grants;
use crate::principal::PrincipalId;
use crate::text;

/// What makes two calls belong to the same session. Made by the front door, nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionKey {
    /// As long as the process.
    Stdio,
    /// An SSE stream or an `Mcp-Session-Id`, bound to the key that opened it.
    Transport { id: Arc<str>, principal: PrincipalId },
    /// Protocol 2026-07-28 has no session on the wire: one per key, until it is idle for long.
    Lease { principal: PrincipalId },
}

/// By which door it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Http,
    Sse,
    /// The operator's command line, through the hub's own socket.
    Control,
    Telegram,
    Webhook,
}

impl Transport {
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Stdio => "stdio",
            Transport::Http => "http",
            Transport::Sse => "sse",
            Transport::Control => "control",
            Transport::Telegram => "telegram",
            Transport::Webhook => "webhook",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        use Transport::{Control, Http, Sse, Stdio, Telegram, Webhook};
        [Stdio, Http, Sse, Control, Telegram, Webhook].into_iter().find(|transport| transport.as_str() == text)
    }
}

/// Which of the two kinds of protocol a call speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, sessions.
    Legacy,
    /// 2026-07-28: everything in each request.
    Modern,
}

impl Era {
    pub fn as_str(self) -> &'static str {
        match self {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Era::Legacy, Era::Modern].into_iter().find(|era| era.as_str() == text)
    }
}

/// State shared by the calls of one session.
pub struct Session {
    /// Its name in the audit; not the wire's session id, which is a capability.
    pub id: Uuid,
    pub key: SessionKey,
    pub transport: Transport,
    pub started: Timestamp,
    pub grants: Mutex<Grants>,
    over: CancellationToken,
    client: OnceLock<Arc<str>>,
    in_flight: AtomicUsize,
    listening: AtomicUsize,
    queued: AtomicUsize,
    active_ms: AtomicI64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Session {
    pub fn open(key: SessionKey, transport: Transport) -> Self {
        let started = clock::now();
        Self {
            id: clock::new_id(),
            key,
            transport,
            started,
            grants: Mutex::default(),
            over: CancellationToken::new(),
            client: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            listening: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            active_ms: AtomicI64::new(clock::monotonic_ms()),
        }
    }

    /// Remembers what the client calls itself. Its word is shown, never believed.
    pub fn introduce(&self, name: &str, version: &str) {
        self.client.get_or_init(|| client_label(name, version));
    }

    /// What the client calls itself.
    pub fn client(&self) -> Option<&Arc<str>> {
        self.client.get()
    }

    /// The label of a client that says with each call what it is. A lease may have several, but mostly has one.
    pub fn label(&self, name: &str, version: &str) -> Arc<str> {
        let known = self.client.get_or_init(|| client_label(name, version));
        let same = known.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) == Some(version);
        if same { known.clone() } else { client_label(name, version) }
    }

    /// Takes one of the session's places for a call, if one is free.
    pub fn enter(&self, most: usize) -> Option<Place<'_>> {
        self.touch();
        take_place(&self.in_flight, self, most)
    }

    /// Takes one of the session's places for a subscription, if one is free.
    pub fn listen(&self, most: usize) -> Option<Place<'_>> {
        take_place(&self.listening, self, most)
    }

    /// Takes one of the session's places for a call that waits for a human, if one is free.
    pub fn queue(&self, most: usize) -> Option<Place<'_>> {
        take_place(&self.queued, self, most)
    }

    /// It is over: whatever was granted in it is taken back, and nobody waits in it for an answer any more.
    pub fn end(&self) {
        self.over.cancel();
        self.grants.lock().revoke();
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Comes back when it is over.
    pub async fn ended(&self) {
        self.over.cancelled().await;
    }

    /// A call runs, or waits for a human.
    pub fn is_busy(&self) -> bool {
        self.in_flight() > 0 || self.queued.load(Ordering::Relaxed) > 0
    }

    /// Calls that are running now.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Something arrived.
    pub fn touch(&self) {
        self.active_ms.store(clock::monotonic_ms(), Ordering::Relaxed);
    }

    /// Milliseconds since something last arrived or ended.
    pub fn idle_ms(&self) -> i64 {
        clock::monotonic_ms() - self.active_ms.load(Ordering::Relaxed)
    }
}

/// A client's name and version as they may be shown and recorded.
fn client_label(name: &str, version: &str) -> Arc<str> {
    let said: String = format!("{name}/{version}").chars().take(100).collect();
    text::clean(&said).into()
}

/// A place in a session; given back when dropped.
#[derive(Debug)]
pub struct Place<'a> {
    taken: &'a AtomicUsize,
    session: &'a Session,
}

fn take_place<'a>(taken: &'a AtomicUsize, session: &'a Session, most: usize) -> Option<Place<'a>> {
    let before = taken.fetch_add(1, Ordering::Relaxed);
    let place = Place { taken, session };
    (before < most).then_some(place)
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        self.session.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_even_when_it_was_refused() {
        let session = Session::open(SessionKey::Stdio, Transport::Stdio);
        let first = session.enter(1);
        assert!(first.is_some());
        assert!(session.enter(1).is_none());
        assert_eq!(session.in_flight(), 1);
        drop(first);
        assert!(session.enter(1).is_some());
        assert_eq!(session.in_flight(), 0);
    }

    #[test]
    fn a_client_cannot_write_escapes_into_our_records_with_its_name() {
        let session = Session::open(SessionKey::Stdio, Transport::Stdio);
        session.introduce("evil\u{1b}[2J", "1");
        session.introduce("later", "2");
        assert_eq!(session.client().map(|client| &**client), Some("evil/1"));
    }
}
