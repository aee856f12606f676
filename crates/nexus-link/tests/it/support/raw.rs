//! A connection that sends just the bytes it is told to.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

pub struct Raw {
    pub socket: TcpStream,
    /// What the hub said to the upgrade.
    pub accepted: String,
    /// Came, and is not looked at yet.
    bytes: Vec<u8>,
}

/// The request that makes a link, with more headers in it.
pub fn upgrade(more: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: hub:3001\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
    )
}

/// A masked frame. `first` is its first byte: the opcode, and whether it is the last of its message.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(key);
    bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// All that comes back for a request of another sort.
pub async fn http(mut socket: TcpStream, request: &str) -> String {
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    within("the answer ends", socket.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

impl Raw {
    pub async fn open(mut socket: TcpStream, more: &str) -> Self {
        socket.write_all(upgrade(more).as_bytes()).await.unwrap();
        Self::opened(socket).await
    }

    /// One that has asked for the upgrade already.
    pub async fn opened(mut socket: TcpStream) -> Self {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let count = within("the upgrade", socket.read_buf(&mut bytes)).await.unwrap();
            assert_ne!(count, 0, "hung up: {:?}", String::from_utf8_lossy(&bytes));
        };
        let rest = bytes.split_off(end);
        let accepted = String::from_utf8(bytes).unwrap();
        assert!(accepted.starts_with("HTTP/1.1 101 "), "{accepted}");
        Self { socket, accepted, bytes: rest }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    pub async fn say(&mut self, text: &str) {
        self.send(&frame(0x81, text.as_bytes())).await;
    }

    pub async fn greet(&mut self, id: u64) {
        self.say(&json!({ "type": "hello", "computerId": id }).to_string()).await;
        assert_eq!(self.heard().await, json!({ "type": "hello-ok" }));
    }

    /// The next frame: its first byte and its payload. Pings are answered. None: the hub hung up.
    pub async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((first, start, end)) = head(&self.bytes)
                && self.bytes.len() >= end
            {
                let payload = self.bytes[start..end].to_vec();
                self.bytes.drain(..end);
                if first == 0x89 {
                    let _ = self.socket.write_all(&frame(0x8a, &payload)).await;
                    continue;
                }
                return Some((first, payload));
            }
            match within("a frame comes", self.socket.read_buf(&mut self.bytes)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next text, as JSON.
    pub async fn heard(&mut self) -> Value {
        let (first, payload) = self.next().await.expect("the hub says something");
        assert_eq!(first, 0x81, "one whole text frame");
        assert!(payload.is_ascii());
        serde_json::from_slice(&payload).unwrap()
    }

    /// The next request's id.
    pub async fn request(&mut self) -> String {
        let heard = self.heard().await;
        assert_eq!(heard["type"], "request", "{heard}");
        heard["id"].as_str().unwrap().to_owned()
    }

    /// The code of the close that comes, after whatever else; nothing follows it.
    pub async fn closed(&mut self) -> u16 {
        loop {
            let (first, payload) = self.next().await.expect("a close before the end");
            if first == 0x88 {
                self.socket.shutdown().await.ok();
                assert_eq!(self.next().await, None, "something follows the close");
                return u16::from_be_bytes([payload[0], payload[1]]);
            }
        }
    }
}

/// First byte, and where the payload starts and ends.
fn head(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    assert_eq!(second & 0x80, 0, "the hub's frames are not masked");
    let (start, length) = match second {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap())).unwrap()),
        short => (2, usize::from(short)),
    };
    Some((first, start, start + length))
}
