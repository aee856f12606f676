//! `POST /agents/{target}/updates`: what an agent says to which tasks are posted. It has no key; it signs.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::auth::neighbourhood;
use super::http::read_at_most;
use super::{Front, guard};

/// Bytes of one update.
const LARGEST: usize = 1024 * 1024;

/// Bodies of senders that nobody knows yet, in memory at once: of all, and of those at one address.
const MOST_UNKNOWN: usize = 32;
const MOST_OF_ONE: usize = 4;
/// How long a sender waits for a place among them.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a sender who has a place may take for the body. Others wait meanwhile.
const SLOWEST_BODY: Duration = Duration::from_secs(5);

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
    /// The hub could not keep it, and may be able to after this.
    NotNow(Duration),
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
    by_address: Mutex<HashMap<IpAddr, Here>>,
}

/// Who is here from one address, also those who wait.
#[derive(Debug)]
struct Here {
    visits: usize,
    places: Arc<Semaphore>,
}

/// Until it is dropped, its address is remembered.
struct Visit<'a> {
    inbox: &'a Inbox,
    address: IpAddr,
    places: Arc<Semaphore>,
}

impl Inbox {
    pub fn new(taker: Option<Arc<dyn Updates>>) -> Self {
        Self { taker, places: Semaphore::new(MOST_UNKNOWN), by_address: Mutex::default() }
    }

    fn visit(&self, address: IpAddr) -> Visit<'_> {
        let address = neighbourhood(address);
        let mut by_address = self.by_address.lock();
        let new = || Here { visits: 0, places: Arc::new(Semaphore::new(MOST_OF_ONE)) };
        let here = by_address.entry(address).or_insert_with(new);
        here.visits += 1;
        Visit { inbox: self, address, places: here.places.clone() }
    }
}

impl Visit<'_> {
    /// A place among those of the address, and one among all. None: they were all taken for too long.
    async fn place(&self) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        let both = async { Some((self.places.acquire().await.ok()?, self.inbox.places.acquire().await.ok()?)) };
        timeout(PATIENCE, both).await.ok().flatten()
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut by_address = self.inbox.by_address.lock();
        if let Some(here) = by_address.get_mut(&self.address) {
            here.visits -= 1;
            if here.visits == 0 {
                by_address.remove(&self.address);
            }
        }
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
    let caller = guard::caller(&front, &head.headers, peer);
    let visit = front.inbox.visit(caller);
    let place = tokio::select! {
        place = visit.place() => place,
        () = front.server.closing.cancelled() => return busy(),
    };
    let Some(place) = place else { return busy() };
    let body = match read_at_most(LARGEST, SLOWEST_BODY, &front, &head.headers, body).await {
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
            let words = format!("too many updates; try again in {} s", wait.as_secs() + 1);
            later(StatusCode::TOO_MANY_REQUESTS, &words, wait.as_secs() + 1)
        }
        Taken::NotNow(wait) => {
            let words = "the hub cannot keep it now; send it again, with the same webhook-id";
            later(StatusCode::SERVICE_UNAVAILABLE, words, wait.as_secs())
        }
        Taken::Disbelieved(why) => {
            let what = format!("{why} of a webhook");
            guard::slow_down(&front, caller, &what).await;
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
    later(StatusCode::SERVICE_UNAVAILABLE, "busy, or ending; try again", 1)
}

fn later(status: StatusCode, words: &str, seconds: u64) -> Response {
    let mut response = answer(status, &json!({ "error": words }));
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
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

    #[tokio::test(start_paused = true)]
    async fn one_address_does_not_take_all_places() {
        let inbox = Inbox::new(None);
        let (slow, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let visits: Vec<_> = (0..=MOST_OF_ONE).map(|_| inbox.visit(slow)).collect();
        let mut places = Vec::new();
        for visit in &visits[..MOST_OF_ONE] {
            places.push(visit.place().await.unwrap());
        }
        assert!(visits[MOST_OF_ONE].place().await.is_none(), "the fifth waits in vain");
        assert!(inbox.visit(other).place().await.is_some(), "another address is let in");
        places.pop();
        assert!(visits[MOST_OF_ONE].place().await.is_some(), "and so is the fifth when one is done");
        drop(places);
        drop(visits);
        assert!(inbox.by_address.lock().is_empty(), "nobody is remembered who has gone");
    }
}
