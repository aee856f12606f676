//! What every HTTP request must pass before anything looks at it: Host, Origin, key, rate.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::warn;

use nexus_core::audit::{Event, Row};
use nexus_core::principal::Principal;

use super::auth::Known;
use super::{Front, Keyless, address, updates};

/// Routes that need no key: no secrets there, and clients probe them before they have one; or the sender signs.
fn is_open(path: &str) -> bool {
    path == "/health" || path.starts_with("/.well-known/") || updates::is_here(path)
}

/// The middleware of all other routes. Puts the [`Principal`] into the request.
pub async fn check(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    if is_open(head.uri.path()) {
        return match addressed_to_us(&front, &head) {
            Ok(()) => next.run(Request::from_parts(head, body)).await,
            Err(why) => forbidden(why),
        };
    }
    let peer = head.extensions.get::<ConnectInfo<SocketAddr>>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
    match principal(&front, &head, peer).await {
        Ok(principal) => {
            head.extensions.insert::<Arc<Principal>>(principal);
            next.run(Request::from_parts(head, body)).await
        }
        Err(refused) => refused,
    }
}

/// Who asks, if they may.
pub async fn principal(front: &Front, head: &Parts, peer: IpAddr) -> Result<Arc<Principal>, Response> {
    addressed_to_us(front, head).map_err(forbidden)?;
    let headers = &head.headers;
    let caller = caller(front, headers, peer);

    let keyless = || {
        let keyless = front.settings.keyless.as_ref().filter(|keyless| keyless.admits(caller));
        keyless.map(|keyless| keyless.principal().clone())
    };
    let principal = match bearer(headers) {
        None => keyless(),
        Some(key) => match front.keys.find(key) {
            Some(known) => match known.spend() {
                Ok(()) => Some(known.principal),
                Err(wait) => return Err(too_fast(&known, wait)),
            },
            // Where there are no keys, none can be wrong.
            None if front.keys.is_empty() => keyless(),
            None => None,
        },
    };
    match principal {
        Some(principal) => Ok(principal),
        None => Err(refused(front, caller, bearer(headers).is_some()).await),
    }
}

/// Whose request it is, behind the proxies that are believed.
pub fn caller(front: &Front, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    let forwarded = forwarded_for(front, headers);
    address::caller(peer, forwarded.as_deref(), &front.settings.proxies)
}

/// All lines of `X-Forwarded-For` as one list: a proxy may add its own line instead of its own entry.
fn forwarded_for(front: &Front, headers: &HeaderMap) -> Option<String> {
    if front.settings.proxies.is_empty() {
        return None;
    }
    let lines: Vec<&str> = headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
    Some(lines.join(","))
}

/// The key, if the header has the form `Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = text(headers, header::AUTHORIZATION)?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Missing and wrong keys look the same from outside; guessing gets slower, and is recorded.
async fn refused(front: &Front, caller: IpAddr, had_key: bool) -> Response {
    slow_down(front, caller, if had_key { "a wrong key" } else { "no key" }).await;
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response()
}

/// Records that somebody came with `what`, and waits the longer the more often they do.
pub async fn slow_down(front: &Front, caller: IpAddr, what: &str) {
    let slowed = front.failures.note(caller);
    if let Some(more) = slowed.record {
        let more = if more > 0 { format!(", and {more} more like it") } else { String::new() };
        warn!(address = %caller, "refused: {what} from {caller}{more}");
        front.server.hub.audit.post(Row::new(Event::KeyRefused).detail(format!("{what} from {caller}{more}")));
    }
    tokio::select! {
        () = tokio::time::sleep(slowed.wait) => {}
        () = front.server.closing.cancelled() => {}
    }
}

fn too_fast(known: &Known, wait: std::time::Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    let name = &known.principal.id;
    let body = format!(r#"{{"error":"too many requests with the key `{name}`; try again in {seconds} s"}}"#);
    let headers = [(header::RETRY_AFTER, seconds.to_string()), (header::CONTENT_TYPE, "application/json".to_owned())];
    (StatusCode::TOO_MANY_REQUESTS, headers, body).into_response()
}

fn forbidden(why: &str) -> Response {
    (StatusCode::FORBIDDEN, Body::from(format!("{why}\n"))).into_response()
}

/// Against DNS rebinding: the Host must be one of ours, the Origin, if there is one, too.
fn addressed_to_us(front: &Front, head: &Parts) -> Result<(), &'static str> {
    let headers = &head.headers;
    let host = text(headers, header::HOST).or(head.uri.host()).unwrap_or_default();
    let any_name = matches!(front.settings.keyless, Some(Keyless::Anyone(_)));
    if !any_name && !is_allowed_host(host, &front.settings.hosts) {
        return Err("this Host is not served here; add it to server.allowed_hosts");
    }
    match headers.get(header::ORIGIN) {
        None => Ok(()),
        Some(origin) => match origin.to_str() {
            Ok(origin) if is_allowed_origin(origin, &front.settings.origins) => Ok(()),
            _ => Err("this Origin is not welcome; add it to server.allowed_origins"),
        },
    }
}

fn is_allowed_host(host: &str, allowed: &[String]) -> bool {
    let name = without_port(host);
    is_loopback_name(name)
        || allowed.iter().any(|entry| entry.eq_ignore_ascii_case(host) || entry.eq_ignore_ascii_case(name))
}

fn is_allowed_origin(origin: &str, allowed: &[String]) -> bool {
    let local = origin
        .split_once("://")
        .is_some_and(|(scheme, host)| matches!(scheme, "http" | "https") && is_loopback_name(without_port(host)));
    local || allowed.iter().any(|entry| entry.eq_ignore_ascii_case(origin))
}

fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

/// `host:port` without its port; brackets of an IPv6 address stay.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) && !port.is_empty() => name,
        _ => host,
    }
}

/// A header as text, if it is text.
pub fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_ours_or_refused() {
        check("localhost:8765", true);
        check("127.0.0.1", true);
        check("[::1]:8765", true);
        check("hub.lan", true);
        check("HUB.lan:1234", true);
        check("nas.lan:8765", true);
        check("nas.lan:1", false);
        check("evil.example", false);
        check("localhost.evil.example", false);
        check("", false);

        #[track_caller]
        fn check(host: &str, expected: bool) {
            let allowed = ["hub.lan".to_owned(), "nas.lan:8765".to_owned()];
            assert_eq!(is_allowed_host(host, &allowed), expected, "{host}");
        }
    }

    #[test]
    fn origins_are_ours_or_refused() {
        let allowed = ["https://hub.lan".to_owned()];
        assert!(is_allowed_origin("http://localhost:6274", &allowed));
        assert!(is_allowed_origin("https://hub.lan", &allowed));
        for bad in
            ["http://hub.lan", "https://evil.example", "null", "file://localhost", "http://localhost.evil.example"]
        {
            assert!(!is_allowed_origin(bad, &allowed), "{bad}");
        }
    }
}
