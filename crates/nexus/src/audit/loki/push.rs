//! One push: what is sent, and what the answer means.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use thiserror::Error;
use tokio::task::spawn_blocking;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::text;
use nexus_system::outbound::{Answer, BadUrl, Bounds, Outbound, OutboundError, SafeUrl};

use super::line::{Line, quoted};
use super::sift::Pushed;
use crate::config::env::Secret;
use crate::store::ship::{PUSH_PATH, tells_of_push};
use crate::wire::VERSION;

const BOUNDS: Bounds = Bounds { connecting: Duration::from_secs(5), whole: Duration::from_secs(30), answer: 8 * 1024 };
/// The label by which everything that Nexus records is found, unless the operator says otherwise.
const JOB: (&str, &str) = ("job", "mcp-audit");
const LONGEST_REASON: usize = 300;

#[derive(Debug, Error)]
pub enum LokiError {
    #[error("LOKI_URL")]
    Url(#[from] BadUrl),
    #[error("shipping to Loki")]
    Client(#[from] OutboundError),
    /// Every push would make a row that is pushed.
    #[error("LOKI_URL is so long, or looks so secret, that a push could not be told from other rows")]
    Unrecognizable,
}

/// The Loki of the operator.
#[derive(Debug)]
pub struct Loki {
    out: Outbound,
    user: Option<String>,
    password: Option<Secret>,
    tenant: Option<String>,
    /// All of a push before the first line.
    head: Arc<str>,
    shown: String,
}

/// Neither taken nor refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotNow {
    pub trouble: Trouble,
    why: String,
    pub retry_after: Option<Duration>,
}

/// What kind of failure it is: one warning each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Unreachable,
    /// 429.
    TooFast,
    /// 5xx.
    Failing,
    /// 401 and 403.
    Forbidden,
    /// 404 and whatever else no Loki answers.
    NoLoki,
    /// 260: Loki throws away what this tenant sends.
    Blocked,
    /// Our own store.
    Store,
}

impl Trouble {
    /// What the operator can look at.
    pub fn hint(self) -> &'static str {
        match self {
            Trouble::Forbidden => " (look at LOKI_USER, LOKI_PASSWORD and loki.tenant)",
            Trouble::NoLoki => " (look at LOKI_URL: it is what comes before /loki/api/v1/push)",
            Trouble::Blocked => " (look at the limits of the tenant in Loki)",
            Trouble::Unreachable | Trouble::TooFast | Trouble::Failing | Trouble::Store => "",
        }
    }
}

impl NotNow {
    fn new(trouble: Trouble, why: String) -> Self {
        Self { trouble, why, retry_after: None }
    }

    /// A fault of the hub itself.
    pub fn ours(why: &str) -> Self {
        Self::new(Trouble::Store, why.to_owned())
    }

    pub fn is_too_fast(&self) -> bool {
        self.trouble == Trouble::TooFast
    }
}

impl Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Loki {
    /// `url` is Loki's own, without a path.
    pub fn new<'a>(
        url: &str,
        (user, password): (Option<String>, Option<Secret>),
        tenant: Option<String>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        audit: Arc<dyn Sink>,
    ) -> Result<Self, LokiError> {
        let agent = format!("nexus/{VERSION}");
        let out = Outbound::to(SafeUrl::parse(&format!("{url}{PUSH_PATH}"))?, &agent, BOUNDS, audit)?;
        let sample = Row::new(Event::Outbound).detail(format!("POST {} 204", out.url()));
        if !sample.detail.as_deref().is_some_and(tells_of_push) {
            return Err(LokiError::Unrecognizable);
        }
        Ok(Self { out, user, password, tenant, head: head(labels).into(), shown: url.to_owned() })
    }

    pub fn url(&self) -> &str {
        &self.shown
    }

    /// Sends some of the lines.
    pub async fn push(&self, lines: Arc<Vec<Line>>, piece: Range<usize>) -> Pushed<NotNow> {
        let (head, count) = (self.head.clone(), piece.len());
        let packing = spawn_blocking(move || packed(&head, &lines[piece]));
        let Ok(Ok(body)) = packing.await else {
            return Pushed::NotNow(NotNow::ours("rows could not be packed"));
        };
        let rows = if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
        let mut asking = self.out.post(body, rows);
        asking = asking.header("content-type", "application/json").header("content-encoding", "gzip");
        if let Some(user) = &self.user {
            asking = asking.basic_auth(user, self.password.as_ref().map(Secret::expose));
        }
        if let Some(tenant) = &self.tenant {
            asking = asking.header("x-scope-orgid", tenant);
        }
        match asking.send().await {
            Ok(answer) => meaning(&answer),
            Err(error) => Pushed::NotNow(NotNow::new(Trouble::Unreachable, told(&error))),
        }
    }
}

/// Without the address, which whoever prints it names already.
fn told(error: &OutboundError) -> String {
    let text = error.to_string();
    text.split_once(' ').map_or(text.clone(), |(_, rest)| format!("it {rest}"))
}

fn head<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut all = BTreeMap::from([JOB]);
    all.extend(labels);
    let mut head = r#"{"streams":[{"stream":{"#.to_owned();
    for (nth, (name, value)) in all.into_iter().enumerate() {
        let _ = write!(head, "{}{}:{}", if nth == 0 { "" } else { "," }, quoted(name), quoted(value));
    }
    head.push_str(r#"},"values":["#);
    head
}

fn packed(head: &str, lines: &[Line]) -> io::Result<Vec<u8>> {
    let raw: usize = lines.iter().map(|line| line.json.len()).sum();
    let mut gzip = GzEncoder::new(Vec::with_capacity(raw / 4), Compression::fast());
    gzip.write_all(head.as_bytes())?;
    for (nth, line) in lines.iter().enumerate() {
        if nth > 0 {
            gzip.write_all(b",")?;
        }
        gzip.write_all(line.json.as_bytes())?;
    }
    gzip.write_all(b"]}]}")?;
    gzip.finish()
}

/// Loki validates after it has authenticated and before it stores: 400 is about the rows, everything else is not.
fn meaning(answer: &Answer) -> Pushed<NotNow> {
    let Answer { status, body, .. } = answer;
    let said = text::cut(text::clean(body).trim(), LONGEST_REASON).replace('\n', " ");
    let said = if said.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {said}") };
    let trouble = match *status {
        260 => Trouble::Blocked,
        200..300 => return Pushed::Taken,
        400 | 422 => return Pushed::Refused(said),
        413 => return Pushed::TooLarge(said),
        429 => Trouble::TooFast,
        401 | 403 | 407 => Trouble::Forbidden,
        408 | 425 | 500..600 => Trouble::Failing,
        _ => Trouble::NoLoki,
    };
    Pushed::NotNow(NotNow { trouble, why: format!("it answers {said}"), retry_after: answer.retry_after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::Read;

    #[test]
    fn a_push_is_one_stream_with_its_labels_and_all_lines() {
        let lines = [1, 2].map(|pos| Line { pos, json: format!(r#"["{pos}","line",{{"a":"b"}}]"#) });
        let packed = packed(&head([("env", "home\"lab"), ("tier", "x")]), &lines).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({ "streams": [{
                "stream": { "env": "home\"lab", "job": "mcp-audit", "tier": "x" },
                "values": [["1", "line", { "a": "b" }], ["2", "line", { "a": "b" }]],
            }]})
        );
        assert!(head([("job", "other")]).contains(r#""job":"other""#), "the operator's word counts");
    }

    #[test]
    fn a_url_that_the_record_would_not_show_is_no_good() {
        let loki = |url: &str| Loki::new(url, (None, None), None, [], Arc::new(nexus_core::audit::Nowhere));
        assert!(loki("http://loki:3100").is_ok());
        assert!(loki("http://loki:3100/behind/a/proxy").is_ok());
        assert!(matches!(loki(&format!("http://{}/x", "a.".repeat(300))), Err(LokiError::Unrecognizable)));
        assert!(matches!(loki("loki"), Err(LokiError::Url(_))));
    }

    #[test]
    fn answers_mean_what_loki_means_by_them() {
        let not_now = |trouble, why: &str| Pushed::NotNow(NotNow::new(trouble, format!("it answers {why}")));
        check(204, "", &Pushed::Taken);
        check(200, "ok", &Pushed::Taken);
        check(400, "entry too old\n", &Pushed::Refused("HTTP 400: entry too old".to_owned()));
        check(413, "", &Pushed::TooLarge("HTTP 413".to_owned()));
        check(429, "slow down", &not_now(Trouble::TooFast, "HTTP 429: slow down"));
        check(500, "", &not_now(Trouble::Failing, "HTTP 500"));
        check(503, "a\nb", &not_now(Trouble::Failing, "HTTP 503: a b"));
        check(401, "no org id", &not_now(Trouble::Forbidden, "HTTP 401: no org id"));
        check(403, "", &not_now(Trouble::Forbidden, "HTTP 403"));
        check(404, "page not found", &not_now(Trouble::NoLoki, "HTTP 404: page not found"));
        check(302, "", &not_now(Trouble::NoLoki, "HTTP 302"));
        check(260, "blocked", &not_now(Trouble::Blocked, "HTTP 260: blocked"));

        #[track_caller]
        fn check(status: u16, body: &str, expected: &Pushed<NotNow>) {
            assert_eq!(&meaning(&Answer { status, retry_after: None, body: body.to_owned() }), expected);
        }
    }
}
