//! HTTP/1.1 by hand: full control of what is sent, and answers read piece by piece.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Hub, within};

/// A request, as it will be written.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Ask {
    pub fn new(method: &str, path: &str) -> Self {
        let accept = ("Accept".to_owned(), "application/json, text/event-stream".to_owned());
        Self { method: method.to_owned(), path: path.to_owned(), headers: vec![accept], body: None }
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A message for `/mcp`.
    pub fn post(body: &Value) -> Self {
        Self::new("POST", "/mcp").body(&body.to_string())
    }

    /// In place of one of that name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    pub fn body(mut self, body: &str) -> Self {
        self.body = Some(body.as_bytes().to_vec());
        let has_kind = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Content-Type"));
        if has_kind { self } else { self.header("Content-Type", "application/json") }
    }

    /// As bytes. `Host` and `Content-Length` are added where they are not said.
    pub fn render(&self, host: &str) -> Vec<u8> {
        let says = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !says("Host") {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        if let Some(body) = &self.body
            && !says("Content-Length")
            && !says("Transfer-Encoding")
        {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

/// One connection.
pub struct Wire {
    host: String,
    stream: BufReader<TcpStream>,
    framing: Framing,
    /// What has come of a stream of events and is not a whole event yet.
    pending: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
    Over,
}

/// What stands before the body.
#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    pub headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct Response {
    pub head: Head,
    pub body: String,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// One event of a stream.
#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    pub data: String,
}

impl Event {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Hub {
    pub async fn connect(&self) -> Wire {
        Wire::to(&self.address).await
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, ask: &Ask) -> Response {
        self.connect().await.ask(ask).await
    }

    /// Opens a stream of events: what stands before it, and the stream.
    pub async fn open(&self, ask: &Ask) -> (Head, Wire) {
        let mut wire = self.connect().await;
        wire.send(ask).await;
        (wire.head().await, wire)
    }
}

impl Wire {
    pub async fn to(address: &str) -> Self {
        let stream = within("a connection", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            host: address.to_owned(),
            stream: BufReader::new(stream),
            framing: Framing::Over,
            pending: String::new(),
        }
    }

    pub async fn ask(&mut self, ask: &Ask) -> Response {
        self.send(ask).await;
        self.response().await
    }

    pub async fn send(&mut self, ask: &Ask) {
        let bytes = ask.render(&self.host);
        self.write(&bytes).await;
    }

    /// A hub that refuses early stops reading; that is no failure of the test.
    pub async fn write(&mut self, bytes: &[u8]) {
        let _ = within("writing", self.stream.write_all(bytes)).await;
    }

    pub async fn head(&mut self) -> Head {
        let first = self.line().await.unwrap_or_else(|| panic!("the connection closed without an answer"));
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{first}"));
        let mut headers = Vec::new();
        while let Some(line) = self.line().await.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let head = Head { status, headers };
        let length = head.header("content-length").map(|length| length.parse().unwrap());
        self.framing = match (length, head.header("transfer-encoding")) {
            (_, Some(_)) => Framing::Chunked,
            (Some(0), _) => Framing::Over,
            (Some(length), _) => Framing::Length(length),
            (None, None) if matches!(status, 204 | 304) => Framing::Over,
            (None, None) => Framing::UntilClose,
        };
        head
    }

    pub async fn response(&mut self) -> Response {
        let head = self.head().await;
        self.rest(head).await
    }

    /// The body behind a head that was read already.
    pub async fn rest(&mut self, head: Head) -> Response {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await {
            body.extend(piece);
        }
        Response { head, body: String::from_utf8(body).unwrap() }
    }

    /// The next event; none when the stream has ended. Comments are passed over.
    pub async fn event(&mut self) -> Option<Event> {
        // Signs of life are no event: the deadline is for them all together.
        within("an event, or the end of the stream", self.next_event()).await
    }

    async fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(at) = self.pending.find("\n\n") {
                let block: String = self.pending.drain(..at + 2).collect();
                let field = |name: &str| {
                    let lines = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    lines.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n")
                };
                let (name, data) = (field("event"), field("data"));
                if !(name.is_empty() && data.is_empty()) {
                    return Some(Event { name, data });
                }
                continue;
            }
            let piece = self.piece().await?;
            self.pending.push_str(&String::from_utf8(piece).unwrap());
        }
    }

    /// The next event, which must come.
    pub async fn next(&mut self) -> Value {
        self.event().await.unwrap_or_else(|| panic!("the stream ended")).json()
    }

    /// Whether the other side closes without another word.
    pub async fn closes(&mut self) -> bool {
        let mut rest = Vec::new();
        let _ = within("the end of the connection", self.stream.read_to_end(&mut rest)).await;
        rest.is_empty()
    }

    async fn piece(&mut self) -> Option<Vec<u8>> {
        match self.framing {
            Framing::Over => None,
            Framing::Length(length) => {
                let mut body = vec![0; length];
                within("a body", self.stream.read_exact(&mut body)).await.unwrap();
                self.framing = Framing::Over;
                Some(body)
            }
            Framing::Chunked => {
                let size = self.line().await.unwrap_or_default();
                let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
                let mut chunk = vec![0; size];
                within("a chunk", self.stream.read_exact(&mut chunk)).await.unwrap();
                self.line().await;
                if size == 0 {
                    self.framing = Framing::Over;
                    return None;
                }
                Some(chunk)
            }
            Framing::UntilClose => {
                let mut body = Vec::new();
                let _ = within("a body", self.stream.read_to_end(&mut body)).await;
                self.framing = Framing::Over;
                Some(body)
            }
        }
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = within("a line", self.stream.read_line(&mut line)).await.unwrap_or(0);
        (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }
}
