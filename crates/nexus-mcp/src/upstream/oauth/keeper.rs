//! Keeps the login of one server: in memory, in its store, and fresh.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::warn;

use nexus_core::clock;
use nexus_core::tasks::Tasks;

use super::error::OAuthError;
use super::flow;
use super::store::{Grant, TokenStore};
use super::web::Web;

/// One that is refused so soon after it came will not be accepted for being renewed once more.
const NEW: Duration = Duration::from_secs(10);

/// How long the store is believed to be as it was.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// After a renewal that failed, the next one waits so long.
const TRY_AGAIN: Duration = Duration::from_secs(10);

pub struct Keeper {
    pub web: Web,
    store: Arc<dyn TokenStore>,
    tasks: Tasks,
    held: Mutex<Held>,
    /// One renewal or login at a time: of a hundred requests that are refused at once, the first mends it for all.
    turn: Arc<Semaphore>,
}

/// The right to renew or to log in, shared with the task that does it.
pub type Turn = Option<Arc<OwnedSemaphorePermit>>;

#[derive(Default)]
struct Held {
    grant: Option<Arc<Grant>>,
    /// When it came, if it came by us.
    since: Option<Instant>,
    /// When the store was read last.
    looked: Option<Instant>,
    /// When a renewal failed last.
    failed: Option<Instant>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("server", &self.web.name()).finish_non_exhaustive()
    }
}

impl Keeper {
    pub fn new(web: Web, store: Arc<dyn TokenStore>, tasks: Tasks) -> Self {
        Self { web, store, tasks, held: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }

    pub async fn turn(&self) -> Turn {
        self.turn.clone().acquire_owned().await.ok().map(Arc::new)
    }

    /// What to send: what is at hand, renewed where it is about to run out.
    pub async fn token(self: &Arc<Self>) -> Option<String> {
        let grant = self.grant()?;
        if grant.renew_ms.is_none_or(|at| clock::now_ms() < at) || grant.refresh_token.is_none() {
            return Some(grant.access_token.clone());
        }
        let turn = self.turn().await;
        // Another request or another process may have renewed it meanwhile.
        let now = self.look()?;
        if now.access_token != grant.access_token {
            return Some(now.access_token.clone());
        }
        Some(self.renew(&now, &turn).await.unwrap_or(now).access_token.clone())
    }

    /// Logins and logouts of another process (`nexus mcp login`) are noticed a little later.
    fn grant(&self) -> Option<Arc<Grant>> {
        let held = self.held.lock();
        match held.looked {
            Some(at) if at.elapsed() < LOOK_AGAIN => held.grant.clone(),
            _ => {
                drop(held);
                self.look()
            }
        }
    }

    /// What the store has now, if it is for this very server.
    pub fn look(&self) -> Option<Arc<Grant>> {
        let found = self.store.load();
        let mut held = self.held.lock();
        held.looked = Some(Instant::now());
        match found {
            Ok(found) => {
                let found = found.filter(|grant| grant.server == self.web.server().as_str());
                if held.grant.as_deref() != found.as_ref() {
                    *held = Held { grant: found.map(Arc::new), looked: held.looked, ..Held::default() };
                }
            }
            Err(error) => warn!(%error, "the login at {} cannot be read", self.web.name()),
        }
        held.grant.clone()
    }

    pub fn keep(&self, grant: Grant) -> Result<Arc<Grant>, OAuthError> {
        let grant = Arc::new(grant);
        let now = Some(Instant::now());
        *self.held.lock() = Held { grant: Some(grant.clone()), since: now, looked: now, failed: None };
        self.store.save(&grant)?;
        Ok(grant)
    }

    /// Whether it came only just now.
    pub fn is_new(&self) -> bool {
        self.held.lock().since.is_some_and(|since| since.elapsed() < NEW)
    }

    /// New tokens for this grant, if there can be any.
    ///
    /// In a task of its own: the old refresh token may be good for one use, and a request that is given up meanwhile
    /// must not lose the answer.
    pub async fn renew(self: &Arc<Self>, grant: &Arc<Grant>, turn: &Turn) -> Option<Arc<Grant>> {
        if grant.refresh_token.is_none() || self.held.lock().failed.is_some_and(|at| at.elapsed() < TRY_AGAIN) {
            return None;
        }
        let (keeper, grant, turn) = (self.clone(), grant.clone(), turn.clone());
        let renewing = self.tasks.spawn("renewing a login", async move {
            let renewed = flow::renew(&keeper.web, &grant).await.and_then(|renewed| keeper.keep(renewed));
            drop(turn);
            renewed.map_err(|error| {
                keeper.held.lock().failed = Some(Instant::now());
                warn!(%error, "the login at {} could not be renewed", keeper.web.name());
            })
        });
        renewing.await.ok()??.ok()
    }
}
