//! One message by POST, and what comes back for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use nexus_core::session::Era;
use nexus_system::outbound::{Calling, Incoming};

use super::Link;
use super::headers::{Agreed, SESSION, session_id};
use crate::upstream::error::TransportError;
use crate::upstream::transport::Outgoing;
use crate::upstream::transport::events::{Event, Events, Position};
use crate::upstream::transport::oversized::{self, Whose};
use crate::upstream::transport::peer::{error_body, refused, told};
use crate::upstream::transport::sse::{self, STREAM};
use crate::upstream::transport::stdio::LONGEST_MESSAGE;

const JSON: &str = "application/json";
/// How long the end of an answer is waited for once the answer is there: the connection can be used again then.
const TRAILER: Duration = Duration::from_millis(500);
/// Between two tries to go on with a stream, where the server does not say.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// A stream that broke off is taken up again so often without anything new.
const MOST_RESUMES: usize = 5;

impl Link {
    /// Sends a message. What answers it goes to the inbox; an error means that nothing will.
    pub(super) async fn post(self: &Arc<Self>, message: Outgoing) -> Result<(), TransportError> {
        let agreed = self.agreed.lock().clone();
        let mut calling = Calling::new("POST", self.peer.url.clone(), told_of(&message));
        calling.headers = agreed.headers(&message);
        calling.headers.push(("Accept".to_owned(), format!("{JSON}, {STREAM}")));
        calling.headers.push(("Content-Type".to_owned(), JSON.to_owned()));
        calling.own_headers = agreed.session_header();
        let answer = match self.older_kind() {
            // It may have to be sent again by another way.
            true => {
                calling.body = Bytes::copy_from_slice(message.text.as_bytes());
                self.peer.call(calling).await?
            }
            false => {
                calling.body = Bytes::from(message.text);
                return self.answered(self.peer.call(calling).await?, message.id, &message.method, &agreed).await;
            }
        };
        if matches!(answer.status, 400 | 404 | 405) {
            return self.fall_back(answer, message).await;
        }
        self.answered(answer, message.id, &message.method, &agreed).await
    }

    /// Whether it still could be a server of the older kind.
    fn older_kind(&self) -> bool {
        self.may_be_sse.load(Ordering::Relaxed)
    }

    /// It does not understand: perhaps it is of the older kind.
    async fn fall_back(self: &Arc<Self>, answer: Incoming, message: Outgoing) -> Result<(), TransportError> {
        let (url, status) = (answer.url.clone(), answer.status);
        let body = error_body(answer).await;
        if let Some(error) = rpc_error(&body) {
            self.may_be_sse.store(false, Ordering::Relaxed);
            return self.refuse(message.id, error, || refused(&url, status, &body));
        }
        let Ok(older) = sse::open(self.peer.clone(), self.inbox.clone(), &self.tasks).await else {
            return Err(refused(&url, status, &body));
        };
        self.is_sse.store(true, Ordering::Relaxed);
        self.older.get_or_init(|| older).send(message).await
    }

    async fn answered(
        self: &Arc<Self>,
        answer: Incoming,
        id: Option<u64>,
        method: &str,
        agreed: &Agreed,
    ) -> Result<(), TransportError> {
        let status = answer.status;
        if status == 404 && agreed.session.is_some() {
            return Err(TransportError::SessionLost);
        }
        if !(200..300).contains(&status) {
            let url = answer.url.clone();
            let body = error_body(answer).await;
            return match rpc_error(&body) {
                Some(error) => self.refuse(id, error, || refused(&url, status, &body)),
                None => Err(refused(&url, status, &body)),
            };
        }
        self.may_be_sse.store(false, Ordering::Relaxed);
        if method == "initialize" {
            self.agreed.lock().session = session_id(answer.header(SESSION));
        }
        let Some(id) = id else {
            // Nothing of it is wanted; read to its end, the connection can be used again.
            let _ = timeout(TRAILER, error_body(answer)).await;
            return Ok(());
        };
        match answer.content_type() {
            STREAM => self.follow(answer, id, agreed.era()).await,
            JSON => {
                let body = answer.whole(LONGEST_MESSAGE).await.map_err(|error| told(&error))?;
                if !answers(&body, id) {
                    return Err(TransportError::Closed("its answer is not to this request".to_owned()));
                }
                self.inbox.arrived(body, Some(id));
                Ok(())
            }
            other => Err(refused(&answer.url, status, &format!("its answer is of the type `{other}`"))),
        }
    }

    /// An error of the protocol that came as one of HTTP: it answers the request, whatever id it says.
    fn refuse(
        &self,
        id: Option<u64>,
        error: &RawValue,
        plain: impl FnOnce() -> TransportError,
    ) -> Result<(), TransportError> {
        let Some(id) = id else { return Err(plain()) };
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        self.inbox.arrived(text.into_bytes(), Some(id));
        Ok(())
    }

    /// Reads the stream of a request until its answer is there; where it breaks off, a new one goes on with it.
    async fn follow(self: &Arc<Self>, stream: Incoming, id: u64, era: Option<Era>) -> Result<(), TransportError> {
        let mut reading =
            Reading { id, events: Events::new(LONGEST_MESSAGE, Position::default()), done: false, news: 0 };
        let mut ended = reading.read(self, stream).await;
        let mut fruitless = 0;
        while !reading.done {
            let position = reading.events.position.clone();
            if era == Some(Era::Modern) || position.last_id.is_none() || fruitless >= MOST_RESUMES {
                return Err(ended.unwrap_or_else(|| {
                    TransportError::Closed("the server ended the stream without an answer".to_owned())
                }));
            }
            sleep(position.pause.unwrap_or(PAUSE)).await;
            reading.events = Events::new(LONGEST_MESSAGE, position);
            let before = reading.news;
            ended = match self.stream(&reading.events.position).await {
                Ok(stream) => reading.read(self, stream).await,
                Err(error @ TransportError::Closed(_)) => Some(error),
                // It may only be starting anew.
                Err(error @ TransportError::Unreachable { .. }) => Some(TransportError::Closed(error.to_string())),
                Err(error) => {
                    // The server had taken the request: whatever keeps us from its answer, it may have happened.
                    let why = format!("the stream with the answer could not be taken up again: {error}");
                    self.inbox.failed(id, TransportError::Closed(why));
                    return Err(error);
                }
            };
            fruitless = if reading.news > before { 0 } else { fruitless + 1 };
        }
        Ok(())
    }

    /// Opens a stream by GET, from where the last one broke off.
    pub(super) async fn stream(&self, position: &Position) -> Result<Incoming, TransportError> {
        let agreed = self.agreed.lock().clone();
        let mut calling = Calling::new("GET", self.peer.url.clone(), "stream of messages");
        calling.headers = agreed.bare_headers();
        calling.headers.push(("Accept".to_owned(), STREAM.to_owned()));
        calling.own_headers = agreed.session_header();
        calling.own_headers.extend(position.last_id.iter().map(|id| ("Last-Event-ID".to_owned(), id.clone())));
        calling.recorded = nexus_system::outbound::Recorded::WhenItOpens;
        let stream = self.peer.call(calling).await?;
        match stream.status {
            200 if stream.content_type() == STREAM => Ok(stream),
            404 if agreed.session.is_some() => Err(TransportError::SessionLost),
            status => {
                let url = stream.url.clone();
                Err(refused(&url, status, &error_body(stream).await))
            }
        }
    }
}

/// The streams of one request.
struct Reading {
    id: u64,
    events: Events,
    done: bool,
    /// Events that have come.
    news: u64,
}

impl Reading {
    /// Until the answer is there or the stream ends; an error says how it broke.
    async fn read(&mut self, link: &Link, mut stream: Incoming) -> Option<TransportError> {
        loop {
            match stream.chunk().await {
                Ok(Some(piece)) => self.take(link, &piece),
                Ok(None) => return None,
                Err(error) => return Some(told(&error)),
            }
            if self.done {
                let rest = async { while let Ok(Some(_)) = stream.chunk().await {} };
                let _ = timeout(TRAILER, rest).await;
                return None;
            }
        }
    }

    fn take(&mut self, link: &Link, piece: &[u8]) {
        let Self { id, events, done, news } = self;
        events.take(piece, &mut |event| {
            *news += 1;
            match event {
                Event::Message(message) => {
                    *done = *done || answers(&message, *id);
                    link.inbox.arrived(message, Some(*id));
                }
                Event::Oversized(Whose::Nobodys) => link.peer.log.note("a message that is too large was not taken"),
                Event::Oversized(_) => {
                    *done = true;
                    link.inbox.failed(*id, TransportError::TooLarge { limit: LONGEST_MESSAGE });
                }
                Event::Other(..) => {}
            }
        });
    }
}

/// For the record: `tools/call add`.
fn told_of(message: &Outgoing) -> String {
    match &message.name {
        Some(name) => format!("{} {}", message.method, nexus_core::text::cut(&nexus_core::text::clean(name), 80)),
        None => message.method.clone().into_owned(),
    }
}

/// Whether a message is the answer to this request. Mostly its first bytes tell.
fn answers(message: &[u8], id: u64) -> bool {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
    }
    match oversized::whose(message, message) {
        Whose::Request(found) => found == id,
        Whose::Nobodys => false,
        Whose::Unknown => serde_json::from_slice::<Envelope<'_>>(message).is_ok_and(|envelope| {
            envelope.method.is_none()
                && envelope.id.is_none_or(|found| found.get() == id.to_string() || found.get() == "null")
        }),
    }
}

/// The error of a JSON-RPC answer, if the body is one.
fn rpc_error(body: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        #[serde(borrow)]
        error: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "code")]
        _code: i64,
        #[serde(rename = "message")]
        _message: String,
    }
    let refusal: Refusal<'_> = serde_json::from_str(body).ok()?;
    serde_json::from_str::<Shape>(refusal.error.get()).ok().map(|_| refusal.error)
}
