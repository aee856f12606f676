//! What a session is: the wire's own where it has one, a lease where it has none.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::clock;
use nexus_core::principal::{Principal, PrincipalId, SessionPolicy};
use nexus_core::session::{Era, Session, SessionKey, Transport};

use crate::exchange::Peer;

/// All sessions of the HTTP doors.
pub struct Sessions {
    open: Mutex<HashMap<Box<str>, Arc<Connected>>>,
    leases: Mutex<HashMap<PrincipalId, Arc<Session>>>,
    audit: Arc<dyn Sink>,
    limits: Limits,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("open", &self.count()).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sessions open at once.
    pub sessions: usize,
    /// A session nobody uses for this long is ended.
    pub session_idle: Duration,
    pub lease_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 10_000, session_idle: Duration::from_secs(24 * 3600), lease_idle: Duration::from_secs(1800) }
    }
}

/// A session that a client opened and holds by its id.
#[derive(Debug)]
pub struct Connected {
    pub id: Box<str>,
    /// As it was at the start; [`Sessions::of`] knows the one in force.
    pub session: Arc<Session>,
    pub peer: Arc<Peer>,
    /// Cancelled when the session ends, by whoever ends it.
    pub ended: CancellationToken,
    owner: PrincipalId,
    transport: Transport,
    streams: AtomicUsize,
    active_ms: AtomicI64,
}

/// Streams one session may hold open at once.
const STREAMS_PER_SESSION: usize = 8;

impl Connected {
    pub fn touch(&self) {
        self.active_ms.store(clock::monotonic_ms(), Ordering::Relaxed);
    }

    /// Counts a stream in, if there is room for one more.
    pub fn stream(self: &Arc<Self>) -> Option<OpenStream> {
        let before = self.streams.fetch_add(1, Ordering::Relaxed);
        let stream = OpenStream(self.clone());
        (before < STREAMS_PER_SESSION).then_some(stream)
    }

    /// Milliseconds without a sign of life; none while something runs or listens.
    fn idle_ms(&self, now_ms: i64) -> Option<i64> {
        let busy = self.session.is_busy() || self.streams.load(Ordering::Relaxed) > 0;
        (!busy).then(|| now_ms - self.active_ms.load(Ordering::Relaxed))
    }
}

/// An open stream of a session; counted out when dropped.
#[derive(Debug)]
pub struct OpenStream(pub Arc<Connected>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

impl Sessions {
    pub fn new(audit: Arc<dyn Sink>, limits: Limits) -> Self {
        Self { open: Mutex::default(), leases: Mutex::default(), audit, limits }
    }

    /// Opens a session for a key. None: too many are open and none of them is idle.
    pub fn open(&self, principal: &Arc<Principal>, transport: Transport) -> Option<Arc<Connected>> {
        let id: Box<str> = Uuid::new_v4().simple().to_string().into();
        let session = match principal.session {
            SessionPolicy::Lease => self.lease(principal, transport),
            SessionPolicy::Auto => {
                let key = SessionKey::Transport { id: (&*id).into(), principal: principal.id.clone() };
                Arc::new(Session::open(key, transport))
            }
        };
        let connected = Arc::new(Connected {
            id,
            session,
            peer: Arc::default(),
            ended: CancellationToken::new(),
            owner: principal.id.clone(),
            transport,
            streams: AtomicUsize::new(0),
            active_ms: AtomicI64::new(clock::monotonic_ms()),
        });
        let evicted = {
            let mut open = self.open.lock();
            let evicted = make_room(&mut open, &principal.id, self.limits.sessions)?;
            open.insert(connected.id.clone(), connected.clone());
            evicted
        };
        evicted.iter().for_each(|old| self.ended(old, "evicted"));
        Some(connected)
    }

    /// Records that a session has begun, once its client has introduced itself.
    pub fn started(&self, connected: &Connected) {
        self.audit.post(row(Event::SessionStarted, &connected.session, &connected.owner, Era::Legacy));
    }

    /// The session of that id, if this key opened it. For any other key it does not exist.
    pub fn find(&self, id: &str, principal: &Principal) -> Option<Arc<Connected>> {
        let connected = self.open.lock().get(id).filter(|connected| connected.owner == principal.id).cloned();
        connected.inspect(|connected| connected.touch())
    }

    /// Ends a session. False: there was none of that id for this key.
    pub fn close(&self, id: &str, principal: &Principal) -> bool {
        let connected = {
            let mut open = self.open.lock();
            let owned = open.get(id).is_some_and(|connected| connected.owner == principal.id);
            if owned { open.remove(id) } else { None }
        };
        connected.inspect(|connected| self.ended(connected, "closed by the client")).is_some()
    }

    /// The session of a key where the wire has none.
    pub fn lease(&self, principal: &Principal, transport: Transport) -> Arc<Session> {
        let mut leases = self.leases.lock();
        if let Some(session) = leases.get(&principal.id) {
            if session.is_busy() || session.idle_ms() < millis(self.limits.lease_idle) {
                session.touch();
                return session.clone();
            }
            self.lease_ended(session, &principal.id, "lease ran out");
        }
        let session = Arc::new(Session::open(SessionKey::Lease { principal: principal.id.clone() }, transport));
        leases.insert(principal.id.clone(), session.clone());
        self.audit.post(row(Event::SessionStarted, &session, &principal.id, Era::Modern));
        session
    }

    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Ends what nobody uses any more.
    pub fn reap(&self) {
        let now_ms = clock::monotonic_ms();
        let too_long = millis(self.limits.session_idle);
        let mut idle = Vec::new();
        self.open.lock().retain(|_, connected| {
            let stays = connected.idle_ms(now_ms).is_none_or(|idle_ms| idle_ms < too_long);
            if !stays {
                idle.push(connected.clone());
            }
            stays
        });
        idle.iter().for_each(|connected| self.ended(connected, "idle"));

        let lease_idle = millis(self.limits.lease_idle);
        let mut ran_out = Vec::new();
        self.leases.lock().retain(|principal, session| {
            let stays = session.is_busy() || session.idle_ms() < lease_idle;
            if !stays {
                ran_out.push((principal.clone(), session.clone()));
            }
            stays
        });
        for (principal, session) in ran_out {
            self.lease_ended(&session, &principal, "lease ran out");
        }
    }

    /// The session that a client's next call belongs to. A connection may outlive the lease it was opened in, and
    /// what was granted there is over with it.
    pub fn of(&self, connected: &Connected, principal: &Principal) -> Arc<Session> {
        match connected.session.key {
            SessionKey::Lease { .. } => self.lease(principal, connected.transport),
            SessionKey::Stdio | SessionKey::Transport { .. } => connected.session.clone(),
        }
    }

    /// Ends all sessions of some keys.
    pub fn end_where(&self, gone: impl Fn(&PrincipalId) -> bool, why: &str) {
        let open: Vec<_> = self.open.lock().extract_if(|_, connected| gone(&connected.owner)).collect();
        open.iter().for_each(|(_, connected)| self.ended(connected, why));
        let leases: Vec<_> = self.leases.lock().extract_if(|principal, _| gone(principal)).collect();
        leases.iter().for_each(|(principal, session)| self.lease_ended(session, principal, why));
    }

    fn lease_ended(&self, session: &Session, principal: &PrincipalId, why: &str) {
        session.end();
        self.audit.post(row(Event::SessionEnded, session, principal, Era::Modern).detail(why));
    }

    fn ended(&self, connected: &Connected, why: &str) {
        debug!(session = %connected.session.id, "session ended: {why}");
        connected.ended.cancel();
        // A lease goes on without this connection.
        if !matches!(connected.session.key, SessionKey::Lease { .. }) {
            connected.session.end();
        }
        self.audit.post(row(Event::SessionEnded, &connected.session, &connected.owner, Era::Legacy).detail(why));
    }
}

fn row(event: Event, session: &Session, principal: &PrincipalId, era: Era) -> Row {
    Row {
        session: Some(session.id),
        principal: Some(principal.clone()),
        transport: Some(session.transport),
        era: Some(era),
        client: session.client().map(|client| client.to_string()),
        ..Row::new(event)
    }
}

/// Makes room for one more session of a key, by ending idle ones. Clients that open a session per call and never
/// close one would otherwise lock everybody out; and no key may do that to the others, so each has a share of at
/// most seven eighths and loses its own sessions first. None: there is no room to be had.
fn make_room(
    open: &mut HashMap<Box<str>, Arc<Connected>>,
    owner: &PrincipalId,
    most: usize,
) -> Option<Vec<Arc<Connected>>> {
    // Counting is for a nearly full house.
    if open.len() < most - most / 8 {
        return Some(Vec::new());
    }
    let mut owned: HashMap<PrincipalId, usize> = HashMap::new();
    open.values().for_each(|connected| *owned.entry(connected.owner.clone()).or_default() += 1);
    let own = owned.get(owner).copied().unwrap_or_default();
    if open.len() < most && own < most - most / 8 {
        return Some(Vec::new());
    }
    let largest = owned.into_iter().max_by_key(|(_, count)| *count).map(|(largest, _)| largest);
    let of_own = idle_longest(open, owner);
    let losing = if of_own.is_empty() && open.len() >= most && own < most - most / 8 {
        largest.map(|largest| idle_longest(open, &largest)).unwrap_or_default()
    } else {
        of_own
    };
    let ended: Vec<_> = losing.into_iter().filter_map(|connected| open.remove(&connected.id)).collect();
    (!ended.is_empty()).then_some(ended)
}

/// The hundredth part of all sessions, out of a key's, that has been idle longest.
fn idle_longest(open: &HashMap<Box<str>, Arc<Connected>>, owner: &PrincipalId) -> Vec<Arc<Connected>> {
    let now_ms = clock::monotonic_ms();
    let mut idle: Vec<(i64, Arc<Connected>)> = open
        .values()
        .filter(|connected| connected.owner == *owner && connected.transport == Transport::Http)
        .filter_map(|connected| Some((connected.idle_ms(now_ms)?, connected.clone())))
        .collect();
    idle.sort_unstable_by_key(|(idle_ms, _)| std::cmp::Reverse(*idle_ms));
    idle.truncate((open.len() / 100).max(1));
    idle.into_iter().map(|(_, connected)| connected).collect()
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_core::audit::Nowhere;
    use nexus_core::gate::Writes;
    use nexus_core::principal::Level;

    fn sessions(limits: Limits) -> Sessions {
        Sessions::new(Arc::new(Nowhere), limits)
    }

    fn key(name: &str) -> Arc<Principal> {
        Arc::new(Principal::new(name, Level::Trusted))
    }

    #[test]
    fn a_session_exists_only_for_the_key_that_opened_it() {
        let sessions = sessions(Limits::default());
        let opened = sessions.open(&key("a"), Transport::Http).unwrap();
        assert!(sessions.find(&opened.id, &key("a")).is_some());
        assert!(sessions.find(&opened.id, &key("b")).is_none());
        assert!(!sessions.close(&opened.id, &key("b")));
        assert!(sessions.close(&opened.id, &key("a")));
        assert!(sessions.find(&opened.id, &key("a")).is_none());
        assert!(opened.ended.is_cancelled());
    }

    #[test]
    fn idle_sessions_go_but_never_one_with_a_call_or_a_stream() {
        let sessions =
            sessions(Limits { session_idle: Duration::ZERO, lease_idle: Duration::ZERO, ..Limits::default() });
        let calling = sessions.open(&key("a"), Transport::Http).unwrap();
        let listening = sessions.open(&key("a"), Transport::Http).unwrap();
        let _idle = sessions.open(&key("a"), Transport::Http).unwrap();
        let _call = calling.session.enter(9);
        let _stream = listening.stream();
        sessions.reap();
        assert_eq!(sessions.count(), 2);
        assert!(sessions.find(&calling.id, &key("a")).is_some());
    }

    #[test]
    fn a_full_house_ends_the_idle_and_keeps_the_busy() {
        let sessions = sessions(Limits { sessions: 2, ..Limits::default() });
        let busy = sessions.open(&key("a"), Transport::Http).unwrap();
        let _call = busy.session.enter(9);
        let idle = sessions.open(&key("a"), Transport::Http).unwrap();
        let third = sessions.open(&key("a"), Transport::Http).unwrap();
        assert!(idle.ended.is_cancelled());
        let _call = third.session.enter(9);
        assert!(sessions.open(&key("a"), Transport::Http).is_none());
    }

    #[test]
    fn one_key_cannot_take_the_place_of_all_others() {
        let sessions = sessions(Limits { sessions: 16, ..Limits::default() });
        let streams: Vec<_> = (0..20).filter_map(|_| sessions.open(&key("greedy"), Transport::Sse)).collect();
        assert_eq!(streams.len(), 14);
        assert!(sessions.open(&key("modest"), Transport::Http).is_some());
        let idle: Vec<_> = (0..20).filter_map(|_| sessions.open(&key("modest"), Transport::Http)).collect();
        assert_eq!(idle.len(), 20, "its own idle ones make room");
        assert!(streams.iter().all(|stream| !stream.ended.is_cancelled()));
    }

    #[test]
    fn a_lease_is_one_per_key_and_a_leased_key_shares_it_over_its_sessions() {
        let sessions = sessions(Limits::default());
        let one = sessions.lease(&key("a"), Transport::Http);
        assert_eq!(one.id, sessions.lease(&key("a"), Transport::Http).id);
        assert_ne!(one.id, sessions.lease(&key("b"), Transport::Http).id);
        let leased = Arc::new(Principal { session: SessionPolicy::Lease, ..Principal::new("a", Level::Trusted) });
        assert_eq!(sessions.open(&leased, Transport::Http).unwrap().session.id, one.id);
    }

    #[test]
    fn what_was_granted_in_a_lease_ends_with_it_also_on_a_connection_that_stays() {
        let sessions = sessions(Limits { lease_idle: Duration::ZERO, ..Limits::default() });
        let leased = Arc::new(Principal { session: SessionPolicy::Lease, ..Principal::new("a", Level::Trusted) });
        let connected = sessions.open(&leased, Transport::Http).unwrap();
        connected.session.grants.lock().writes = Writes::Approved;
        let waiting = connected.session.queue(1);
        assert_eq!(sessions.of(&connected, &leased).id, connected.session.id, "a call waits in it");
        drop(waiting);
        let later = sessions.of(&connected, &leased);
        assert_ne!(later.id, connected.session.id);
        assert_eq!((later.grants.lock().writes, connected.session.grants.lock().writes), Default::default());
        assert!(connected.session.is_over());
    }

    #[test]
    fn sessions_of_a_key_that_is_gone_end_and_no_others() {
        let sessions = sessions(Limits::default());
        let (gone, stays) = (sessions.open(&key("a"), Transport::Http), sessions.open(&key("b"), Transport::Http));
        let lease = sessions.lease(&key("a"), Transport::Http);
        sessions.end_where(|principal| principal.as_str() == "a", "gone");
        assert!(gone.unwrap().session.is_over() && lease.is_over());
        assert!(!stays.unwrap().session.is_over());
        assert_eq!(sessions.count(), 1);
    }
}
