//! `isolate`: a process of its own for every session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use uuid::Uuid;

use super::Inner;
use super::establish::establish;
use super::state::Unavailable;
use crate::upstream::client::Client;

/// Processes of one server. Each may have a hundred megabytes.
pub const MOST: usize = 64;

/// A session that has not called for so long gets a new process when it does.
const IDLE: Duration = Duration::from_secs(600);

/// The connections that sessions have for themselves.
#[derive(Debug, Default)]
pub struct Sessions {
    open: Mutex<HashMap<Uuid, Slot>>,
}

#[derive(Debug)]
struct Slot {
    /// Filled by the first call; others of the session wait for it.
    client: Arc<OnceCell<Client>>,
    used: Instant,
}

impl Slot {
    fn is_lost(&self) -> bool {
        self.client.get().is_some_and(|client| !client.is_connected())
    }

    fn is_idle(&self) -> bool {
        self.used.elapsed() >= IDLE && self.client.get().is_none_or(|client| client.in_flight() == 0)
    }
}

impl Sessions {
    /// The place of a session, a new one where its process is gone. None: there are too many.
    fn of(&self, session: Uuid) -> Option<Arc<OnceCell<Client>>> {
        let mut open = self.open.lock();
        if open.get(&session).is_some_and(Slot::is_lost) {
            open.remove(&session);
        }
        if !open.contains_key(&session) && open.len() >= MOST {
            return None;
        }
        let slot = open.entry(session).or_insert_with(|| Slot { client: Arc::default(), used: Instant::now() });
        slot.used = Instant::now();
        Some(slot.client.clone())
    }

    /// The place is free again if nothing came of it, unless another call of the session is about to fill it.
    fn give_back(&self, session: Uuid, place: &Arc<OnceCell<Client>>) {
        let mut open = self.open.lock();
        // The table has one, and whoever gives it back.
        let is_last = |slot: &Slot| Arc::ptr_eq(&slot.client, place) && Arc::strong_count(place) <= 2;
        if place.get().is_none() && open.get(&session).is_some_and(is_last) {
            open.remove(&session);
        }
    }

    /// Takes the session's connection out.
    pub fn take(&self, session: Uuid) -> Option<Client> {
        self.open.lock().remove(&session).and_then(|slot| slot.client.get().cloned())
    }

    pub fn take_all(&self) -> Vec<Client> {
        self.open.lock().drain().filter_map(|(_, slot)| slot.client.get().cloned()).collect()
    }

    /// Takes out those that nobody has used for long, or that are lost.
    pub fn take_idle(&self) -> Vec<Client> {
        let idle = |slot: &mut Slot| slot.is_lost() || slot.is_idle();
        let gone = self.open.lock().extract_if(|_, slot| idle(slot)).collect::<Vec<_>>();
        gone.into_iter().filter_map(|(_, slot)| slot.client.get().cloned()).collect()
    }

    /// One that is connected, to ask what the server has.
    pub fn any(&self) -> Option<Client> {
        let open = self.open.lock();
        open.values().filter_map(|slot| slot.client.get()).find(|client| client.is_connected()).cloned()
    }

    pub fn len(&self) -> usize {
        self.open.lock().len()
    }
}

/// A session's place while it is being connected. Given back when that fails or nobody waits for it any more.
struct Place<'a> {
    sessions: &'a Sessions,
    session: Uuid,
    client: Arc<OnceCell<Client>>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.sessions.give_back(self.session, &self.client);
    }
}

/// The session's own connection, made if there is none.
pub async fn client(inner: &Arc<Inner>, session: Uuid) -> Result<Client, Unavailable> {
    let server = || inner.config.name.clone();
    let closed = || Unavailable::Stopped { server: server(), why: "it was closed".into() };
    if inner.stop.is_cancelled() {
        return Err(closed());
    }
    let Some(client) = inner.sessions.of(session) else {
        return Err(Unavailable::TooManySessions { server: server(), limit: MOST });
    };
    let place = Place { sessions: &inner.sessions, session, client };
    let connected = place.client.get_or_try_init(|| async { establish(inner).await.map(|(client, _)| client) }).await;
    match connected {
        Ok(client) if inner.stop.is_cancelled() => {
            client.close().await;
            Err(closed())
        }
        Ok(client) => Ok(client.clone()),
        Err(trouble) => Err(Unavailable::Failed { server: server(), why: trouble.why().to_owned() }),
    }
}
