//! `POST /agents/{target}/updates`: what an agent says to which tasks are posted. It has no key; it signs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::http::read_at_most;
use super::{Front, guard};

/// Bytes of one update.
const LARGEST: usize = 1024 * 1024;

/// Bodies of senders that nobody knows yet, in memory at once.
const MOST_UNKNOWN: usize = 32;
/// How long a sender waits for a place among them.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub target: &'a str,
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature`; empty where there is none.
    pub id: &'a str,
    pub timestamp: &'a str,
    pub signature: &'a str,
    pub body: &'a [u8],
}

/// What became of it.
#[derive(Debug)]
pub enum Taken {
    /// It is not what it says it is, or there is no such target: why, for the record. The sender cannot tell which.
    Disbelieved(String),
    /// The agent has said too much of late.
    TooFast(Duration),
    Answered {
        status: u16,
        body: Value,
    },
}

/// Whoever knows the targets and their secrets.
pub trait Updates: Send + Sync {
    fn take<'a>(&'a self, signed: Signed<'a>) -> BoxFuture<'a, Taken>;
}

/// The hub's side of it.
pub(super) struct Inbox {
    pub taker: Option<Arc<dyn Updates>>,
    places: Semaphore,
}

impl Inbox {
    pub fn new(taker: Option<Arc<dyn Updates>>) -> Self {
        Self { taker, places: Semaphore::new(MOST_UNKNOWN) }
    }
}

/// Whether it is a path of this file: its callers are let in by their signature, and not by a key.
pub fn is_here(path: &str) -> bool {
    let target = path.strip_prefix("/agents/").and_then(|rest| rest.strip_suffix("/updates"));
    target.is_some_and(|target| !target.is_empty() && !target.contains('/'))
}

pub async fn post(State(front): State<Arc<Front>>, Path(target): Path<String>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let peer = head.extensions.get::<ConnectInfo<SocketAddr>>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
    let place = tokio::select! {
        place = timeout(PATIENCE, front.inbox.places.acquire()) => place,
        () = front.server.closing.cancelled() => return busy(),
    };
    let Ok(Ok(place)) = place else { return busy() };
    let body = match read_at_most(LARGEST, &front, &head.headers, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let text = |name: &str| one(&head.headers, name);
    let signed = Signed {
        target: &target,
        id: text("webhook-id"),
        timestamp: text("webhook-timestamp"),
        signature: text("webhook-signature"),
        body: &body,
    };
    let taken = match &front.inbox.taker {
        Some(taker) => taker.take(signed).await,
        None => Taken::Disbelieved("no webhook target".to_owned()),
    };
    drop(place);
    match taken {
        Taken::Answered { status, body } => {
            answer(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body)
        }
        Taken::TooFast(wait) => {
            let seconds = wait.as_secs() + 1;
            let said = json!({ "error": format!("too many updates; try again in {seconds} s") });
            let mut response = answer(StatusCode::TOO_MANY_REQUESTS, &said);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            response
        }
        Taken::Disbelieved(why) => {
            let what = format!("{why} of a webhook");
            guard::slow_down(&front, guard::caller(&front, &head.headers, peer), &what).await;
            answer(StatusCode::UNAUTHORIZED, &json!({ "error": "the signature is not good" }))
        }
    }
}

/// A header that is there once. What stands there twice is not signed by anyone.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().unwrap_or_default(),
        _ => "",
    }
}

fn busy() -> Response {
    let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "busy, or ending; try again" }));
    response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    response
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_updates_of_a_target_do_without_a_key() {
        check("/agents/homelab/updates", true);
        check("/agents/nexus:felt/updates", true);
        check("/agents/nexus%3Afelt/updates", true);
        check("/agents//updates", false);
        check("/agents/updates", false);
        check("/agents/a/b/updates", false);
        check("/agents/a/updates/", false);
        check("/agents/a", false);
        check("/mcp", false);

        #[track_caller]
        fn check(path: &str, expected: bool) {
            assert_eq!(is_here(path), expected, "{path}");
        }
    }
}
