//! A Loki of our own: takes pushes as the real one does, looks closely at each, and answers what the test wants.
//!
//! What it answers was recorded from a real one: 204 without a body when all was taken, plain text otherwise. Like that
//! one it keeps what is right in a push that it refuses, and drops what it has already.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use nexus_core::tasks::Tasks;

use super::within;

const LONGEST_LINE: usize = 256 * 1024;
const MOST_METADATA: usize = 64 * 1024;
const MOST_ENTRIES: usize = 128;

pub type Metadata = BTreeMap<String, String>;

/// What a push is answered with, in place of what it deserves.
#[derive(Clone, Debug)]
pub enum Say {
    /// A status and its text; nothing is kept.
    Status(u16, &'static str),
    /// 429, with a wish.
    RetryAfter(u64),
    /// Nothing is kept, and the connection ends.
    Close,
    /// All is kept, and the connection ends without a word.
    KeepAndClose,
    /// All is kept, and no word ever comes.
    KeepAndHang,
}

/// One entry, as a query would show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    pub nanoseconds: u64,
    pub line: String,
    pub metadata: Metadata,
}

#[derive(Clone, Debug, Default)]
pub struct State {
    /// In the order of coming, without what came a second time.
    pub rows: Vec<Kept>,
    /// Rows that came again, the same in every way.
    pub again: usize,
    pub labels: BTreeMap<String, String>,
    pub headers: BTreeMap<String, String>,
    /// Requests, however they were answered.
    pub pushes: usize,
    /// Those of them that got a word.
    pub answered: usize,
    /// The largest push: rows, and bytes before packing.
    pub largest: (usize, usize),
    /// What a real one would not have taken, or what no hub should send.
    pub faults: Vec<String>,
}

impl State {
    pub fn lines(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.line.as_str()).collect()
    }
}

type Refuse = Box<dyn Fn(&Kept) -> bool + Send>;

struct Inner {
    state: watch::Sender<State>,
    script: Mutex<VecDeque<Say>>,
    /// The answer to every push that has none of its own.
    always: Mutex<Option<Say>>,
    refuse: Mutex<Option<Refuse>>,
}

/// Listens until it is dropped or sent away.
pub struct Loki {
    inner: Arc<Inner>,
    port: u16,
    listening: CancellationToken,
}

impl Loki {
    pub async fn start() -> Self {
        let mut loki = Self::away().await;
        loki.come_back().await;
        loki
    }

    /// One that has an address and does not answer there.
    pub async fn away() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let inner = Inner {
            state: watch::channel(State::default()).0,
            script: Mutex::default(),
            always: Mutex::default(),
            refuse: Mutex::default(),
        };
        Self { inner: Arc::new(inner), port, listening: CancellationToken::new() }
    }

    pub async fn come_back(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.listening = CancellationToken::new();
        let (inner, over) = (self.inner.clone(), self.listening.clone());
        Tasks::new().spawn(
            "loki",
            over.clone().run_until_cancelled_owned(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let serving = serve(stream, inner.clone());
                    Tasks::new().spawn("push", over.clone().run_until_cancelled_owned(serving));
                }
            }),
        );
    }

    /// Answers nobody any more, not even those who are being answered.
    pub fn go_away(&self) {
        self.listening.cancel();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Answers the next pushes so.
    pub fn next(&self, answers: impl IntoIterator<Item = Say>) {
        self.inner.script.lock().extend(answers);
    }

    /// Answers all pushes so; none: as they deserve.
    pub fn always(&self, answer: Option<Say>) {
        *self.inner.always.lock() = answer;
    }

    /// Refuses what is so, as a real one refuses what is too old.
    pub fn refuse(&self, so: impl Fn(&Kept) -> bool + Send + 'static) {
        *self.inner.refuse.lock() = Some(Box::new(so));
    }

    pub fn state(&self) -> State {
        self.inner.state.borrow().clone()
    }

    /// Waits until it is so.
    #[track_caller]
    pub fn reaches(&self, what: &str, so: impl Fn(&State) -> bool) -> impl Future<Output = State> {
        let mut state = self.inner.state.subscribe();
        within(what, async move { state.wait_for(|state| so(state)).await.unwrap().clone() })
    }
}

impl Drop for Loki {
    fn drop(&mut self) {
        self.go_away();
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    let mut stream = BufReader::new(stream);
    while let Some((head, body)) = request(&mut stream).await {
        let say = inner.script.lock().pop_front().or_else(|| inner.always.lock().clone());
        let answer = answer(&inner, &head, &body, say.as_ref());
        let answer = match say {
            Some(Say::Close | Say::KeepAndClose) => return,
            Some(Say::KeepAndHang) => return std::future::pending().await,
            _ => answer,
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<(Vec<String>, Vec<u8>)> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Push {
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    stream: BTreeMap<String, String>,
    values: Vec<(String, String, Metadata)>,
}

/// Looks at a push, keeps what is to be kept, and gives the answer as text.
fn answer(inner: &Inner, head: &[String], body: &[u8], say: Option<&Say>) -> String {
    let mut faults = Vec::new();
    let parsed = push(head, body, &mut faults);
    let refuse = inner.refuse.lock();
    let mut refused = None;
    inner.state.send_modify(|state| {
        state.pushes += 1;
        state.answered += usize::from(!matches!(say, Some(Say::Close | Say::KeepAndClose | Say::KeepAndHang)));
        state.headers = headers(head);
        if let Some((stream, size)) = parsed {
            state.labels = stream.stream;
            state.largest = state.largest.max((stream.values.len(), size));
            let keeps = !matches!(say, Some(Say::Status(..) | Say::RetryAfter(_) | Say::Close));
            for (nanoseconds, line, metadata) in stream.values {
                let row = Kept { nanoseconds: nanoseconds.parse().unwrap_or_default(), line, metadata };
                check(&row, &mut faults);
                if refuse.as_ref().is_some_and(|refuse| refuse(&row)) {
                    refused = Some(row.nanoseconds);
                } else if keeps {
                    keep(state, row, &mut faults);
                }
            }
        }
        state.faults.append(&mut faults);
    });
    match (say, refused) {
        (Some(Say::Status(status, text)), _) => response(*status, "", text),
        (Some(Say::RetryAfter(seconds)), _) => {
            response(429, &format!("Retry-After: {seconds}\r\n"), "ingestion rate limit exceeded\n")
        }
        (_, Some(nanoseconds)) => {
            let stream = "entry for stream '{job=\"mcp-audit\"}' has timestamp too old";
            response(
                400,
                "",
                &format!("{stream}: {nanoseconds}, oldest acceptable timestamp is: 2026-11-08T00:00:00Z\n"),
            )
        }
        _ => response(204, "", ""),
    }
}

fn keep(state: &mut State, row: Kept, faults: &mut Vec<String>) {
    match state.rows.iter().find(|known| known.metadata["id"] == row.metadata["id"]) {
        Some(known) if *known == row => state.again += 1,
        Some(known) => faults.push(format!("a row that differs from itself: {row:?} after {known:?}")),
        None => state.rows.push(row),
    }
}

fn response(status: u16, headers: &str, text: &str) -> String {
    let length = if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", text.len()) };
    format!("HTTP/1.1 {status} X\r\nContent-Type: text/plain; charset=utf-8\r\n{headers}{length}\r\n{text}")
}

fn headers(head: &[String]) -> BTreeMap<String, String> {
    let pairs = head.iter().skip(1).filter_map(|line| line.split_once(": "));
    pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

/// The one stream of a push and its size, if it has the form it must have.
fn push(head: &[String], body: &[u8], faults: &mut Vec<String>) -> Option<(Stream, usize)> {
    let headers = headers(head);
    let mut must = |so: bool, what: &str| {
        if !so {
            faults.push(format!("{what}: {head:?}"));
        }
    };
    must(head[0] == "POST /loki/api/v1/push HTTP/1.1", "the request line");
    must(headers.get("content-type").is_some_and(|kind| kind == "application/json"), "the content type");
    must(headers.get("content-encoding").is_some_and(|coding| coding == "gzip"), "the content encoding");
    must(headers.get("user-agent").is_some_and(|agent| agent.starts_with("nexus/")), "the user agent");
    let mut text = String::new();
    if let Err(error) = flate2::read::GzDecoder::new(body).read_to_string(&mut text) {
        must(false, &format!("gzip: {error}"));
        return None;
    }
    match serde_json::from_str::<Push>(&text) {
        Ok(mut push) => {
            must(push.streams.len() == 1, "one stream");
            let stream = push.streams.pop()?;
            must((1..=15).contains(&stream.stream.len()), "1 to 15 labels");
            must(!stream.values.is_empty(), "some rows");
            Some((stream, text.len()))
        }
        Err(error) => {
            must(false, &format!("{error} in {}", text.chars().take(500).collect::<String>()));
            None
        }
    }
}

/// Loki's own limits, and what makes a row one that can be found and told from others.
fn check(row: &Kept, faults: &mut Vec<String>) {
    let size: usize = row.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    let name = |name: &String| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let arguments = row.metadata.get("arguments").is_none_or(|text| serde_json::from_str::<Value>(text).is_ok());
    let good = row.line.len() <= LONGEST_LINE
        && !row.line.contains('\n')
        && size <= MOST_METADATA
        && row.metadata.len() <= MOST_ENTRIES
        && row.metadata.keys().all(name)
        && arguments
        && ["id", "chain", "seq", "at", "event", "hash"].iter().all(|field| row.metadata.contains_key(*field))
        && row.line.ends_with(&row.metadata["id"])
        && row.nanoseconds > 1_700_000_000_000_000_000;
    if !good {
        faults.push(format!("a row that is not right: {row:?}"));
    }
}
