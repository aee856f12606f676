//! How an answer leaves by HTTP: as JSON when it is ready at once, as a stream of events when the
//! tool has something to say first or takes its time.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, stream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use super::{Front, KEEP_ALIVE};
use crate::exchange::{Exchange, Running};
use crate::server::{Server, broken};
use crate::wire::{self, Request, RequestId, RpcError};

type Answer = Result<String, RpcError>;

/// A call that is silent for this long gets a stream, so that nobody between us and the client
/// takes the connection for dead.
const QUIET: Duration = Duration::from_secs(2);

/// Answers a request, never with a panic.
pub async fn answer(server: Arc<Server>, request: Request, exchange: Arc<Exchange>) -> Answer {
    AssertUnwindSafe(server.answer(&request, exchange)).catch_unwind().await.unwrap_or_else(|_| Err(broken()))
}

/// Runs a request and turns whatever comes of it into a response.
///
/// Most are done soon: they cost no task and no channel hop. What has something to say first, or takes long, goes on in
/// a task of its own. In the old era a request outlives a lost connection, in the new one it does not.
pub async fn respond(
    front: &Front,
    request: Request,
    exchange: Exchange,
    mut inbox: mpsc::Receiver<String>,
) -> Response {
    let id = request.id.clone();
    let era = exchange.era;
    let cancel = exchange.cancel.clone();
    // In the new era every request stands alone: its id can clash with none, and hanging up cancels it.
    let running = match era {
        Era::Legacy => match exchange.peer.start(&id, &cancel) {
            Some(running) => Some(running),
            None => return json(StatusCode::BAD_REQUEST, wire::error_response(Some(&id), &RpcError::id_in_use())),
        },
        Era::Modern => None,
    };
    let answering = Box::pin(answer(front.server.clone(), request, Arc::new(exchange)));
    let mut answering = Answering { work: Some(answering), running, tasks: front.tasks.clone() };
    let guard = (era == Era::Modern).then(|| cancel.clone().drop_guard());
    let (first, waited) = tokio::select! {
        biased;
        answer = answering.done() => (None, Some(answer)),
        first = inbox.recv() => (first, None),
        () = sleep(QUIET) => (None, None),
    };
    match waited {
        Some(_) if era == Era::Legacy && cancel.is_cancelled() => event_stream(Body::empty()),
        Some(answer) => {
            guard.map(DropGuard::disarm);
            finished(&id, era, answer, &mut inbox)
        }
        None => Events::start(id, first, inbox, answering.in_the_background(), cancel, guard),
    }
}

/// A request that is being answered by whoever waits for the answer; once they go, by a task of its own.
struct Answering {
    work: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    running: Option<Running>,
    tasks: Tasks,
}

impl Answering {
    async fn done(&mut self) -> Answer {
        let Some(work) = &mut self.work else { return Err(broken()) };
        let answer = work.await;
        self.work = None;
        self.running = None;
        answer
    }

    fn in_the_background(mut self) -> oneshot::Receiver<Answer> {
        let (done, ending) = oneshot::channel();
        let (work, running) = (self.work.take(), self.running.take());
        self.tasks.spawn("request", async move {
            if let Some(work) = work {
                let answer = work.await;
                drop(running);
                let _ = done.send(answer);
            }
        });
        ending
    }
}

impl Drop for Answering {
    /// The connection is lost. In the old era that cancels nothing; in the new one it has been told, and ends in order.
    fn drop(&mut self) {
        let (work, running) = (self.work.take(), self.running.take());
        if let Some(work) = work {
            self.tasks.spawn("request", async move {
                work.await.ok();
                drop(running);
            });
        }
    }
}

/// All is said: one JSON document, or a short stream when there were notifications on the way.
fn finished(id: &RequestId, era: Era, answer: Answer, inbox: &mut mpsc::Receiver<String>) -> Response {
    // In the old era a status tells of the session: 404 would make the client open a new one.
    let status = match &answer {
        Err(error) if era == Era::Modern => error.status,
        _ => 200,
    };
    let text = wire::response(id, answer);
    match inbox.try_recv() {
        Err(_) => json(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), text),
        Ok(first) => {
            let mut out = event(&first);
            while let Ok(next) = inbox.try_recv() {
                out.push_str(&event(&next));
            }
            out.push_str(&event(&text));
            event_stream(Body::from(out))
        }
    }
}

/// A request's stream: what the tool says, then the answer.
struct Events {
    id: RequestId,
    first: Option<String>,
    inbox: mpsc::Receiver<String>,
    ending: oneshot::Receiver<Answer>,
    cancel: CancellationToken,
    /// New era: hanging up is cancelling.
    guard: Option<DropGuard>,
    keep_alive: Interval,
    over: bool,
}

impl Events {
    fn start(
        id: RequestId,
        first: Option<String>,
        inbox: mpsc::Receiver<String>,
        ending: oneshot::Receiver<Answer>,
        cancel: CancellationToken,
        guard: Option<DropGuard>,
    ) -> Response {
        let events = Self { id, first, inbox, ending, cancel, guard, keep_alive: keep_alive(), over: false };
        let stream = stream::unfold(events, |mut events| async move {
            events.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), events))
        });
        event_stream(Body::from_stream(stream))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(event(&first).into());
        }
        tokio::select! {
            biased;
            Some(message) = self.inbox.recv() => Some(event(&message).into()),
            ended = &mut self.ending => {
                self.over = true;
                let mut out = String::new();
                while let Ok(message) = self.inbox.try_recv() {
                    out.push_str(&event(&message));
                }
                // In the old era a cancelled request gets no answer.
                let wanted = self.guard.take().map(DropGuard::disarm).is_some() || !self.cancel.is_cancelled();
                if wanted {
                    out.push_str(&event(&wire::response(&self.id, ended.unwrap_or_else(|_| Err(broken())))));
                }
                Some(out.into())
            }
            _ = self.keep_alive.tick() => Some(Bytes::from_static(COMMENT)),
        }
    }
}

const COMMENT: &[u8] = b": alive\n\n";

pub fn keep_alive() -> Interval {
    let mut ticks = interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A stream that gives what `next` gives, with signs of life in between, until `next` gives nothing.
pub fn with_signs_of_life<S, F>(state: S, next: F) -> impl Stream<Item = Result<Bytes, Infallible>> + Send
where
    S: Send + 'static,
    F: for<'a> Fn(&'a mut S) -> Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>> + Send + 'static,
{
    stream::unfold((state, keep_alive(), next), |(mut state, mut ticks, next)| async move {
        let bytes = tokio::select! {
            biased;
            said = next(&mut state) => Bytes::from(said?),
            _ = ticks.tick() => Bytes::from_static(COMMENT),
        };
        Some((Ok(bytes), (state, ticks, next)))
    })
}

/// One event. JSON text has no raw line ends, so one data line is enough.
pub fn event(message: &str) -> String {
    let mut out = String::with_capacity(message.len() + 24);
    out.push_str("event: message\ndata: ");
    out.push_str(message);
    out.push_str("\n\n");
    out
}

pub fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub fn json(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
