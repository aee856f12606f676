//! One request while it is answered: what may be told to and asked of the client meanwhile.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use nexus_core::call::{CallCx, Client, Progress};
use nexus_core::principal::Principal;
use nexus_core::session::{Era, Session};

use crate::front::auth::Keys;
use crate::upstream::offers::subscription::Subscription;
use crate::wire::{self, RequestId, RpcError};

/// Messages to the client that are not yet written. A client that does not read loses progress
/// reports beyond this, nothing else.
pub const OUTBOX: usize = 32;

/// Resources that one client can follow.
const MOST_FOLLOWED: usize = 256;

/// What is known of a client over the life of its connection or session.
#[derive(Debug, Default)]
pub struct Peer {
    /// Set by `initialize`.
    pub version: OnceLock<&'static str>,
    pub capabilities: OnceLock<Capabilities>,
    /// Index into [`LOG_LEVELS`]; what `logging/setLevel` asked for.
    log_level: AtomicU8,
    asked: AtomicU64,
    waiting: Mutex<HashMap<RequestId, Waiting>>,
    running: Mutex<HashMap<RequestId, CancellationToken>>,
    /// One question at a time: the answer to the first may answer the rest.
    asking: Turn,
    /// Old era: resources whose changes it wants to hear of.
    followed: Followed,
}

/// Resources that are followed, by our URIs.
type Followed = Mutex<HashMap<String, Subscription>>;

#[derive(Debug)]
struct Turn(Semaphore);

impl Default for Turn {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

type Waiting = oneshot::Sender<Result<Box<RawValue>, Box<RawValue>>>;

/// Severities of log messages, least first.
pub const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Peer {
    /// Notes a request that can be cancelled. None: another one with this id is still running.
    pub fn start(self: &Arc<Self>, id: &RequestId, cancel: &CancellationToken) -> Option<Running> {
        let mut running = self.running.lock();
        if running.contains_key(id) {
            return None;
        }
        running.insert(id.clone(), cancel.clone());
        Some(Running { peer: self.clone(), id: id.clone() })
    }

    /// Comes back when no other question is being put to this client. None: never.
    pub async fn turn_to_ask(&self) -> Option<SemaphorePermit<'_>> {
        self.asking.0.acquire().await.ok()
    }

    /// The client no longer wants the answer.
    pub fn cancel(&self, id: &RequestId) {
        if let Some(cancel) = self.running.lock().get(id) {
            cancel.cancel();
        }
    }

    /// The client has answered something we asked. False: we had not.
    pub fn settle(&self, id: &RequestId, answer: Result<Box<RawValue>, Box<RawValue>>) -> bool {
        let waiting = self.waiting.lock().remove(id);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Whether it wants to hear of changes of this resource.
    pub fn follows(&self, uri: &str) -> bool {
        self.followed.lock().contains_key(uri)
    }

    pub fn unfollow(&self, uri: &str) {
        let ended = self.followed.lock().remove(uri);
        // Outside of the lock: ending one tells its server.
        drop(ended);
    }

    pub fn set_log_level(&self, level: &str) -> bool {
        let index = LOG_LEVELS.iter().position(|known| *known == level).and_then(|index| u8::try_from(index).ok());
        index.inspect(|index| self.log_level.store(*index, Ordering::Relaxed)).is_some()
    }
}

/// A running request; forgotten when dropped.
#[derive(Debug)]
pub struct Running {
    peer: Arc<Peer>,
    id: RequestId,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.peer.running.lock().remove(&self.id);
    }
}

/// What the client says it can do.
#[derive(Clone, Debug, Default)]
pub struct Capabilities(Option<Arc<Value>>);

impl Capabilities {
    /// None: not an object.
    pub fn parse(raw: &RawValue) -> Option<Self> {
        if raw.get() == "{}" {
            return Some(Self(None));
        }
        let value: Value = serde_json::from_str(raw.get()).ok()?;
        value.is_object().then(|| Self(Some(Arc::new(value))))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.as_ref().and_then(|said| said.get(name)).is_some_and(Value::is_object)
    }

    /// What of it servers may use to ask something, as JSON: how to ask, and nothing else.
    pub fn to_be_asked(&self) -> String {
        let said = |name: &&str| self.0.as_ref().and_then(|said| said.get(*name)).filter(|said| said.is_object());
        let ways = ["elicitation", "sampling", "roots"];
        let kept = ways.iter().filter_map(|name| Some(((*name).to_owned(), said(name)?.clone())));
        Value::Object(kept.collect()).to_string()
    }

    /// Whether it can put a form to a human. Nothing said about the kind means forms, as in the first version.
    pub fn elicits(&self) -> bool {
        let kinds = self.0.as_ref().and_then(|said| said.get("elicitation")).and_then(Value::as_object);
        kinds.is_some_and(|kinds| kinds.contains_key("form") || !kinds.contains_key("url"))
    }
}

/// One request and everything it may use while it is answered.
pub struct Exchange {
    pub id: RequestId,
    pub principal: Arc<Principal>,
    pub session: Arc<Session>,
    pub era: Era,
    pub peer: Arc<Peer>,
    pub capabilities: Capabilities,
    pub cancel: CancellationToken,
    pub progress_token: Option<Box<RawValue>>,
    /// In the modern era the request says whether it wants log messages.
    pub log_level: Option<String>,
    /// Answers to what an earlier round of the same request asked for.
    pub input_responses: Option<Box<RawValue>>,
    pub request_state: Option<String>,
    pub outbox: mpsc::Sender<String>,
    /// What the client says it is.
    pub client_name: Option<Arc<str>>,
    /// Something that is to end with the exchange.
    pub held: Option<DropGuard>,
    /// The keys in force, where it came with one.
    pub keys: Option<Arc<Keys>>,
    /// An error that takes the place of the tool's reply.
    verdict: Mutex<Option<RpcError>>,
    /// New era: resources whose changes are told while it lasts.
    followed: Followed,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("id", &self.id).field("era", &self.era).finish_non_exhaustive()
    }
}

#[derive(Debug, Error)]
pub enum AskError {
    #[error("the client is gone")]
    Gone,
    #[error("the client of this era cannot be asked while a request runs")]
    WrongEra,
    #[error("the client answered with an error: {0}")]
    Refused(String),
}

impl Exchange {
    pub fn new(
        id: RequestId,
        principal: Arc<Principal>,
        session: Arc<Session>,
        era: Era,
        peer: Arc<Peer>,
        outbox: mpsc::Sender<String>,
    ) -> Self {
        Self {
            id,
            principal,
            session,
            era,
            peer,
            capabilities: Capabilities::default(),
            cancel: CancellationToken::new(),
            progress_token: None,
            log_level: None,
            input_responses: None,
            request_state: None,
            outbox,
            client_name: None,
            held: None,
            keys: None,
            verdict: Mutex::new(None),
            followed: Followed::default(),
        }
    }

    /// Changes of this resource are told from now on: in the old era as long as the client is there, in the new one as
    /// long as this lasts.
    pub(crate) fn follow(&self, uri: String, subscription: Subscription) {
        let followed = match self.era {
            Era::Legacy => &self.peer.followed,
            Era::Modern => &self.followed,
        };
        let mut followed = followed.lock();
        let replaced = if followed.len() < MOST_FOLLOWED || followed.contains_key(&uri) {
            followed.insert(uri, subscription)
        } else {
            Some(subscription)
        };
        drop(followed);
        drop(replaced);
    }

    /// New era: whether changes of this resource are told on its stream.
    pub fn follows(&self, uri: &str) -> bool {
        self.followed.lock().contains_key(uri)
    }

    /// The exchange behind a call. None: it did not come over MCP.
    pub fn behind(cx: &CallCx) -> Option<Arc<Self>> {
        let client: Arc<dyn Any + Send + Sync> = cx.client.clone();
        client.downcast().ok()
    }

    /// Tells the client something; waits for room.
    pub async fn notify(&self, method: &str, params: &Value) {
        let _ = self.outbox.send(wire::notification(method, &params.to_string())).await;
    }

    /// A log message, if the client wants such.
    pub async fn log(&self, level: &str, data: &Value) {
        if self.wants_log(level) {
            self.notify("notifications/message", &json!({ "level": level, "logger": "nexus", "data": data })).await;
        }
    }

    /// A log message of somebody else, without waiting for room: a client that does not read misses it.
    pub fn log_now(&self, level: &str, logger: &str, data: &Value) {
        let params = json!({ "level": level, "logger": logger, "data": data });
        let _ = self.outbox.try_send(wire::notification("notifications/message", &params.to_string()));
    }

    /// Whether the client wants log messages of this severity.
    pub fn wants_log(&self, level: &str) -> bool {
        let rank = |level: &str| LOG_LEVELS.iter().position(|known| *known == level);
        let threshold = match self.era {
            Era::Modern => self.log_level.as_deref().and_then(rank),
            Era::Legacy => Some(usize::from(self.peer.log_level.load(Ordering::Relaxed))),
        };
        threshold.is_some_and(|threshold| rank(level).is_some_and(|rank| rank >= threshold))
    }

    /// Asks the client (elicitation, sampling) and waits for its answer. Old era only: in the new
    /// one a question is a result, and the answer comes with the next try.
    pub async fn ask(&self, method: &str, params: &Value) -> Result<Box<RawValue>, AskError> {
        if self.era == Era::Modern {
            return Err(AskError::WrongEra);
        }
        let id = RequestId::number(self.peer.asked.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, answered) = oneshot::channel();
        self.peer.waiting.lock().insert(id.clone(), answer);
        let forget = Forget { exchange: self, id: &id };
        if self.outbox.send(wire::request(&id, method, &params.to_string())).await.is_err() {
            return Err(AskError::Gone);
        }
        let said = tokio::select! {
            said = answered => said.map_err(|_| AskError::Gone)?,
            () = self.outbox.closed() => return Err(AskError::Gone),
        };
        drop(forget);
        said.map_err(|error| AskError::Refused(error.get().chars().take(300).collect()))
    }

    /// Makes the request end in a protocol error, whatever the tool replies.
    pub fn fail(&self, error: RpcError) {
        *self.verdict.lock() = Some(error);
    }

    pub fn verdict(&self) -> Option<RpcError> {
        self.verdict.lock().take()
    }
}

/// Removes a question nobody waits for any more, and tells the client so: it may take its dialogue away.
struct Forget<'a> {
    exchange: &'a Exchange,
    id: &'a RequestId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let unanswered = self.exchange.peer.waiting.lock().remove(self.id).is_some();
        if unanswered {
            let params = format!(r#"{{"requestId":{},"reason":"no longer needed"}}"#, self.id.as_json());
            let _ = self.exchange.outbox.try_send(wire::notification("notifications/cancelled", &params));
        }
    }
}

impl Client for Exchange {
    fn principal_now(&self, then: &Arc<Principal>) -> Option<Arc<Principal>> {
        match &self.keys {
            Some(keys) => keys.now(then),
            None => Some(then.clone()),
        }
    }

    fn progress(&self, step: Progress) {
        let Some(token) = &self.progress_token else { return };
        let mut params = json!({ "progressToken": token, "progress": step.done });
        if let Some(total) = step.total {
            params["total"] = total.into();
        }
        if let Some(message) = step.message {
            params["message"] = nexus_core::text::clean(&message).into();
        }
        // A client that does not read misses a report; the next one says more anyway.
        let _ = self.outbox.try_send(wire::notification("notifications/progress", &params.to_string()));
    }
}
