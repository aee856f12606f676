//! Accepts connections and serves them, and stops doing so without cutting anyone off.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;
use tracing::{debug, warn};

use super::{Front, SLOWEST_SENDER, guard, http, sse};

/// Connections open at once. More wait in the kernel's queue until one ends.
const MOST_CONNECTIONS: usize = 16_384;

/// How often idle sessions are looked for.
const REAP_EVERY: Duration = Duration::from_secs(30);

/// The routes of the MCP listener, all behind the same guard.
pub fn routes(front: &Arc<Front>) -> Router {
    Router::new()
        .route("/mcp", any(http::mcp))
        .route("/sse", get(sse::open))
        .route("/messages", post(sse::post))
        .route("/health", get(health))
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
    let mut reaping = tokio::time::interval(REAP_EVERY);
    loop {
        let place = tokio::select! {
            () = closing.cancelled() => break,
            _ = reaping.tick() => {
                front.sessions.reap();
                continue;
            }
            place = places.clone().acquire_owned() => match place {
                Ok(place) => place,
                Err(_) => break,
            },
        };
        let (stream, peer) = tokio::select! {
            () = closing.cancelled() => break,
            _ = reaping.tick() => {
                front.sessions.reap();
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            },
        };
        front.tasks.spawn("connection", connection(front.clone(), routes.clone(), stream, peer, place));
    }
    drop(listener);
    let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
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

async fn connection(
    front: Arc<Front>,
    routes: Router,
    stream: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    // With Nagle's algorithm a streamed answer waits 40 ms for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "no TCP_NODELAY");
    }
    let service = routes.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.map(axum::body::Body::new)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SLOWEST_SENDER)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(connection);
    let closing = front.server.closing.clone();
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        debug!(%peer, %error, "connection ended early");
    }
    drop(place);
}
