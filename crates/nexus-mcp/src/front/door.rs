//! Accepts connections and serves them, and stops doing so without cutting anyone off.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;
use tracing::{debug, warn};

use super::address::Network;
use super::{Front, SLOWEST_SENDER, guard, http, sse, unread, updates};

/// Connections open at once. More wait in the kernel's queue until one ends.
const MOST_CONNECTIONS: usize = 16_384;

/// Connections of one address, unless it is a proxy's: a quarter, so that nobody shuts everybody else out.
const MOST_OF_ONE_ADDRESS: usize = MOST_CONNECTIONS / 4;

/// How often idle sessions and keys that ran out are looked for.
const REAP_EVERY: Duration = Duration::from_secs(30);

/// The routes of the MCP listener beside `/mcp` itself, all behind the same guard.
pub fn routes(front: &Arc<Front>) -> Router {
    Router::new()
        .route("/sse", get(sse::open))
        .route("/messages", post(sse::post))
        .route("/health", get(health))
        .route("/agents/{target}/updates", post(updates::post))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer(from_fn_with_state(front.clone(), guard::check))
        .with_state(front.clone())
}

async fn health(State(front): State<Arc<Front>>) -> Response {
    let body = (front.health)().to_string();
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

/// Serves until the hub is to end; then accepts nobody new and comes back when the last connection has
/// finished what it was doing.
pub async fn serve(front: Arc<Front>, listener: TcpListener) {
    let routes = routes(&front);
    let closing = front.server.closing.clone();
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let shares: Arc<Shares> = Arc::default();
    front.tasks.spawn("reaper", reap(front.clone()));
    loop {
        let accepting = async {
            // First a place, then a connection: at the limit the rest waits in the kernel.
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            accepted = accepting => accepted,
        };
        match accepted {
            (Ok(place), Ok((stream, peer))) => {
                // Dropped, it is closed: the other addresses keep their places.
                let Some(share) = Share::of(&shares, peer.ip(), &front.settings.proxies) else { continue };
                front
                    .tasks
                    .spawn("connection", connection(front.clone(), routes.clone(), stream, peer, (place, share)));
            }
            (_, Err(error)) => pause_after(&error).await,
            (Err(_), _) => break,
        }
    }
    drop(listener);
    let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

/// How many connections each address has.
type Shares = Mutex<HashMap<IpAddr, usize>>;

/// A connection's part of what its address may have; given back when dropped.
struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
}

impl Share {
    fn of(shares: &Arc<Shares>, address: IpAddr, proxies: &[Network]) -> Option<Self> {
        let mut counts = shares.lock();
        let count = counts.entry(address).or_default();
        *count += 1;
        let fits = *count <= MOST_OF_ONE_ADDRESS || proxies.iter().any(|proxy| proxy.contains(address));
        drop(counts);
        let share = Self { shares: shares.clone(), address };
        fits.then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Ends what nobody uses any more.
async fn reap(front: Arc<Front>) {
    let mut ticks = tokio::time::interval(REAP_EVERY);
    let mut keys = front.keys.changes();
    loop {
        tokio::select! {
            () = front.server.closing.cancelled() => return,
            moved = keys.changed() => match moved {
                Ok(()) => front.end_revoked_sessions(),
                Err(_) => return,
            },
            _ = ticks.tick() => {
                front.sessions.reap();
                front.keys.expire();
            }
        }
    }
}

/// Out of file descriptors: trying again at once would only burn the processor.
async fn pause_after(error: &io::Error) {
    let gone = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    );
    if !gone {
        warn!(%error, "a connection could not be accepted; trying again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A connection that is not answering anything has this long to go by itself when the hub ends.
const PARTING: Duration = Duration::from_millis(300);

async fn connection(
    front: Arc<Front>,
    routes: Router,
    stream: TcpStream,
    peer: SocketAddr,
    place: (OwnedSemaphorePermit, Share),
) {
    // With Nagle's algorithm a streamed answer waits 40 ms for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "no TCP_NODELAY");
    }
    let answering = Arc::new(AtomicUsize::new(0));
    let busy = answering.clone();
    let door = front.clone();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let answer = Answering::begin(&busy);
        let (front, routes) = (door.clone(), routes.clone());
        let closing = front.server.closing.clone();
        let (mut head, body) = request.into_parts();
        let (body, rest) = unread::lend(&head.headers, body);
        // Boxed: otherwise every open connection would have its room, also when nothing is asked on it.
        let answering = Box::pin(async move {
            if head.uri.path() == "/mcp" {
                return http::mcp(&front, peer.ip(), head, body).await;
            }
            head.extensions.insert(ConnectInfo(peer));
            let answered = routes.oneshot(hyper::Request::from_parts(head, axum::body::Body::new(body))).await;
            answered.unwrap_or_else(|never| match never {})
        });
        async move {
            let mut response = answering.await;
            rest.settle(&mut response, &closing).await;
            Ok::<_, Infallible>(response.map(|body| Answered { body, _answer: answer }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SLOWEST_SENDER)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let closing = front.server.closing.clone();
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection => served,
                () = quiet(&answering) => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        debug!(%peer, %error, "connection ended early");
    }
    drop(place);
}

/// Nothing has been on its way for a while: whoever is connected has sent half a request, or nothing.
async fn quiet(answering: &AtomicUsize) {
    loop {
        tokio::time::sleep(PARTING).await;
        if answering.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
}

/// A request that is being answered, from its head to the end of its response.
struct Answering(Arc<AtomicUsize>);

impl Answering {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body that tells when it is over.
struct Answered {
    body: axum::body::Body,
    _answer: Answering,
}

impl http_body::Body for Answered {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
