//! For the tests of transports: an inbox that remembers, and a web server that follows a script.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use nexus_core::tasks::Tasks;

use super::{Inbox, Outgoing};
use crate::upstream::error::TransportError;

/// A list that can be waited on.
#[derive(Debug, Default)]
pub(super) struct Seen {
    lines: Mutex<Vec<String>>,
    news: Notify,
}

impl Seen {
    pub(super) fn add(&self, line: String) {
        self.lines.lock().push(line);
        self.news.notify_waiters();
    }

    pub(super) fn now(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Waits until the lines are as wanted.
    pub(super) async fn until(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let waiting = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                let lines = self.now();
                if wanted(&lines) {
                    return lines;
                }
                news.await;
            }
        };
        match timeout(Duration::from_secs(20), waiting).await {
            Ok(lines) => lines,
            Err(_) => panic!("still {:?}", self.lines.lock()),
        }
    }

    pub(super) async fn at_least(&self, count: usize) -> Vec<String> {
        self.until(|lines| lines.len() >= count).await
    }
}

impl Inbox for Seen {
    fn arrived(&self, message: Vec<u8>, within: Option<u64>) {
        let text = String::from_utf8(message).unwrap();
        let text = if text.len() > 300 { format!("{} bytes", text.len()) } else { text };
        self.add(within.map_or_else(|| text.clone(), |id| format!("within {id}: {text}")));
    }

    fn failed(&self, request: u64, error: TransportError) {
        self.add(format!("failed {request}: {error}"));
    }

    fn lost(&self, error: TransportError) {
        self.add(format!("lost: {error}"));
    }

    fn closed(&self, error: TransportError) {
        self.add(format!("closed: {error}"));
    }
}

pub(super) fn message(text: impl Into<String>) -> Outgoing {
    Outgoing { text: text.into(), id: None, method: "notifications/x".into(), name: None, headers: Vec::new() }
}

pub(super) fn request(id: u64, method: &'static str) -> Outgoing {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#);
    Outgoing { id: Some(id), method: method.into(), ..message(text) }
}

/// What a script answers.
#[derive(Debug)]
pub(super) enum Said {
    Whole(String),
    /// Stays open afterwards.
    Open(String),
    /// The same, once it may.
    Later(Arc<Notify>, String),
}

/// A web server on loopback.
pub(super) struct Server {
    pub(super) url: String,
    /// Each request, in small letters: its first line and headers, an empty line, its body. Then `gone` when the other
    /// side of an open answer hangs up.
    pub(super) asked: Arc<Seen>,
}

impl Server {
    pub(super) async fn start(script: impl Fn(&str) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (asked, script, tasks) = (Arc::new(Seen::default()), Arc::new(script), Tasks::new());
        let seen = asked.clone();
        Tasks::new().spawn("server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                tasks.spawn("connection", answer(stream, seen.clone(), script.clone()));
            }
        });
        Self { url, asked }
    }
}

async fn answer(mut stream: TcpStream, asked: Arc<Seen>, script: Arc<impl Fn(&str) -> Said + Send + Sync>) {
    let request = read_request(&mut stream).await;
    asked.add(request.clone());
    let mut said = script(&request);
    if let Said::Later(may, text) = said {
        may.notified().await;
        said = Said::Open(text);
    }
    match said {
        Said::Later(..) => {}
        Said::Whole(text) => drop(stream.write_all(text.as_bytes()).await),
        Said::Open(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            while let Ok(1..) = stream.read(&mut [0; 64]).await {}
            asked.add("gone".to_owned());
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut buffer).await.unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..length]).to_lowercase().replace("\r\n", "\n"));
        if let Some((head, body)) = text.split_once("\n\n") {
            let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= wanted.parse().unwrap() {
                return text;
            }
        }
        if length == 0 {
            return text;
        }
    }
}

/// An answer with that status, headers and body.
pub(super) fn http(status: u16, headers: &str, body: &str) -> Said {
    let separator = if headers.is_empty() { "" } else { "\r\n" };
    Said::Whole(format!(
        "HTTP/1.1 {status} X\r\n{headers}{separator}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))
}

pub(super) fn json(body: &str) -> Said {
    http(200, "Content-Type: application/json", body)
}

/// A stream that ends.
pub(super) fn stream(body: &str) -> Said {
    http(200, "Content-Type: text/event-stream", body)
}

/// A stream that goes on in silence.
pub(super) fn open_stream(body: &str) -> Said {
    Said::Open(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{body}"))
}
