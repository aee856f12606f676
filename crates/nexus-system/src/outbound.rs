//! The one way out: every HTTP request of the hub itself starts here, is bounded, and becomes a row of the record.
//!
//! No proxy is used, whatever `HTTP_PROXY` and its like say: what the hub sends goes where the operator wrote, or fails.

mod address;
mod stream;

use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, Response, Url, redirect};
use thiserror::Error;

use nexus_core::audit::{Event, Row, Sink};

pub use address::{Named, Reach, Refused};
pub use stream::{Calling, Incoming, Outlet, Recorded, Redirects};

/// How many connections wait for the next request, and how long: a burst of requests shares them.
const SPARE_CONNECTIONS: usize = 2;
const SPARE_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub enum OutboundError {
    /// A missing list of root certificates, most of the time.
    #[error("no HTTP client can be made")]
    Client(#[source] reqwest::Error),
    #[error("{url} did not answer within {} s", .patience.as_secs())]
    Late { url: SafeUrl, patience: Duration },
    #[error("{url} did not answer: {}", root(.source))]
    Unreachable { url: SafeUrl, source: reqwest::Error },
    /// It was reached, and broke off before its answer was there: what became of the request cannot be told.
    #[error("{url} broke off: {}", root(.source))]
    Broken { url: SafeUrl, source: reqwest::Error },
    /// Nothing was sent.
    #[error("{url} may not be called: {reason}")]
    Forbidden { url: SafeUrl, reason: String },
    #[error("the answer of {url} is larger than {limit} bytes")]
    TooLarge { url: SafeUrl, limit: usize },
    /// It was sent to `url`, which may have done what was asked before it led on.
    #[error("{url} leads elsewhere: {source}")]
    Led { url: SafeUrl, source: Box<OutboundError> },
}

impl OutboundError {
    /// What was wrong, for those who name the address themselves.
    pub fn reason(&self) -> String {
        match self {
            OutboundError::Client(error) => root(error),
            OutboundError::Late { patience, .. } => format!("no answer within {} s", patience.as_secs()),
            OutboundError::Unreachable { source, .. } | OutboundError::Broken { source, .. } => root(source),
            OutboundError::Forbidden { reason, .. } => reason.clone(),
            OutboundError::TooLarge { limit, .. } => format!("its answer is larger than {limit} bytes"),
            OutboundError::Led { source, .. } => format!("it leads elsewhere: {source}"),
        }
    }
}

/// An address that prints without what may be secret in it.
#[derive(Clone, PartialEq, Eq)]
pub struct SafeUrl(Url, Option<Arc<String>>);

impl fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

#[derive(Debug, Error)]
#[error("not a URL that can be called")]
pub struct BadUrl;

impl SafeUrl {
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let url = Url::parse(url).map_err(|_| BadUrl)?;
        (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(Self(url, None)).ok_or(BadUrl)
    }

    /// Some services want their key in the path: there it is shown as `…` from now on, also where this leads on to.
    #[must_use]
    pub fn hiding(self, secret: &str) -> Self {
        Self(self.0, (!secret.is_empty()).then(|| Arc::new(secret.to_owned())))
    }

    /// Where this leads, seen from here.
    pub fn join(&self, place: &str) -> Result<Self, BadUrl> {
        let next = Self::parse(self.0.join(place).map_err(|_| BadUrl)?.as_str())?;
        Ok(Self(next.0, self.1.clone()))
    }

    /// All of it, with what may be secret.
    pub fn reveal(&self) -> &str {
        self.0.as_str()
    }

    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The same scheme, host and port.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }

    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }
}

/// Without user, password, query, fragment, and what else is to be hidden.
impl Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        match &self.1 {
            Some(secret) => f.write_str(&self.0.path().replace(secret.as_str(), "…"))?,
            None => f.write_str(self.0.path())?,
        }
        f.write_str(if self.0.query().is_some() { "?…" } else { "" })
    }
}

/// What a request may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub connecting: Duration,
    /// From the start to the last byte of the answer.
    pub whole: Duration,
    /// Bytes of the answer that are kept; the rest is not read.
    pub answer: usize,
}

/// A client for one service. Follows no redirects: a password is not carried to where nobody wrote.
pub struct Outbound {
    url: SafeUrl,
    client: Client,
    bounds: Bounds,
    audit: Arc<dyn Sink>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("url", &self.url.to_string()).field("bounds", &self.bounds).finish()
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The server asks to be left alone for that long.
    pub retry_after: Option<Duration>,
    /// As much of it as was wanted and came.
    pub body: String,
}

impl Outbound {
    /// Costs a megabyte or so where the system's root certificates are needed: make it only when there is somebody to call.
    #[allow(clippy::disallowed_methods, reason = "this is the shim")]
    pub fn to(url: SafeUrl, agent: &str, bounds: Bounds, audit: Arc<dyn Sink>) -> Result<Self, OutboundError> {
        let plain = Client::builder()
            .user_agent(agent)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(bounds.connecting)
            .timeout(bounds.whole)
            .pool_max_idle_per_host(SPARE_CONNECTIONS)
            .pool_idle_timeout(SPARE_FOR);
        let client = match url.is_encrypted() {
            true => plain.https_only(true).build(),
            false => plain.tls_certs_only([]).build(),
        };
        Ok(Self { client: client.map_err(|error| OutboundError::Client(error.without_url()))?, url, bounds, audit })
    }

    pub fn url(&self) -> &SafeUrl {
        &self.url
    }

    /// A `POST` of these bytes. `what` they are, in a few words, is for the record.
    pub fn post(&self, body: Vec<u8>, what: String) -> Asking<'_> {
        let size = body.len();
        Asking { outbound: self, method: "POST", size, what, request: self.client.post(self.url.0.clone()).body(body) }
    }
}

/// A request that is not sent yet.
#[derive(Debug)]
pub struct Asking<'a> {
    outbound: &'a Outbound,
    method: &'static str,
    size: usize,
    what: String,
    request: RequestBuilder,
}

impl Asking<'_> {
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    #[must_use]
    pub fn basic_auth(mut self, user: &str, password: Option<&str>) -> Self {
        self.request = self.request.basic_auth(user, password);
        self
    }

    /// Sends it. Whatever comes of it is recorded, also when nobody waits for the end.
    pub async fn send(self) -> Result<Answer, OutboundError> {
        let Self { outbound, method, size, what, request } = self;
        let record = Record { outbound, method, size, what, started: Instant::now(), came: None };
        match request.send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                let retry_after = retry_after(&response);
                let body = beginning(response, outbound.bounds.answer).await;
                record.end(status.to_string());
                Ok(Answer { status, retry_after, body })
            }
            Err(error) => {
                let (url, source) = (outbound.url.clone(), error.without_url());
                let error = match source.is_timeout() && !source.is_connect() {
                    true => OutboundError::Late { url, patience: outbound.bounds.whole },
                    false => OutboundError::Unreachable { url, source },
                };
                record.end(error.to_string().trim_start_matches(&outbound.url.to_string()).trim_start().to_owned());
                Err(error)
            }
        }
    }
}

/// Posts the row of a request when it ends, one way or another.
struct Record<'a> {
    outbound: &'a Outbound,
    method: &'static str,
    size: usize,
    what: String,
    started: Instant,
    came: Option<String>,
}

impl Record<'_> {
    fn end(mut self, came: String) {
        self.came = Some(came);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let Self { outbound, method, what, started, .. } = self;
        let came = self.came.as_deref().unwrap_or("was given up");
        let (size, took) = (bytes(self.size), started.elapsed().as_millis());
        let detail = format!("{method} {} {came}, {what}, {size}, {took} ms", outbound.url);
        outbound.audit.post(Row::new(Event::Outbound).detail(detail));
    }
}

fn bytes(count: usize) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{} kB", count / 1_000),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// In seconds; the form with a date is not worth a parser here, the caller has a pause of its own.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(reqwest::header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// The start of the body. One that breaks off is still an answer: the status says what became of the request.
async fn beginning(mut response: Response, most: usize) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = most - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// What lies at the bottom of it, in few words: the layers above say only that a request failed.
fn root(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no connection in time".to_owned();
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    match deepest.downcast_ref::<io::Error>() {
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => deepest.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use nexus_core::audit::NotRecorded;
    use nexus_core::tasks::Tasks;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[derive(Default)]
    struct Rows(Mutex<Vec<String>>);

    impl Sink for Rows {
        fn post(&self, row: Row) {
            self.0.lock().push(format!("{} {}", row.event.as_str(), row.detail.unwrap_or_default()));
        }

        fn durable(&self, _: Row) -> BoxFuture<'_, Result<(), NotRecorded>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn backlog(&self) -> Option<BoxFuture<'_, ()>> {
            None
        }
    }

    const BOUNDS: Bounds = Bounds { connecting: Duration::from_secs(5), whole: Duration::from_secs(5), answer: 8 };

    /// A client for a server that gives one answer, and the rows it leaves.
    async fn client(answer: &'static str, path: &str, bounds: Bounds) -> (Outbound, Arc<Rows>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Tasks::new().spawn("server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                if answer.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        });
        let rows = Arc::new(Rows::default());
        let url = SafeUrl::parse(&format!("http://me:hunter2@{address}{path}")).unwrap();
        (Outbound::to(url, "nexus/test", bounds, rows.clone()).unwrap(), rows, address)
    }

    /// The one row, with its milliseconds taken off.
    #[track_caller]
    fn only(rows: &Rows) -> String {
        let rows = rows.0.lock();
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].rsplit_once(", ").unwrap().0.to_owned()
    }

    #[tokio::test]
    async fn an_answer_is_cut_to_size_and_recorded_without_secrets() {
        let said = "HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 20\r\n\r\n01234567890123456789";
        let (out, rows, address) = client(said, "/push?token=hunter2", BOUNDS).await;
        let answer =
            out.post(vec![0; 1_500], "3 rows".to_owned()).basic_auth("me", Some("hunter2")).send().await.unwrap();
        assert_eq!((answer.status, answer.retry_after), (429, Some(Duration::from_secs(7))));
        assert_eq!(answer.body, "01234567");
        assert_eq!(only(&rows), format!("outbound POST http://{address}/push?… 429, 3 rows, 1 kB"));
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_not_followed() {
        let said = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        let (out, ..) = client(said, "/", BOUNDS).await;
        assert_eq!(out.post(Vec::new(), String::new()).send().await.unwrap().status, 302);
    }

    #[tokio::test]
    async fn who_does_not_answer_is_named_and_recorded() {
        let bounds = Bounds { whole: Duration::from_millis(50), ..BOUNDS };
        let (out, rows, address) = client("", "/", bounds).await;
        let error = out.post(vec![0; 10], "1 row".to_owned()).send().await.unwrap_err();
        assert_eq!(error.to_string(), format!("http://{address}/ did not answer within 0 s"));
        assert_eq!(only(&rows), format!("outbound POST http://{address}/ did not answer within 0 s, 1 row, 10 B"));

        let rows = Arc::new(Rows::default());
        let out = Outbound::to(SafeUrl::parse("http://127.0.0.1:1/x").unwrap(), "t", BOUNDS, rows.clone()).unwrap();
        let error = out.post(Vec::new(), "1 row".to_owned()).send().await.unwrap_err();
        assert_eq!(error.to_string(), "http://127.0.0.1:1/x did not answer: connection refused");
        assert_eq!(only(&rows), "outbound POST http://127.0.0.1:1/x did not answer: connection refused, 1 row, 0 B");
    }

    #[tokio::test]
    async fn a_request_that_nobody_waits_for_any_more_is_recorded_too() {
        let (out, rows, address) = client("", "/", BOUNDS).await;
        let asked = out.post(Vec::new(), "1 row".to_owned()).send();
        assert!(tokio::time::timeout(Duration::from_millis(20), asked).await.is_err());
        assert_eq!(only(&rows), format!("outbound POST http://{address}/ was given up, 1 row, 0 B"));
    }

    #[test]
    fn only_web_addresses_are_called() {
        for bad in ["", "loki:3100", "file:///etc/passwd", "ftp://host/"] {
            assert!(SafeUrl::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(SafeUrl::parse("https://u:p@h:8443/a/b?c#d").unwrap().to_string(), "https://h:8443/a/b?…");
        assert_eq!(SafeUrl::parse("http://[::1]/").unwrap().to_string(), "http://[::1]/");
    }

    #[test]
    fn a_key_in_the_path_is_not_shown_wherever_it_leads() {
        let url = SafeUrl::parse("https://h/bot12:Ab-_c/getMe").unwrap().hiding("12:Ab-_c");
        assert_eq!(url.to_string(), "https://h/bot…/getMe");
        assert_eq!(format!("{url:?}"), "https://h/bot…/getMe");
        assert_eq!(url.reveal(), "https://h/bot12:Ab-_c/getMe");
        assert_eq!(url.join("/x/12:Ab-_c").unwrap().to_string(), "https://h/x/…");
        assert_eq!(url.join("getUpdates").unwrap().to_string(), "https://h/bot…/getUpdates");
    }
}
