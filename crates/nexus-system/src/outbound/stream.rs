//! Calls to servers that others have written: any method, answers that may go on for hours, every address checked.
//!
//! Redirects are followed by hand: only those that keep method and body (307, 308), never from encrypted to plain, and
//! what was meant for one server is not carried to another.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, redirect};
use tokio::runtime::{self, Handle};

use nexus_core::audit::{Event, Row, Sink};

use super::address::{CheckedNames, Named, Reach, Refused};
use super::{OutboundError, SafeUrl, bytes};

const MOST_REDIRECTS: usize = 5;
const CONNECTING: Duration = Duration::from_secs(10);
/// Connections that wait for the next request: many callers share one server.
const SPARE_CONNECTIONS: usize = 32;
const SPARE_FOR: Duration = Duration::from_secs(30);
/// A peer that has vanished without a word is noticed after this long of silence, and some probes.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A client for servers within reach. Cloning is cheap.
#[derive(Clone)]
pub struct Outlet {
    agent: Arc<str>,
    reach: Arc<Reach>,
    audit: Arc<dyn Sink>,
    /// One for each of what [`place_of`] tells apart, made when first needed.
    clients: Arc<[OnceLock<Arc<Shared>>; 4]>,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// A request that is not sent yet.
#[derive(Clone)]
pub struct Calling {
    pub method: &'static str,
    pub url: SafeUrl,
    /// Who came up with `url`.
    pub named: Named,
    /// Sent wherever the request goes.
    pub headers: Vec<(String, String)>,
    /// Sent to the origin of `url` alone: keys, tokens, sessions.
    pub own_headers: Vec<(String, String)>,
    pub body: Bytes,
    /// In a few words, for the record.
    pub what: String,
    pub recorded: Recorded,
    pub redirects: Redirects,
}

/// Which redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    Anywhere,
    /// For a body that is meant for one server alone.
    SameOrigin,
}

/// When the row of a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    AtItsEnd,
    /// Of an answer that may go on for days.
    WhenItOpens,
}

impl Calling {
    pub fn new(method: &'static str, url: SafeUrl, what: impl Into<String>) -> Self {
        Self {
            method,
            url,
            named: Named::ByOperator,
            headers: Vec::new(),
            own_headers: Vec::new(),
            body: Bytes::new(),
            what: what.into(),
            recorded: Recorded::AtItsEnd,
            redirects: Redirects::Anywhere,
        }
    }
}

/// Without headers and body, which may be secret.
impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.method, self.url, self.what)
    }
}

impl Outlet {
    pub fn new(agent: &str, reach: Reach, audit: Arc<dyn Sink>) -> Self {
        Self { agent: agent.into(), reach: Arc::new(reach), audit, clients: Arc::default() }
    }

    /// Whether an address that stands in the URL itself may be called. Names are looked up when they are called.
    pub fn check(&self, url: &SafeUrl, named: Named) -> Result<(), OutboundError> {
        let Ok(address) = url.host().trim_matches(['[', ']']).parse() else { return Ok(()) };
        self.reach.check(url.host(), address, named).map_err(|error| forbidden(url, &error))
    }

    /// Sends it, follows where it is led, and comes back when the answer begins.
    pub async fn send(&self, calling: Calling) -> Result<Incoming, OutboundError> {
        let Calling { method, url, named: first, headers, own_headers, body, what, recorded, redirects } = calling;
        let (common, own) = (header_map(&url, &headers)?, header_map(&url, &own_headers)?);
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad(&url, "no such method"))?;
        let record = Record {
            audit: self.audit.clone(),
            line: format!("{method} {url}"),
            what,
            size: body.len(),
            started: Instant::now(),
            came: None,
        };
        let mut place = (url.clone(), first);
        let led = |error| OutboundError::Led { url: url.clone(), source: Box::new(error) };
        for hop in 0..=MOST_REDIRECTS {
            let (at, named) = &place;
            let mut sent = common.clone();
            if at.is_beside(&url) {
                sent.extend(own.clone());
            }
            let response = self.once(&method, at, *named, sent, body.clone()).await;
            let response = match response {
                Ok(response) => response,
                Err(error) => {
                    record.end(error.to_string().trim_start_matches(&at.to_string()).trim_start().to_owned());
                    return Err(if hop == 0 { error } else { led(error) });
                }
            };
            match next(&response, at, (&url, first), redirects) {
                Some(Ok(next)) => place = next,
                Some(Err(error)) => {
                    record.end("leads where it may not".to_owned());
                    return Err(led(error));
                }
                None => return Ok(Incoming::new(response, place.0, record, recorded)),
            }
        }
        record.end("leads in circles".to_owned());
        Err(led(bad(&url, "it leads from place to place without end")))
    }

    async fn once(
        &self,
        method: &Method,
        url: &SafeUrl,
        named: Named,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, OutboundError> {
        self.check(url, named)?;
        let request = self.client(named, url.is_encrypted())?.0.request(method.clone(), url.0.clone()).headers(headers);
        let request = if body.is_empty() { request } else { request.body(body) };
        request.send().await.map_err(|error| explained(url, error.without_url()))
    }

    fn client(&self, named: Named, encrypted: bool) -> Result<&Shared, OutboundError> {
        let place = &self.clients[place_of(named, encrypted)];
        match place.get() {
            Some(client) => Ok(client),
            None => {
                let client = shared(&self.agent, &self.reach, named, encrypted)?;
                Ok(place.get_or_init(|| client))
            }
        }
    }
}

fn place_of(named: Named, encrypted: bool) -> usize {
    usize::from(named == Named::ByServer) << 1 | usize::from(encrypted)
}

/// Where a redirect leads, if it is one that is followed.
fn next(
    response: &Response,
    at: &SafeUrl,
    (first, named): (&SafeUrl, Named),
    redirects: Redirects,
) -> Option<Result<(SafeUrl, Named), OutboundError>> {
    let location = match response.status().as_u16() {
        307 | 308 => response.headers().get(LOCATION)?.to_str().ok(),
        _ => return None,
    };
    let Some(next) = location.and_then(|location| at.join(location).ok()) else {
        return Some(Err(bad(at, "it leads nowhere")));
    };
    if at.is_encrypted() && !next.is_encrypted() {
        return Some(Err(bad(&next, "an encrypted server leads to a plain one")));
    }
    match (next.is_beside(first), redirects) {
        (true, _) => Some(Ok((next, named))),
        (false, Redirects::Anywhere) => Some(Ok((next, Named::ByServer))),
        (false, Redirects::SameOrigin) => Some(Err(bad(&next, "what is sent is meant for another server alone"))),
    }
}

/// An answer that has begun.
pub struct Incoming {
    pub status: u16,
    /// Where it came from in the end.
    pub url: SafeUrl,
    response: Response,
    /// Ends with this.
    _record: Option<Record>,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.status, self.url)
    }
}

impl Incoming {
    fn new(response: Response, url: SafeUrl, mut record: Record, recorded: Recorded) -> Self {
        let status = response.status().as_u16();
        record.came = Some(status.to_string());
        // Dropped here, it is written now.
        let record = (recorded == Recorded::AtItsEnd).then_some(record);
        Self { status, url, response, _record: record }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// All headers that are text, for those who need more than one.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.response.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// `application/json` and its like, without parameters.
    pub fn content_type(&self) -> &str {
        let kind = self.header("content-type").unwrap_or_default();
        kind.split(';').next().unwrap_or_default().trim()
    }

    /// The next piece of the body, as large as it came in: some hundred kilobytes at most.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        let Self { response, url, .. } = self;
        response
            .chunk()
            .await
            .map_err(|source| OutboundError::Broken { url: url.clone(), source: source.without_url() })
    }

    /// All of the body, if it is no larger than that.
    pub async fn whole(mut self, limit: usize) -> Result<Vec<u8>, OutboundError> {
        let promised = self.response.content_length().unwrap_or(0);
        let too_large = || OutboundError::TooLarge { url: self.url.clone(), limit };
        if promised > limit as u64 {
            return Err(too_large());
        }
        // What is promised is a word; memory is taken as it comes.
        let mut body = Vec::with_capacity(usize::try_from(promised).unwrap_or(0).min(1 << 20));
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > limit {
                return Err(OutboundError::TooLarge { url: self.url.clone(), limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// As much of the body as is wanted and comes, for an error that shows it.
    pub async fn beginning(mut self, most: usize) -> String {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = self.chunk().await {
            let room = most - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() >= room {
                break;
            }
        }
        String::from_utf8_lossy(&body).into_owned()
    }
}

/// Posts the row of a request when it is dropped.
struct Record {
    audit: Arc<dyn Sink>,
    line: String,
    what: String,
    size: usize,
    started: Instant,
    came: Option<String>,
}

impl Record {
    fn end(mut self, came: String) {
        self.came = Some(came);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Self { line, what, started, .. } = self;
        let came = self.came.as_deref().unwrap_or("was given up");
        let (size, took) = (bytes(self.size), started.elapsed().as_millis());
        self.audit.post(Row::new(Event::Outbound).detail(format!("{line} {came}, {what}, {size}, {took} ms")));
    }
}

/// A client with its root certificates costs a megabyte: all servers with the same reach share one.
struct Shared(Client);

/// A pool of connections belongs to the runtime it was made in.
type Key = (runtime::Id, Arc<str>, Arc<Reach>, Named, bool);

fn shared(agent: &Arc<str>, reach: &Arc<Reach>, named: Named, encrypted: bool) -> Result<Arc<Shared>, OutboundError> {
    static CLIENTS: LazyLock<Mutex<HashMap<Key, Weak<Shared>>>> = LazyLock::new(Mutex::default);
    let key = (Handle::current().id(), agent.clone(), reach.clone(), named, encrypted);
    let mut clients = CLIENTS.lock();
    if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
        return Ok(client);
    }
    let client = Arc::new(Shared(new_client(agent, reach.clone(), named, encrypted)?));
    clients.retain(|_, client| client.strong_count() > 0);
    clients.insert(key, Arc::downgrade(&client));
    Ok(client)
}

#[allow(clippy::disallowed_methods, reason = "this is the shim")]
fn new_client(agent: &str, reach: Arc<Reach>, named: Named, encrypted: bool) -> Result<Client, OutboundError> {
    let plain = Client::builder()
        .user_agent(agent)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .dns_resolver(CheckedNames { reach, named })
        .connect_timeout(CONNECTING)
        .tcp_keepalive(KEEP_ALIVE)
        .pool_max_idle_per_host(SPARE_CONNECTIONS)
        .pool_idle_timeout(SPARE_FOR);
    let client = match encrypted {
        true => plain.https_only(true).build(),
        false => plain.tls_certs_only([]).build(),
    };
    client.map_err(|error| OutboundError::Client(error.without_url()))
}

fn header_map(url: &SafeUrl, headers: &[(String, String)]) -> Result<HeaderMap, OutboundError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let broken = || bad(url, &format!("the header `{name}` cannot be sent"));
        let mut value = HeaderValue::from_str(value).map_err(|_| broken())?;
        value.set_sensitive(true);
        map.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken())?, value);
    }
    Ok(map)
}

fn bad(url: &SafeUrl, reason: &str) -> OutboundError {
    OutboundError::Forbidden { url: url.clone(), reason: reason.to_owned() }
}

fn forbidden(url: &SafeUrl, refused: &Refused) -> OutboundError {
    bad(url, &refused.to_string())
}

/// Whether it was ours to refuse, could not be reached, or broke off.
fn explained(url: &SafeUrl, source: reqwest::Error) -> OutboundError {
    let mut cause: &dyn std::error::Error = &source;
    while let Some(deeper) = cause.source() {
        if let Some(refused) = deeper.downcast_ref::<Refused>() {
            return forbidden(url, refused);
        }
        cause = deeper;
    }
    match source.is_connect() {
        true => OutboundError::Unreachable { url: url.clone(), source },
        false => OutboundError::Broken { url: url.clone(), source },
    }
}

#[cfg(test)]
mod tests;
