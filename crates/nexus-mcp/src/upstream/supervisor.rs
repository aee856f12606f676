//! One server, kept alive: connected when needed, connected again when lost, and always able to say how it is doing.
//!
//! Each [`Upstream`] has a task of its own, so that a server that hangs, dies or lies disturbs no other. What a server
//! offers stays known while it is away; a call that comes then waits a moment, or is told when it is tried again.

mod backoff;
mod establish;
pub mod headers;
mod health;
mod isolated;
mod keep;
mod learn;
mod offer;
mod opening;
mod parts;
mod schema;
mod signals;
mod state;
mod status;
#[cfg(test)]
pub(crate) mod tests;
mod tool;
mod waiting;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use nexus_core::name::ServerName;

use self::isolated::Sessions;
use self::keep::Order;
use self::signals::Signals;
use super::client::Client;
use super::config::{Endpoint, ServerConfig};
use super::error::{ConfigurationError, ProtocolError, RequestError, TransportError, UpstreamError};
use super::log::ServerLog;
use super::names::Naming;
use super::pins::{MemoryError, Pin};
use super::transport::Connector;

pub use self::headers::HeaderParam;
pub use self::offer::{NameClaims, Offer, OfferedPrompt, OfferedResource};
pub use self::parts::{Connectors, Happened, NoWitness, Notice, Parts, Visibility, Witness};
pub use self::schema::Misfit;
pub use self::state::{Condition, Introduction, SetAside, State, Status, Unavailable};
pub use self::status::{endpoint_of, source_of};
pub use self::tool::{Held, OfferedTool, Standing};

/// A call waits for a server whose next try is so near, instead of failing.
const NEAR: Duration = Duration::from_secs(2);

/// Longer than a server may take to answer a ping.
const CHECK_PATIENCE: Duration = Duration::from_secs(15);

/// What one who hears of changes late may have missed; more than that is told as a gap.
const NOTICES: usize = 256;

/// One server. Cloning is cheap; when the last clone goes, the server is closed.
#[derive(Clone, Debug)]
pub struct Upstream {
    inner: Arc<Inner>,
    _end: Arc<DropGuard>,
}

struct Inner {
    config: ServerConfig,
    visibility: Visibility,
    /// Changes with the set of servers.
    naming: RwLock<Naming>,
    log: Arc<ServerLog>,
    parts: Parts,
    /// Made when first needed; remembers what it found out about its server.
    connector: OnceLock<Arc<dyn Connector>>,
    condition: watch::Sender<Condition>,
    offer: watch::Sender<Arc<Offer>>,
    /// The offer that callers can find by now.
    shown: watch::Sender<Option<Arc<Offer>>>,
    /// The connection that all sessions share.
    current: RwLock<Option<Client>>,
    sessions: Sessions,
    signals: Arc<Signals>,
    /// Somebody needs it now.
    need: Notify,
    /// When a call last brought a try forward, and how many there had been.
    hurried: Mutex<Option<(Instant, u64)>>,
    /// Connections that were given up before they were there, and are being closed.
    rest: TaskTracker,
    orders: mpsc::Sender<Order>,
    stop: CancellationToken,
    /// Cancelled when nothing of it is left.
    ended: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("name", &self.config.name).finish_non_exhaustive()
    }
}

/// Which held tools are to be allowed.
#[derive(Clone, Debug)]
pub enum Which {
    All,
    /// By the server's names or ours.
    Named(Vec<String>),
    /// The server's name of a tool and the hash of what was seen of it: not what it may have become since.
    Seen(Vec<(String, String)>),
}

impl Which {
    fn has(&self, tool: &OfferedTool) -> bool {
        match self {
            Which::All => true,
            Which::Named(names) => names.iter().any(|name| *name == tool.original || name == tool.exposed.as_str()),
            Which::Seen(seen) => seen.iter().any(|(name, hash)| *name == tool.original && *hash == tool.hash),
        }
    }
}

#[derive(Debug, Error)]
pub enum AllowError {
    #[error("no tool of that name waits to be allowed")]
    NothingHeld,
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Upstream {
    /// Starts keeping a server. A `lazy` one that was met before is connected when it is first needed, others at once.
    pub fn start(
        config: ServerConfig,
        visibility: Visibility,
        naming: Naming,
        log: Arc<ServerLog>,
        parts: Parts,
    ) -> Self {
        let (orders, inbox) = mpsc::channel(16);
        let stop = parts.tasks.stopping().child_token();
        let inner = Arc::new(Inner {
            connector: OnceLock::new(),
            condition: watch::Sender::new(Condition::new(State::Connecting)),
            offer: watch::Sender::new(Arc::new(Offer::empty(naming.clone()))),
            shown: watch::Sender::new(None),
            current: RwLock::new(None),
            sessions: Sessions::default(),
            signals: Arc::new(Signals::new(broadcast::Sender::new(NOTICES))),
            need: Notify::new(),
            hurried: Mutex::default(),
            rest: TaskTracker::new(),
            ended: CancellationToken::new(),
            stop: stop.clone(),
            config,
            visibility,
            naming: RwLock::new(naming),
            log,
            parts,
            orders,
        });
        inner.parts.tasks.spawn("upstream", keep::keep(inner.clone(), inbox));
        Self { inner, _end: Arc::new(stop.drop_guard()) }
    }

    /// Whether both mean the same running server, not only one of the same name.
    pub fn is(&self, other: &Upstream) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub fn name(&self) -> &ServerName {
        &self.inner.config.name
    }

    pub fn config(&self) -> &ServerConfig {
        &self.inner.config
    }

    pub fn visibility(&self) -> &Visibility {
        &self.inner.visibility
    }

    /// How its tools are named.
    pub fn naming(&self) -> Naming {
        self.inner.naming.read().clone()
    }

    /// Names what it offers anew, without touching its connection.
    pub fn rename(&self, naming: Naming) {
        let mut current = self.inner.naming.write();
        let renamed = self.offer().renamed(&naming, &self.inner.parts.names);
        *current = naming;
        learn::publish(&self.inner, renamed);
    }

    pub fn log(&self) -> &Arc<ServerLog> {
        &self.inner.log
    }

    pub fn state(&self) -> State {
        self.inner.condition.borrow().state.clone()
    }

    pub fn conditions(&self) -> watch::Receiver<Condition> {
        self.inner.condition.subscribe()
    }

    /// What it offers now, or offered when it was last seen.
    pub fn offer(&self) -> Arc<Offer> {
        self.inner.offer.borrow().clone()
    }

    /// Moves when the offer does, not when the same server comes back with the same tools.
    pub fn offers(&self) -> watch::Receiver<Arc<Offer>> {
        self.inner.offer.subscribe()
    }

    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.inner.signals.notices.subscribe()
    }

    pub fn is_connected(&self) -> bool {
        self.inner.condition.borrow().state.is_connected()
    }

    /// The connection for this session. Waits for a server that is being connected, as long as one request may take;
    /// an error means that nothing was sent.
    pub async fn client(&self, session: Uuid) -> Result<Client, Unavailable> {
        if self.inner.isolates() {
            return Box::pin(isolated::client(&self.inner, session)).await;
        }
        match self.inner.connected() {
            Some(client) => Ok(client),
            // Boxed, as all that is rare on the way of a call: a future is as large as the largest it may become.
            None => Box::pin(self.inner.soon()).await,
        }
    }

    /// The connection for a call of this tool. What the server turned out to offer once connected may not be what was
    /// allowed: then there is none.
    pub async fn client_for(&self, session: Uuid, tool: &OfferedTool) -> Result<Client, Unavailable> {
        let client = self.client(session).await?;
        let offer = self.inner.offer.borrow();
        match offer.tool(&tool.exposed) {
            Some(now) if now.is_allowed() && now.hash == tool.hash => Ok(client),
            Some(_) => Err(Unavailable::Changed { server: self.name().clone(), tool: tool::shown(&tool.original) }),
            None => Err(Unavailable::Gone { server: self.name().clone(), tool: tool::shown(&tool.original) }),
        }
    }

    /// Comes back when it is connected, or when it is clear that it will not be soon.
    pub async fn ready(&self) -> Result<(), Unavailable> {
        self.inner.soon_ready().await
    }

    /// Whoever offers its tools to others has done so with these.
    pub fn shown(&self, offer: Arc<Offer>) {
        self.inner.shown.send_replace(Some(offer));
    }

    /// Comes back when what it offers can be called by others, or after a moment: that is somebody else's to do.
    pub async fn is_offered(&self) {
        let mut shown = self.inner.shown.subscribe();
        let current = |shown: &Option<Arc<Offer>>| shown.as_ref().is_some_and(|shown| self.offers_what(shown));
        let _ = timeout(NEAR, shown.wait_for(current)).await;
    }

    /// Connected, and whoever offers its tools to others is about to: `ready` is said when they can be called.
    pub(super) fn is_about_to_be_offered(&self, state: &State) -> bool {
        let shown = self.inner.shown.borrow();
        state.is_connected() && shown.as_ref().is_some_and(|shown| !self.offers_what(shown))
    }

    /// A server that came back with the same tools has another offer that reads the same.
    fn offers_what(&self, shown: &Arc<Offer>) -> bool {
        let offer = self.offer();
        Arc::ptr_eq(shown, &offer) || shown.reads_like(&offer)
    }

    /// Tells of a request that failed: what it says about the connection is looked into at once.
    pub fn failed(&self, error: &RequestError) {
        let is_doubtful = match &error.error {
            // That it is gone is noticed without being told.
            UpstreamError::Transport(TransportError::SessionLost | TransportError::Closed(_)) => false,
            UpstreamError::Transport(_) | UpstreamError::Protocol(ProtocolError::Late(_)) => true,
            UpstreamError::Protocol(_) | UpstreamError::Configuration(_) => false,
        };
        if is_doubtful {
            self.try_now();
        }
    }

    /// Asks the server whether it is there, and says how it is doing then. One that waits for its next try has it now.
    pub async fn check(&self) -> State {
        let (reply, answered) = oneshot::channel();
        let asked = async {
            if self.inner.orders.send(Order::Check(Some(reply))).await.is_ok() {
                let _ = answered.await;
            }
        };
        // One that is being started may take its time; it is shown as that.
        let _ = tokio::time::timeout(CHECK_PATIENCE, asked).await;
        self.state()
    }

    /// One that waits for its next try has it now; one that is connected is asked whether it is there.
    pub fn try_now(&self) {
        // Full: enough of them are waiting.
        let _ = self.inner.orders.try_send(Order::Check(None));
    }

    /// Ends the connection and makes a new one, at once.
    pub fn reconnect(&self) {
        let _ = self.inner.orders.try_send(Order::Reconnect);
    }

    /// Allows tools that are held. Gives the server's names of them.
    pub async fn allow(&self, which: &Which) -> Result<Vec<String>, AllowError> {
        let held: Vec<Arc<OfferedTool>> = self.offer().held().filter(|tool| which.has(tool)).cloned().collect();
        if held.is_empty() {
            return Err(AllowError::NothingHeld);
        }
        let pins: Vec<Pin> = held.iter().map(|tool| tool.pin()).collect();
        self.inner.parts.memory.allow(self.name(), pins).await?;
        let tools: Vec<String> = held.iter().map(|tool| tool.original.clone()).collect();
        self.inner.offer.send_modify(|offer| *offer = Arc::new(offer.with_allowed(&held)));
        // A list that was being compared meanwhile may have missed this.
        self.inner.signals.changed_anything();
        self.inner.parts.witness.happened(self.name(), Happened::Allowed { tools: tools.clone() });
        Ok(tools)
    }

    /// A session is over: what was kept for it alone is closed.
    pub fn session_ended(&self, session: Uuid) {
        if let Some(client) = self.inner.sessions.take(session) {
            self.inner.parts.tasks.spawn("upstream session", async move { client.close().await });
        }
    }

    /// Closes it. Comes back when nothing of it is left.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.ended.cancelled().await;
    }
}

impl Inner {
    /// Whether each session has a process of its own.
    fn isolates(&self) -> bool {
        self.config.isolate && matches!(self.config.endpoint, Some(Endpoint::Stdio(_)))
    }

    fn connector(&self) -> Result<Arc<dyn Connector>, ConfigurationError> {
        if let Some(made) = self.connector.get() {
            return Ok(made.clone());
        }
        let made = self.parts.connectors.connector(&self.config, self.log.clone())?;
        Ok(self.connector.get_or_init(|| made).clone())
    }

    fn connected(&self) -> Option<Client> {
        self.current.read().as_ref().filter(|client| client.is_connected()).cloned()
    }

    /// Changes what it is doing.
    fn becomes(&self, state: State) {
        self.condition.send_if_modified(|condition| condition.becomes(state));
    }
}
