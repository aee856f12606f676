//! A server that is called by Streamable HTTP, in either era: every message is a request of its own, and the answer is
//! one message or a stream of them.

mod credentials;
mod headers;
mod listen;
mod post;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use nexus_core::audit::Sink;
use nexus_core::session::Era;
use nexus_core::tasks::Tasks;
use nexus_system::outbound::Calling;

pub use credentials::{Challenged, Credentials};
use headers::Agreed;

use super::peer::Peer;
use super::{Connector, Inbox, Outgoing, Transport, sse};
use crate::upstream::config::{HttpEndpoint, HttpKind};
use crate::upstream::error::TransportError;
use crate::upstream::log::ServerLog;

/// How long a server may take to accept what needs no answer, and to end a session.
const ACCEPTING: Duration = Duration::from_secs(10);
const GOODBYE: Duration = Duration::from_secs(2);
/// And to open its stream of messages, before calls go without.
const OPENING: Duration = Duration::from_secs(2);

/// Connects by HTTP, of whichever kind the server understands.
#[derive(Debug)]
pub struct HttpConnector {
    peer: Result<Arc<Peer>, TransportError>,
    kind: HttpKind,
    /// [`HttpKind::Auto`] has found that it is the older kind.
    is_sse: Arc<AtomicBool>,
    tasks: Tasks,
}

impl HttpConnector {
    pub fn new(
        endpoint: HttpEndpoint,
        audit: Arc<dyn Sink>,
        credentials: Option<Arc<dyn Credentials>>,
        log: Arc<ServerLog>,
        tasks: Tasks,
    ) -> Self {
        let kind = endpoint.kind;
        let is_sse = Arc::new(AtomicBool::new(kind == HttpKind::Sse));
        Self { peer: Peer::new(endpoint, audit, credentials, log).map(Arc::new), kind, is_sse, tasks }
    }

    async fn start(&self, inbox: Arc<dyn Inbox>) -> Result<Arc<dyn Transport>, TransportError> {
        let peer = self.peer.clone()?;
        if self.is_shared_stream() {
            return sse::open(peer, inbox, &self.tasks).await;
        }
        let link = Link {
            peer,
            inbox,
            tasks: self.tasks.clone(),
            agreed: Mutex::default(),
            open: Mutex::default(),
            older: OnceLock::new(),
            may_be_sse: AtomicBool::new(self.kind == HttpKind::Auto),
            is_sse: self.is_sse.clone(),
            heard: OnceLock::new(),
            over: CancellationToken::new(),
        };
        Ok(Arc::new(HttpTransport(Arc::new(link))))
    }
}

impl Connector for HttpConnector {
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportError>> {
        Box::pin(self.start(inbox))
    }

    fn describe(&self) -> String {
        self.peer.as_ref().map_or_else(ToString::to_string, |peer| peer.url.to_string())
    }

    fn is_shared_stream(&self) -> bool {
        self.is_sse.load(Ordering::Relaxed)
    }
}

/// The handle that others have: what it started ends with it.
struct HttpTransport(Arc<Link>);

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("url", &self.0.peer.url).finish_non_exhaustive()
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.0.over.cancel();
    }
}

/// One connection, in the sense of the protocol.
struct Link {
    peer: Arc<Peer>,
    inbox: Arc<dyn Inbox>,
    tasks: Tasks,
    agreed: Mutex<Agreed>,
    /// Requests whose answer has not come.
    open: Mutex<HashMap<u64, CancellationToken>>,
    /// The way everything goes once the server has turned out to be of the older kind.
    older: OnceLock<Arc<dyn Transport>>,
    /// Until it has understood something.
    may_be_sse: AtomicBool,
    /// The connector's: next time it is known at once.
    is_sse: Arc<AtomicBool>,
    /// Old era: from when on a stream of messages was asked for, and whether it is known to be open or not to be.
    heard: OnceLock<(Instant, CancellationToken)>,
    over: CancellationToken,
}

impl Transport for HttpTransport {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), TransportError>> {
        let link = &self.0;
        if let Some(older) = link.older.get() {
            return older.send(message);
        }
        if link.over.is_cancelled() {
            return Box::pin(std::future::ready(Err(closed_by_hub())));
        }
        match message.id {
            // The next message must not overtake it.
            None => Box::pin(link.deliver(message)),
            Some(id) => {
                link.ask(id, message);
                Box::pin(std::future::ready(Ok(())))
            }
        }
    }

    fn abandon(&self, request: u64) {
        if let Some(asking) = self.0.open.lock().remove(&request) {
            asking.cancel();
        }
    }

    fn agreed(&self, era: Era, version: &str) {
        let link = &self.0;
        link.agreed.lock().protocol = Some((era, version.to_owned()));
        if era == Era::Legacy && link.older.get().is_none() {
            let _ = link.heard.set((Instant::now(), CancellationToken::new()));
            let listening = link.clone();
            link.tasks.spawn("upstream stream", async move {
                tokio::select! {
                    () = listening.listen() => {}
                    () = listening.over.cancelled() => {}
                    () = stopping(&listening.tasks) => {}
                }
            });
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }
}

async fn stopping(tasks: &Tasks) {
    tasks.stopping().cancelled().await;
}

impl Link {
    /// A notification, or an answer to the server.
    async fn deliver(self: &Arc<Self>, message: Outgoing) -> Result<(), TransportError> {
        let late = || TransportError::Closed("the server does not accept the message".to_owned());
        timeout(ACCEPTING, self.post(message)).await.unwrap_or_else(|_| Err(late()))
    }

    /// Sends a request from a task of its own; whatever comes of it goes to the inbox.
    fn ask(self: &Arc<Self>, id: u64, message: Outgoing) {
        let token = self.over.child_token();
        self.open.lock().insert(id, token.clone());
        let link = self.clone();
        self.tasks.spawn("upstream request", async move {
            let outcome = tokio::select! {
                outcome = async { link.listening(&message.method).await; link.post(message).await } => outcome,
                () = token.cancelled() => Ok(()),
                () = stopping(&link.tasks) => Err(closed_by_hub()),
            };
            link.open.lock().remove(&id);
            if let Err(error) = outcome {
                let lost = matches!(error, TransportError::SessionLost);
                link.inbox.failed(id, error);
                if lost {
                    link.inbox.closed(TransportError::SessionLost);
                }
            }
        });
    }

    /// A call may make the server ask something, and what it asks while its stream is not open is lost. A listing does not.
    async fn listening(&self, method: &str) {
        if let Some((since, heard)) = self.heard.get()
            && !method.ends_with("/list")
        {
            let _ = timeout_at(*since + OPENING, heard.cancelled()).await;
        }
    }

    /// Ends the session, where there is one, and everything that is still open.
    async fn close(&self) {
        if let Some(older) = self.older.get() {
            return older.close().await;
        }
        let agreed = self.agreed.lock().clone();
        if agreed.session.is_some() && !self.over.is_cancelled() {
            let mut calling = Calling::new("DELETE", self.peer.url.clone(), "end of the session");
            calling.headers = agreed.bare_headers();
            calling.own_headers = agreed.session_header();
            let _ = timeout(GOODBYE, self.peer.call(calling)).await;
        }
        self.over.cancel();
        self.inbox.closed(closed_by_hub());
    }
}

fn closed_by_hub() -> TransportError {
    TransportError::Closed("closed by the hub".to_owned())
}

#[cfg(test)]
mod tests;
