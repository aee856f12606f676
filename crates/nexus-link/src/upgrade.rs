//! The first words of a connection: a request for a page, or the upgrade to a WebSocket (RFC 6455).

use std::io;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Bytes of a request's head.
const LARGEST_HEAD: usize = 8 * 1024;
const MOST_HEADERS: usize = 64;
/// What the rules put behind a key before it is hashed.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Characters of a host's name.
const LONGEST_HOST: usize = 255;

/// What somebody wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Page { path: String, host: Option<String>, method: Method },
    Upgrade { accept: String, token: Option<String>, rest: Vec<u8> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
}

/// Why somebody is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    reason: &'static str,
    /// For the one who is turned away; ends a line.
    pub why: &'static str,
}

impl Refusal {
    pub const fn new(status: u16, reason: &'static str, why: &'static str) -> Self {
        Self { status, reason, why }
    }

    pub fn render(&self) -> Vec<u8> {
        let Self { status, reason, why } = self;
        let more = if *status == 426 { "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" } else { "" };
        response(&format!("{status} {reason}"), more, why.as_bytes())
    }
}

/// A response that ends the connection.
pub fn response(status: &str, more: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

const NOT_HTTP: Refusal = Refusal::new(400, "Bad Request", "this is no HTTP request that can be read\n");
const TOO_LONG: Refusal = Refusal::new(431, "Request Header Fields Too Large", "the head of the request is too long\n");
const BAD_METHOD: Refusal = Refusal::new(405, "Method Not Allowed", "only GET and HEAD are answered here\n");
const BROWSER: Refusal =
    Refusal::new(403, "Forbidden", "links are for computers, not for web pages: an Origin was sent\n");
const BAD_VERSION: Refusal = Refusal::new(426, "Upgrade Required", "only version 13 of WebSocket is spoken here\n");
const BAD_UPGRADE: Refusal = Refusal::new(400, "Bad Request", "this is no upgrade to WebSocket as RFC 6455 has it\n");

/// Reads the head. `Err(None)`: they hung up.
pub async fn read(socket: &mut TcpStream) -> Result<Asked, Option<Refusal>> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let gone = |_: io::Error| None;
        if socket.read_buf(&mut bytes).await.map_err(gone)? == 0 {
            return Err(None);
        }
        match head(&bytes) {
            Ok(Some(asked)) => return Ok(asked),
            Ok(None) if bytes.len() >= LARGEST_HEAD => return Err(Some(TOO_LONG)),
            Ok(None) => {}
            Err(refusal) => return Err(Some(refusal)),
        }
    }
}

/// None: more has to come.
pub fn head(bytes: &[u8]) -> Result<Option<Asked>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LONG),
        Err(_) => return Err(NOT_HTTP),
    };
    let (Some(method), Some(path), Some(version)) = (request.method, request.path, request.version) else {
        return Err(NOT_HTTP);
    };
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return Err(BAD_METHOD),
    };
    let headers = Headers(request.headers);
    if !headers.has_word("upgrade", "websocket") {
        let host = headers.one("host").filter(|host| is_host(host)).map(str::to_owned);
        return Ok(Some(Asked::Page { path: path.to_owned(), host, method }));
    }
    if headers.all("origin").next().is_some() {
        return Err(BROWSER);
    }
    if headers.one("sec-websocket-version") != Some("13") {
        return Err(BAD_VERSION);
    }
    let key =
        headers.one("sec-websocket-key").filter(|key| BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16));
    let (Some(key), Method::Get, 1, true) = (key, method, version, headers.has_word("connection", "upgrade")) else {
        return Err(BAD_UPGRADE);
    };
    let token = headers.one("authorization").map(|said| bearer(said).to_owned());
    let rest = bytes.get(length..).unwrap_or_default().to_vec();
    Ok(Some(Asked::Upgrade { accept: accept(key), token, rest }))
}

/// `Bearer x` is x; anything else is itself, and wrong.
fn bearer(said: &str) -> &str {
    match said.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer ") => token.trim(),
        _ => said,
    }
}

/// It comes back in a Lua program: nothing but what hosts are made of.
fn is_host(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    !host.is_empty() && host.len() <= LONGEST_HOST && host.bytes().all(plain)
}

fn accept(key: &str) -> String {
    BASE64_STANDARD.encode(Sha1::new().chain_update(key).chain_update(MAGIC).finalize())
}

/// The answer after which a connection is a link.
pub fn accepted(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

struct Headers<'a>(&'a [httparse::Header<'a>]);

impl<'a> Headers<'a> {
    fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| std::str::from_utf8(header.value).unwrap_or("\u{fffd}").trim())
    }

    /// A header that stands there once.
    fn one(&self, name: &str) -> Option<&'a str> {
        let mut all = self.all(name);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// Whether a list of words holds this one.
    fn has_word(&self, name: &str, word: &str) -> bool {
        self.all(name).flat_map(|list| list.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: hub:3001\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
                           Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

    #[test]
    fn the_example_of_the_rfc_is_accepted() {
        let asked = head(format!("{UPGRADE}\r\nrest").as_bytes()).unwrap().unwrap();
        let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned();
        assert_eq!(asked, Asked::Upgrade { accept, token: None, rest: b"rest".to_vec() });
        assert_eq!(head(UPGRADE.as_bytes()), Ok(None));
    }

    #[test]
    fn a_token_may_come_as_a_header() {
        let token = |header: &str| match head(format!("{UPGRADE}{header}\r\n\r\n").as_bytes()) {
            Ok(Some(Asked::Upgrade { token, .. })) => token,
            other => panic!("{other:?}"),
        };
        assert_eq!(token("authorization: bearer secret"), Some("secret".to_owned()));
        assert_eq!(token("Authorization: Basic secret"), Some("Basic secret".to_owned()));
        assert_eq!(token("X-Other: 1"), None);
    }

    #[test]
    fn who_is_not_a_computer_is_turned_away() {
        check(&format!("{UPGRADE}Origin: http://evil.example\r\n\r\n"), BROWSER);
        check(&format!("{UPGRADE}ORIGIN:\r\n\r\n"), BROWSER);
        check(&format!("{UPGRADE}\r\n").replace(": 13", ": 8"), BAD_VERSION);
        check(&format!("{UPGRADE}\r\n").replace("Sec-WebSocket-Version: 13\r\n", ""), BAD_VERSION);
        check(&format!("{UPGRADE}\r\n").replace("ZQ==", ""), BAD_UPGRADE);
        check(&format!("{UPGRADE}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"), BAD_UPGRADE);
        check(&format!("{UPGRADE}\r\n").replace("keep-alive, Upgrade", "close"), BAD_UPGRADE);
        check(&format!("{UPGRADE}\r\n").replace("HTTP/1.1", "HTTP/1.0"), BAD_UPGRADE);
        check(&format!("{UPGRADE}\r\n").replace("GET", "HEAD"), BAD_UPGRADE);
        check(&format!("{UPGRADE}\r\n").replace("GET", "POST"), BAD_METHOD);
        check("\u{16}\u{3}\u{1}", NOT_HTTP);
        check(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65)), TOO_LONG);

        #[track_caller]
        fn check(bytes: &str, refusal: Refusal) {
            assert_eq!(head(bytes.as_bytes()), Err(refusal), "{bytes}");
        }
    }

    #[test]
    fn a_host_that_could_be_a_program_is_not_repeated() {
        let host = |host: &str| match head(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()) {
            Ok(Some(Asked::Page { host, .. })) => host,
            other => panic!("{other:?}"),
        };
        assert_eq!(host("192.168.1.10:3001"), Some("192.168.1.10:3001".to_owned()));
        assert_eq!(host("[fd00::1]:3001"), Some("[fd00::1]:3001".to_owned()));
        assert_eq!(host("x\"..os.shutdown()..\""), None);
        assert_eq!(host(&"x".repeat(256)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
            let _ = head(&bytes);
        }
    }
}
