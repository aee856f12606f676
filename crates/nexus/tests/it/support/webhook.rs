//! A program that tasks are posted to: looks closely at each message, keeps it, and answers what the test wants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::Sha256;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use nexus_core::clock;
use nexus_core::tasks::Tasks;

use super::http::Response;
use super::{Ask, Hub, within};

/// What both sides sign with.
pub const SECRET: &str = "whsec_bmV4dXMtd2ViaG9vay10ZXN0LXNlY3JldC0wMTIzNDU2Nzg5";

/// How a message is answered.
#[derive(Clone, Debug)]
pub enum Say {
    Status(u16, &'static str),
    /// A status, and how many seconds to wait.
    RetryAfter(u16, u64),
    /// It is kept, and no word ever comes.
    Hang,
}

/// A message that came.
#[derive(Clone, Debug)]
pub struct Came {
    /// `webhook-id`.
    pub id: String,
    pub body: Value,
}

/// All that came, in order, and what was wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub messages: Vec<Came>,
    pub faults: Vec<String>,
}

impl Heard {
    /// Of one type, as `type id`.
    pub fn of(&self, kind: &str) -> Vec<&Came> {
        self.messages.iter().filter(|came| came.body["type"] == kind).collect()
    }
}

struct Inner {
    heard: watch::Sender<Heard>,
    script: Mutex<VecDeque<Say>>,
    always: Mutex<Say>,
}

/// Listens until it is dropped.
pub struct Receiver {
    inner: Arc<Inner>,
    port: u16,
    over: CancellationToken,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            heard: watch::Sender::default(),
            script: Mutex::default(),
            always: Mutex::new(Say::Status(204, "")),
        });
        let (over, serving) = (CancellationToken::new(), inner.clone());
        let ends = over.clone();
        Tasks::new().spawn(
            "receiver",
            over.clone().run_until_cancelled_owned(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let one = serve(stream, serving.clone());
                    Tasks::new().spawn("message", ends.clone().run_until_cancelled_owned(one));
                }
            }),
        );
        Self { inner, port, over }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/in", self.port)
    }

    /// Answers the next messages so.
    pub fn next(&self, answers: impl IntoIterator<Item = Say>) {
        self.inner.script.lock().extend(answers);
    }

    /// Answers all others so.
    pub fn always(&self, answer: Say) {
        *self.inner.always.lock() = answer;
    }

    pub fn heard(&self) -> Heard {
        self.inner.heard.borrow().clone()
    }

    /// Waits until it is so.
    #[track_caller]
    pub fn hears(&self, what: &str, so: impl Fn(&Heard) -> bool) -> impl Future<Output = Heard> {
        let mut heard = self.inner.heard.subscribe();
        within(what, async move { heard.wait_for(|heard| so(heard)).await.unwrap().clone() })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    let mut stream = BufReader::new(stream);
    while let Some((head, body)) = request(&mut stream).await {
        let say = inner.script.lock().pop_front();
        let say = say.unwrap_or_else(|| inner.always.lock().clone());
        keep(&inner, &head, &body);
        let answer = match say {
            Say::Hang => return std::future::pending().await,
            Say::Status(status, text) => response(status, "", text),
            Say::RetryAfter(status, seconds) => response(status, &format!("Retry-After: {seconds}\r\n"), "slowly"),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn response(status: u16, headers: &str, text: &str) -> String {
    let length = if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", text.len()) };
    format!("HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\n{headers}{length}\r\n{text}")
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

fn keep(inner: &Inner, head: &[String], body: &[u8]) {
    let headers: BTreeMap<String, String> = head
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let mut faults = Vec::new();
    let mut must = |so: bool, what: &str| {
        if !so {
            faults.push(format!("{what}: {head:?}"));
        }
    };
    must(head[0] == "POST /in HTTP/1.1", "the request line");
    must(header("content-type") == "application/json", "the content type");
    must(header("user-agent").starts_with("nexus/"), "the user agent");
    must(!id.is_empty() && !id.contains('.'), "the id");
    must(timestamp.parse::<i64>().is_ok_and(|at| at.abs_diff(now()) < 60), "the time");
    must(header("webhook-signature") == signed(SECRET, &id, &timestamp, body), "the signature");
    let body = serde_json::from_slice(body).unwrap_or_else(|error| {
        must(false, &format!("the body: {error}"));
        Value::Null
    });
    inner.heard.send_modify(|heard| {
        heard.faults.append(&mut faults);
        heard.messages.push(Came { id, body });
    });
}

pub fn now() -> i64 {
    clock::now().as_second()
}

/// The header of a message that is signed with `secret`.
pub fn signed(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// An update as an agent posts it.
pub fn update(target: &str, id: &str, body: &Value) -> Ask {
    let (timestamp, body) = (now().to_string(), body.to_string());
    Ask::new("POST", &format!("/agents/{target}/updates"))
        .body(&body)
        .header("webhook-id", id)
        .header("webhook-timestamp", &timestamp)
        .header("webhook-signature", &signed(SECRET, id, &timestamp, body.as_bytes()))
}

impl Hub {
    /// What an agent says that is to be taken, and the hub's reply.
    #[track_caller]
    pub fn posted(&self, target: &str, id: &str, body: &Value) -> impl Future<Output = Value> {
        let ask = update(target, id, body);
        async move {
            let response: Response = self.ask(&ask).await;
            assert_eq!(response.status(), 200, "{response:?}");
            response.json()
        }
    }
}
