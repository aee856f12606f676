//! A connection that carries messages both ways, whatever carries it: stdin and stdout, or HTTP+SSE.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use nexus_core::principal::Principal;
use nexus_core::session::{Era, Session};
use nexus_core::tasks::Tasks;

use super::auth::Keys;
use super::stream::answer;
use crate::exchange::{Exchange, Peer};
use crate::server::Server;
use crate::version::{self, LAST_WITH_BATCHES};
use crate::wire::{self, Incoming, Message, Params, Request, RequestId, RpcError};

/// Requests of one connection that are answered at once; subscriptions are counted elsewhere. More are refused,
/// not waited for: behind them may come the cancellation of one.
const AT_ONCE: usize = 256;

/// Whose message it is: a connection may outlive the session it began in.
#[derive(Debug)]
pub struct Caller {
    pub principal: Arc<Principal>,
    pub session: Arc<Session>,
    /// The keys in force, where it came with one.
    pub keys: Option<Arc<Keys>>,
}

#[derive(Debug)]
pub struct Duplex {
    server: Arc<Server>,
    tasks: Tasks,
    peer: Arc<Peer>,
    outbox: mpsc::Sender<String>,
    places: Arc<Semaphore>,
    /// Cancelled when nobody is left to answer to.
    gone: CancellationToken,
}

impl Duplex {
    pub fn new(server: Arc<Server>, tasks: Tasks, outbox: mpsc::Sender<String>) -> Self {
        Self {
            server,
            tasks,
            peer: Arc::default(),
            outbox,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            gone: CancellationToken::new(),
        }
    }

    /// Takes one message as it came. Answers go to the outbox, in the order in which they are ready.
    pub async fn receive(&self, caller: &Caller, bytes: &[u8]) {
        match Incoming::parse(bytes) {
            Ok(Incoming::One(message)) => self.take(caller, message).await,
            Ok(Incoming::Batch(messages))
                if self.peer.version.get().is_some_and(|version| *version <= LAST_WITH_BATCHES) =>
            {
                // Answering each on its own is allowed, and no client waits longer for it.
                for message in messages {
                    match message {
                        Ok(message) => self.take(caller, message).await,
                        Err(error) => self.refuse(None, &error).await,
                    }
                }
            }
            Ok(Incoming::Batch(_)) => {
                self.refuse(None, &RpcError::invalid_request("this protocol version takes one message at a time"))
                    .await;
            }
            Err(error) => self.refuse(None, &error).await,
        }
    }

    /// Waits until everything that was asked has been answered.
    pub async fn drained(&self) {
        let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }

    /// Cancels everything that is still running.
    pub fn hang_up(&self) {
        self.gone.cancel();
    }

    async fn take(&self, caller: &Caller, message: Message) {
        match message {
            Message::Request(request) => self.request(caller, request).await,
            Message::Notification { method, params } => self.notified(&method, params.as_deref()),
            Message::Response { id, answer } => {
                if !self.peer.settle(&id, answer) {
                    debug!("an answer to nothing we asked");
                }
            }
        }
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        let Ok(params) = Params::parse(params) else { return };
        if let ("notifications/cancelled", Some(id)) = (method, RequestId::of_params(&params)) {
            self.peer.cancel(&id);
        }
    }

    async fn request(&self, caller: &Caller, request: Request) {
        let id = request.id.clone();
        let exchange = match self.exchange(caller, &request) {
            Ok(exchange) => exchange,
            Err(error) => return self.refuse(Some(&id), &error).await,
        };
        let cancel = exchange.cancel.clone();
        let Some(running) = self.peer.start(&id, &cancel) else {
            return self.refuse(Some(&id), &RpcError::id_in_use()).await;
        };
        let listens = request.method == "subscriptions/listen";
        let place = self.places.clone().try_acquire_owned().ok();
        if place.is_none() && !listens {
            return self
                .refuse(Some(&id), &RpcError::invalid_request("too many requests at once; wait for some answers"))
                .await;
        }
        let place = place.filter(|_| !listens);
        let opens = request.method == "initialize";
        let (server, outbox) = (self.server.clone(), self.outbox.clone());
        let work = async move {
            let answer = answer(server, request, Arc::new(exchange)).await;
            drop(running);
            // A cancelled request gets no answer.
            if !cancel.is_cancelled() {
                let _ = outbox.send(wire::response(&id, answer)).await;
            }
            drop(place);
        };
        if opens {
            // What follows may rely on what it settles.
            work.await;
            self.announce_changes();
        } else {
            self.tasks.spawn("request", work);
        }
    }

    fn exchange(&self, caller: &Caller, request: &Request) -> Result<Exchange, RpcError> {
        let params = Params::parse(request.params.as_deref())?;
        let said = params.meta.as_ref().and_then(|meta| meta.version.as_deref()).map(version::era_of);
        let era = said.unwrap_or(if request.method == "server/discover" { Era::Modern } else { Era::Legacy });
        let new = |era| {
            Exchange::new(
                request.id.clone(),
                caller.principal.clone(),
                caller.session.clone(),
                era,
                self.peer.clone(),
                self.outbox.clone(),
            )
        };
        let mut exchange = new(era);
        exchange.keys = caller.keys.clone();
        exchange.cancel = self.gone.child_token();
        match era {
            Era::Modern => self.server.accept_modern(&params, &mut exchange)?,
            Era::Legacy if !self.server.protocol.speaks(Era::Legacy) => {
                return Err(self.server.unsupported(params.protocol_version.as_deref().unwrap_or(version::LEGACY[0])));
            }
            Era::Legacy => {
                let first = matches!(request.method.as_str(), "initialize" | "ping");
                if self.peer.version.get().is_none() && !first {
                    return Err(RpcError::invalid_request(
                        "send `initialize` first, or `_meta` with a protocolVersion from 2026-07-28 on",
                    ));
                }
                if self.peer.version.get().is_some() && request.method == "initialize" {
                    return Err(RpcError::invalid_request("this connection is initialised already"));
                }
                exchange.capabilities = self.peer.capabilities.get().cloned().unwrap_or_default();
                exchange.client_name = caller.session.client().cloned();
            }
        }
        exchange.progress_token = params.meta.as_ref().and_then(|meta| meta.progress_token).map(ToOwned::to_owned);
        Ok(exchange)
    }

    /// In the old era a connection is told of changes without asking.
    fn announce_changes(&self) {
        let mut news = self.server.news();
        let closing = self.server.closing.clone();
        let (outbox, peer) = (self.outbox.downgrade(), Arc::downgrade(&self.peer));
        self.tasks.spawn("changes", async move {
            loop {
                let Some(closed) = outbox.upgrade() else { return };
                let moved = tokio::select! {
                    () = closing.cancelled() => return,
                    () = closed.closed() => return,
                    moved = news.next() => moved,
                };
                let (Some(moved), Some(peer)) = (moved, peer.upgrade()) else { return };
                if let Some(told) = moved.told_to(&peer) {
                    let _ = closed.try_send(told);
                }
            }
        });
    }

    async fn refuse(&self, id: Option<&RequestId>, error: &RpcError) {
        let _ = self.outbox.send(wire::error_response(id, error)).await;
    }
}
