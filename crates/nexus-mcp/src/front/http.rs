//! Streamable HTTP at `/mcp`, both eras on one URL.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::join_all;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use nexus_core::principal::Principal;
use nexus_core::session::{Era, Transport};

use super::guard::text;
use super::identity::{Connected, OpenStream};
use super::stream::{answer, event, event_stream, json, respond, with_signs_of_life};
use super::unread::Lent;
use super::{Front, LARGEST_BODY, SLOWEST_SENDER, guard, mirror};
use crate::exchange::{Exchange, OUTBOX};
use crate::server::News;
use crate::version::{self, LAST_WITH_BATCHES};
use crate::wire::{self, INTERNAL_ERROR, Incoming, Message, Params, Request, RequestId, RpcError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The busy route: it does without a router and what that would take of every request.
pub async fn mcp(front: &Arc<Front>, peer: IpAddr, head: Parts, body: Lent) -> Response {
    let principal = match guard::principal(front, &head, peer).await {
        Ok(principal) => principal,
        Err(refused) => return refused,
    };
    let modern = text(&head.headers, VERSION).is_some_and(|version| version::era_of(version) == Era::Modern);
    let sessions = front.server.protocol.speaks(Era::Legacy) && !modern;
    match head.method {
        Method::POST => post(front, principal, &head.headers, body).await,
        Method::GET if sessions => get(front, &principal, &head.headers),
        Method::DELETE if sessions => delete(front, &principal, &head.headers),
        _ => {
            let allowed = if sessions { "POST, GET, DELETE" } else { "POST" };
            (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, allowed)]).into_response()
        }
    }
}

/// Reads a body of bounded size in bounded time.
pub async fn read_body<B>(front: &Front, headers: &HeaderMap, body: B) -> Result<Bytes, Response>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    read_at_most(LARGEST_BODY, SLOWEST_SENDER, front, headers, body).await
}

/// The same, for whole mebibytes and a time.
pub async fn read_at_most<B>(
    most: usize,
    patience: Duration,
    front: &Front,
    headers: &HeaderMap,
    body: B,
) -> Result<Bytes, Response>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let declared = text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    let too_large = || refusal(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is larger than {} MiB", most >> 20));
    if declared > most {
        return Err(too_large());
    }
    let reading = timeout(patience, Limited::new(body, most).collect());
    let read = tokio::select! {
        biased;
        read = reading => read,
        () = front.server.closing.cancelled() => return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "the hub is ending")),
    };
    match read {
        Ok(Ok(bytes)) => Ok(bytes.to_bytes()),
        Ok(Err(error)) => {
            let over = error.is::<LengthLimitError>();
            Err(if over { too_large() } else { refusal(StatusCode::BAD_REQUEST, "the body broke off") })
        }
        Err(_) => Err(refusal(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

fn refusal(status: StatusCode, why: &str) -> Response {
    json(status, wire::error_response(None, &RpcError::invalid_request(why)))
}

async fn post(front: &Arc<Front>, principal: Arc<Principal>, headers: &HeaderMap, body: Lent) -> Response {
    if !text(headers, header::CONTENT_TYPE).is_some_and(is_json) {
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    if !(accepts(headers, "application/json") && accepts(headers, "text/event-stream")) {
        return refusal(StatusCode::NOT_ACCEPTABLE, "Accept must list application/json and text/event-stream");
    }
    let bytes = match read_body(front, headers, body).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let answered = match Incoming::parse(&bytes) {
        Ok(Incoming::One(message)) => one(front, principal, headers, message).await,
        Ok(Incoming::Batch(messages)) => Box::pin(batch(front, &principal, headers, messages)).await,
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(|error| {
        let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_REQUEST);
        json(status, wire::error_response(None, &error))
    })
}

async fn one(
    front: &Arc<Front>,
    principal: Arc<Principal>,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, RpcError> {
    let request = match message {
        Message::Request(request) => request,
        Message::Notification { method, params } => {
            return notified(front, &principal, headers, &method, params.as_deref());
        }
        Message::Response { id, answer } => {
            session_of(front, &principal, headers)?.peer.settle(&id, answer);
            return Ok(StatusCode::ACCEPTED.into_response());
        }
    };
    let id = request.id.clone();
    let for_request = |error: RpcError| RpcError { id: Some(id.clone()), ..error };
    let params = Params::parse(request.params.as_deref()).map_err(for_request)?;
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let said = params.meta.as_ref().and_then(|meta| meta.version.as_deref()).map(version::era_of);
    let header = text(headers, VERSION).map(version::era_of);
    let era = match (said, header) {
        (Some(era), _) => era,
        // `initialize` opens the old era, whatever the header says.
        (None, Some(Era::Modern)) if request.method != "initialize" => Era::Modern,
        (None, _) => Era::Legacy,
    };
    let mut exchange = match era {
        Era::Modern => {
            let session = front.sessions.lease(&principal, Transport::Http);
            let mut exchange = Exchange::new(request.id.clone(), principal, session, era, Arc::default(), outbox);
            exchange.keys = front.keys_of(&exchange.principal);
            mirror::check(headers, &request, &params).map_err(for_request)?;
            front.server.accept_modern(&params, &mut exchange).map_err(for_request)?;
            mirror::check_arguments(front, &exchange.principal, headers, &request, &params).map_err(for_request)?;
            exchange
        }
        Era::Legacy if !front.server.protocol.speaks(Era::Legacy) => {
            let asked = params.protocol_version.as_deref().unwrap_or(version::LEGACY[0]);
            return Err(for_request(front.server.unsupported(asked)));
        }
        Era::Legacy if request.method == "initialize" => {
            drop(params);
            return Box::pin(initialize(front, &principal, request, outbox)).await;
        }
        Era::Legacy => {
            let connected = session_of(front, &principal, headers).map_err(for_request)?;
            let (session, peer) = (front.sessions.of(&connected, &principal), connected.peer.clone());
            let keys = front.keys_of(&principal);
            let mut exchange = Exchange::new(request.id.clone(), principal, session, era, peer, outbox);
            exchange.keys = keys;
            exchange.capabilities = connected.peer.capabilities.get().cloned().unwrap_or_default();
            exchange.client_name = connected.session.client().cloned();
            exchange
        }
    };
    exchange.progress_token = params.meta.as_ref().and_then(|meta| meta.progress_token).map(ToOwned::to_owned);
    drop(params);
    if request.method == "subscriptions/listen" {
        end_when_revoked(front, &mut exchange);
    }
    Ok(respond(front, request, exchange, inbox).await)
}

/// A subscription outlives the request that the key was checked for. The watch ends with the exchange.
fn end_when_revoked(front: &Arc<Front>, exchange: &mut Exchange) {
    let over = CancellationToken::new();
    exchange.held = Some(over.clone().drop_guard());
    let (front, principal, listening) = (front.clone(), exchange.principal.clone(), exchange.cancel.clone());
    let mut keys = front.keys.changes();
    front.tasks.clone().spawn("key of a subscription", async move {
        tokio::select! {
            () = over.cancelled() => {}
            () = front.revoked(&principal, &mut keys) => listening.cancel(),
        }
    });
}

fn notified(
    front: &Front,
    principal: &Principal,
    headers: &HeaderMap,
    method: &str,
    params: Option<&serde_json::value::RawValue>,
) -> Result<Response, RpcError> {
    let modern = text(headers, VERSION).is_some_and(|version| version::era_of(version) == Era::Modern);
    // In the new era hanging up cancels; its notifications say nothing that we act on.
    if !modern {
        let connected = session_of(front, principal, headers)?;
        let params = Params::parse(params)?;
        if let ("notifications/cancelled", Some(id)) = (method, RequestId::of_params(&params)) {
            connected.peer.cancel(&id);
        }
    }
    Ok(StatusCode::ACCEPTED.into_response())
}

/// The old era's session, by its header. Unknown ids and other keys' ids are the same 404.
fn session_of(front: &Front, principal: &Principal, headers: &HeaderMap) -> Result<Arc<Connected>, RpcError> {
    if let Some(version) = text(headers, VERSION)
        && !version::LEGACY.contains(&version)
    {
        return Err(front.server.unsupported(version));
    }
    let Some(id) = text(headers, SESSION) else {
        let hint =
            "Mcp-Session-Id is missing: send `initialize` first, or `_meta` with a protocolVersion from 2026-07-28 on";
        return Err(RpcError::invalid_params(hint));
    };
    let unknown = || RpcError::invalid_request("no such session: send `initialize` again").with_status(404);
    front.sessions.find(id, principal).ok_or_else(unknown)
}

async fn initialize(
    front: &Arc<Front>,
    principal: &Arc<Principal>,
    request: Request,
    outbox: mpsc::Sender<String>,
) -> Result<Response, RpcError> {
    let Some(connected) = front.sessions.open(principal, Transport::Http) else {
        let full = RpcError::new(INTERNAL_ERROR, "too many sessions are open; try again later", 503);
        let mut response = json(StatusCode::SERVICE_UNAVAILABLE, wire::error_response(Some(&request.id), &full));
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        return Ok(response);
    };
    let exchange = Exchange::new(
        request.id.clone(),
        principal.clone(),
        connected.session.clone(),
        Era::Legacy,
        connected.peer.clone(),
        outbox,
    );
    let id = request.id.clone();
    let answer = answer(front.server.clone(), request, Arc::new(exchange)).await;
    if answer.is_err() {
        front.sessions.close(&connected.id, principal);
        return Ok(json(StatusCode::BAD_REQUEST, wire::response(&id, answer)));
    }
    front.sessions.started(&connected);
    let mut response = json(StatusCode::OK, wire::response(&id, answer));
    if let Ok(session) = HeaderValue::from_str(&connected.id) {
        response.headers_mut().insert(SESSION, session);
    }
    Ok(response)
}

/// Several messages at once, which only versions up to 2025-03-26 know.
async fn batch(
    front: &Arc<Front>,
    principal: &Arc<Principal>,
    headers: &HeaderMap,
    messages: Vec<Result<Message, RpcError>>,
) -> Result<Response, RpcError> {
    let connected = session_of(front, principal, headers)?;
    if connected.peer.version.get().is_none_or(|version| *version > LAST_WITH_BATCHES) {
        return Err(RpcError::invalid_request("this protocol version takes one message at a time"));
    }
    // The guard has counted one of them.
    if !front.keys.charge(principal, messages.len() - 1) {
        return Err(RpcError::invalid_request("too many requests with this key; send fewer at once").with_status(429));
    }
    let (mut answers, mut running) = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Ok(Message::Request(request)) => running.push(in_batch(front, principal, &connected, request)),
            // What wants no answer gets none, not even about a fault.
            Ok(message) => drop(one(front, principal.clone(), headers, message).boxed().await),
            Err(error) => answers.push(wire::error_response(None, &error)),
        }
    }
    answers.extend(join_all(running).await.into_iter().filter_map(|ended| ended.ok().flatten().flatten()));
    if answers.is_empty() {
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    Ok(json(StatusCode::OK, format!("[{}]", answers.join(","))))
}

/// One request of several. As on a connection of its own: a lost connection does not cancel it, a notification does.
fn in_batch(
    front: &Front,
    principal: &Arc<Principal>,
    connected: &Connected,
    request: Request,
) -> JoinHandle<Option<Option<String>>> {
    let (outbox, _) = mpsc::channel(1);
    let (session, peer) = (front.sessions.of(connected, principal), connected.peer.clone());
    let mut exchange = Exchange::new(request.id.clone(), principal.clone(), session, Era::Legacy, peer, outbox);
    exchange.keys = front.keys_of(principal);
    exchange.client_name = connected.session.client().cloned();
    let (id, cancel) = (request.id.clone(), exchange.cancel.clone());
    let running = connected.peer.start(&id, &cancel);
    let server = front.server.clone();
    front.tasks.spawn("request", async move {
        let answer = match running {
            Some(_running) => answer(server, request, Arc::new(exchange)).await,
            None => Err(RpcError::id_in_use()),
        };
        (!cancel.is_cancelled()).then(|| wire::response(&id, answer))
    })
}

/// The old era's stream beside the requests: tells of changed lists until the client hangs up.
fn get(front: &Arc<Front>, principal: &Arc<Principal>, headers: &HeaderMap) -> Response {
    if !accepts(headers, "text/event-stream") {
        return refusal(StatusCode::NOT_ACCEPTABLE, "Accept must list text/event-stream");
    }
    let connected = match session_of(front, principal, headers) {
        Ok(connected) => connected,
        Err(error) => {
            return json(
                StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_REQUEST),
                wire::error_response(None, &error),
            );
        }
    };
    let Some(open) = connected.stream() else {
        return refusal(StatusCode::CONFLICT, "this session has too many open streams");
    };
    let listener = Listener {
        news: front.server.news(),
        open,
        front: front.clone(),
        principal: principal.clone(),
        keys: front.keys.changes(),
    };
    event_stream(Body::from_stream(with_signs_of_life(listener, |listener| listener.next().boxed())))
}

struct Listener {
    front: Arc<Front>,
    principal: Arc<Principal>,
    open: OpenStream,
    news: News,
    keys: watch::Receiver<u64>,
}

impl Listener {
    async fn next(&mut self) -> Option<String> {
        loop {
            let moved = tokio::select! {
                () = self.open.0.ended.cancelled() => return None,
                () = self.front.server.closing.cancelled() => return None,
                () = self.front.revoked(&self.principal, &mut self.keys) => return None,
                moved = self.news.next() => moved?,
            };
            if let Some(told) = moved.told_to(&self.open.0.peer) {
                return Some(event(&told));
            }
        }
    }
}

fn delete(front: &Front, principal: &Principal, headers: &HeaderMap) -> Response {
    match text(headers, SESSION) {
        None => refusal(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"),
        Some(id) if front.sessions.close(id, principal) => StatusCode::NO_CONTENT.into_response(),
        Some(_) => refusal(StatusCode::NOT_FOUND, "no such session"),
    }
}

fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let family = kind.split('/').next().unwrap_or_default();
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| {
            let part = part.split(';').next().unwrap_or_default().trim();
            part == "*/*"
                || part.eq_ignore_ascii_case(kind)
                || part.strip_suffix("/*").is_some_and(|f| f.eq_ignore_ascii_case(family))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_is_read_as_http_means_it() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json;q=0.9, text/*"));
        assert!(accepts(&headers, "application/json"));
        assert!(accepts(&headers, "text/event-stream"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/html"));
        assert!(!accepts(&headers, "application/json"));
        headers.remove(header::ACCEPT);
        assert!(!accepts(&headers, "application/json"));
    }
}
