//! A server of the first kind that was called over HTTP (2024-11-05): one stream that brings everything, and an address
//! it names there for what goes the other way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use nexus_core::tasks::Tasks;
use nexus_system::outbound::{Calling, Incoming, Recorded, SafeUrl};

use super::events::{Event, Events, Position};
use super::oversized::Whose;
use super::peer::{self, Peer};
use super::stdio::LONGEST_MESSAGE;
use super::{Inbox, Outgoing, Transport};
use crate::upstream::error::TransportError;
use crate::upstream::log::ServerLog;

/// How long the stream may take to open and to name the address for messages.
const OPENING: Duration = Duration::from_secs(30);
/// How long a server may take to accept a message.
const ACCEPTING: Duration = Duration::from_secs(30);

pub(super) const STREAM: &str = "text/event-stream";

/// Opens the stream and waits for the address it names.
pub(super) async fn open(
    peer: Arc<Peer>,
    inbox: Arc<dyn Inbox>,
    tasks: &Tasks,
) -> Result<Arc<dyn Transport>, TransportError> {
    let late = || TransportError::Unreachable { url: peer.url.to_string(), reason: "its stream does not begin".into() };
    let (mut reader, messages) = timeout(OPENING, begin(&peer, inbox.clone())).await.map_err(|_| late())??;
    let over = CancellationToken::new();
    let (end, stopping) = (over.clone(), tasks.stopping());
    tasks.spawn("upstream stream", async move {
        let why = tokio::select! {
            why = reader.read() => why,
            () = end.cancelled() => "closed by the hub".to_owned(),
            () = stopping.cancelled() => "closed by the hub".to_owned(),
        };
        end.cancel();
        reader.inbox.closed(TransportError::Closed(why));
    });
    Ok(Arc::new(SseTransport { peer, messages, inbox, over }))
}

async fn begin(peer: &Arc<Peer>, inbox: Arc<dyn Inbox>) -> Result<(Reader, SafeUrl), TransportError> {
    let mut calling = Calling::new("GET", peer.url.clone(), "stream of messages");
    calling.headers = vec![("Accept".to_owned(), STREAM.to_owned())];
    calling.recorded = Recorded::WhenItOpens;
    let stream = peer.call(calling).await?;
    if stream.status != 200 || stream.content_type() != STREAM {
        let (url, status) = (stream.url.clone(), stream.status);
        return Err(peer::refused(&url, status, &peer::error_body(stream).await));
    }
    let events = Events::new(LONGEST_MESSAGE, Position::default());
    let mut reader = Reader { peer: peer.clone(), inbox, stream, events, named: None };
    loop {
        if let Some(named) = reader.named.take() {
            let url = reader.stream.url.clone();
            let messages = url.join(&named).ok().filter(|messages| messages.is_beside(&peer.url));
            let elsewhere = || TransportError::Forbidden {
                url: url.to_string(),
                reason: "it wants messages to go to another server".to_owned(),
            };
            return Ok((reader, messages.ok_or_else(elsewhere)?));
        }
        if !reader.step().await? {
            return Err(TransportError::Closed("its stream ended before it began".to_owned()));
        }
    }
}

struct Reader {
    peer: Arc<Peer>,
    inbox: Arc<dyn Inbox>,
    stream: Incoming,
    events: Events,
    /// The address for messages.
    named: Option<String>,
}

impl Reader {
    /// Reads to the end of the stream, and says how it ended.
    async fn read(&mut self) -> String {
        loop {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return "the server ended its stream".to_owned(),
                Err(TransportError::Closed(why)) => return why,
                Err(error) => return error.to_string(),
            }
        }
    }

    async fn step(&mut self) -> Result<bool, TransportError> {
        let Some(piece) = self.stream.chunk().await.map_err(|error| peer::told(&error))? else { return Ok(false) };
        let Self { peer, inbox, events, named, .. } = self;
        events.take(&piece, &mut |event| match event {
            Event::Message(message) => inbox.arrived(message, None),
            Event::Other(kind, address) if kind == "endpoint" => *named = String::from_utf8(address).ok(),
            Event::Other(..) => {}
            Event::Oversized(whose) => too_large(&peer.log, inbox.as_ref(), whose),
        });
        Ok(true)
    }
}

/// A message on a stream that all requests share was not taken.
pub(super) fn too_large(log: &ServerLog, inbox: &dyn Inbox, whose: Whose) {
    log.note("a message that is too large was not taken");
    let error = TransportError::TooLarge { limit: LONGEST_MESSAGE };
    match whose {
        Whose::Request(id) => inbox.failed(id, error),
        Whose::Nobodys => {}
        Whose::Unknown => inbox.lost(error),
    }
}

struct SseTransport {
    peer: Arc<Peer>,
    messages: SafeUrl,
    inbox: Arc<dyn Inbox>,
    over: CancellationToken,
}

impl std::fmt::Debug for SseTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SseTransport").field("url", &self.peer.url).finish_non_exhaustive()
    }
}

impl SseTransport {
    async fn post(&self, message: Outgoing) -> Result<(), TransportError> {
        if self.over.is_cancelled() {
            return Err(TransportError::Closed("its stream has ended".to_owned()));
        }
        let mut calling = Calling::new("POST", self.messages.clone(), message.method.into_owned());
        calling.headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        calling.body = Bytes::from(message.text);
        let sending = async {
            let answer = self.peer.call(calling).await?;
            let (url, status) = (answer.url.clone(), answer.status);
            let body = peer::error_body(answer).await;
            if (200..300).contains(&status) { Ok(()) } else { Err(peer::refused(&url, status, &body)) }
        };
        let late = || TransportError::Closed("the server does not accept the message".to_owned());
        let sent = timeout(ACCEPTING, sending).await.unwrap_or_else(|_| Err(late()));
        match (sent, message.id) {
            // It may have arrived: not an error of sending.
            (Err(error @ (TransportError::Closed(_) | TransportError::Http { status: 500.., .. })), Some(id)) => {
                self.inbox.failed(id, error);
                Ok(())
            }
            (sent, _) => sent,
        }
    }
}

impl Transport for SseTransport {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(self.post(message))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.over.cancel();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for SseTransport {
    fn drop(&mut self) {
        self.over.cancel();
    }
}
