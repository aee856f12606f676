//! HTTP+SSE of 2024-11-05: a stream at `/sse`, and messages posted to the address it names.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use nexus_core::principal::Principal;
use nexus_core::session::{Era, Transport};

use super::Front;
use super::duplex::{Caller, Duplex};
use super::http::read_body;
use super::identity::OpenStream;
use super::stream::{event, event_stream, with_signs_of_life};
use crate::exchange::OUTBOX;

/// The connections behind the open streams, by session id.
pub type Streams = Mutex<HashMap<Box<str>, Arc<Duplex>>>;

/// Opens the stream. The session lives as long as it does.
pub async fn open(State(front): State<Arc<Front>>, Extension(principal): Extension<Arc<Principal>>) -> Response {
    if !front.server.protocol.speaks(Era::Legacy) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Some(connected) = front.sessions.open(&principal, Transport::Sse) else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")]).into_response();
    };
    let Some(open) = connected.stream() else { return StatusCode::CONFLICT.into_response() };
    front.sessions.started(&connected);
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let duplex = Duplex::new(front.server.clone(), front.tasks.clone(), outbox);
    let duplex = Arc::new(duplex);
    // The table alone keeps it: when the stream is gone, nothing is left to write to.
    let behind = Arc::downgrade(&duplex);
    front.streams.lock().insert(connected.id.clone(), duplex);

    let address = format!("event: endpoint\ndata: /messages?sessionId={}\n\n", connected.id);
    let feed = Feed { keys: front.keys.changes(), front, principal, open, inbox, duplex: behind };
    let messages = with_signs_of_life(feed, |feed| feed.next().boxed());
    event_stream(Body::from_stream(stream::iter([Ok(address.into())]).chain(messages)))
}

/// What goes down the stream. When it is dropped, because either side hung up, the session is over.
struct Feed {
    front: Arc<Front>,
    principal: Arc<Principal>,
    open: OpenStream,
    inbox: mpsc::Receiver<String>,
    duplex: Weak<Duplex>,
    keys: watch::Receiver<u64>,
}

/// The hub is to end, and everything that was asked on this stream has been answered.
async fn drained(front: &Front, duplex: &Weak<Duplex>) {
    front.server.closing.cancelled().await;
    if let Some(duplex) = duplex.upgrade() {
        duplex.drained().await;
    }
}

impl Feed {
    async fn next(&mut self) -> Option<String> {
        tokio::select! {
            biased;
            message = self.inbox.recv() => message.map(|message| event(&message)),
            () = self.open.0.ended.cancelled() => None,
            () = drained(&self.front, &self.duplex) => self.inbox.try_recv().ok().map(|message| event(&message)),
            () = self.front.revoked(&self.principal, &mut self.keys) => None,
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let id = &self.open.0.id;
        // Nobody is left to answer to.
        self.front.streams.lock().remove(id).inspect(|duplex| duplex.hang_up());
        self.front.sessions.close(id, &self.principal);
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    session_id: String,
}

/// Takes one message; its answer goes down the stream.
pub async fn post(
    State(front): State<Arc<Front>>,
    Extension(principal): Extension<Arc<Principal>>,
    address: Result<Query<Address>, QueryRejection>,
    request: Request,
) -> Response {
    let Ok(Query(Address { session_id })) = address else {
        return (StatusCode::BAD_REQUEST, "the query must name the sessionId that /sse gave\n").into_response();
    };
    // The same answer for an unknown session and for another key's.
    let duplex = front
        .sessions
        .find(&session_id, &principal)
        .and_then(|connected| Some((front.streams.lock().get(&connected.id).cloned()?, connected)));
    let Some((duplex, connected)) = duplex else {
        return (StatusCode::NOT_FOUND, "no such session: open /sse again\n").into_response();
    };
    let (head, body) = request.into_parts();
    match read_body(&front, &head.headers, body).await {
        Ok(bytes) => {
            let (session, keys) = (front.sessions.of(&connected, &principal), front.keys_of(&principal));
            duplex.receive(&Caller { principal, session, keys }, &bytes).await;
            (StatusCode::ACCEPTED, "Accepted").into_response()
        }
        Err(refusal) => refusal,
    }
}
