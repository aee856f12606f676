//! Computers that dial in, by a WebSocket library that is not the hub's.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::{Hub, LOOK_AGAIN, within};

/// Bytes that a computer takes in a frame.
const LARGEST_FRAME: usize = 120_000;

/// A computer that does what the test says, and looks at every frame that it gets.
pub struct Computer {
    socket: WebSocketStream<TcpStream>,
}

/// What a computer says that knows only ping.
pub fn hello(id: u64, label: &str) -> Value {
    json!({ "type": "hello", "computerId": id, "computerLabel": label })
}

/// What a turtle says whose client can do all that there is.
pub fn turtle(id: u64, label: &str) -> Value {
    let mut hello = hello(id, label);
    hello["capabilities"] = json!(["status", "lua", "files", "peripherals", "turtle", "redstone", "stop"]);
    hello["kind"] = "turtle".into();
    hello["version"] = "1".into();
    hello
}

/// Where computers could be listened for: chosen before a program starts, and still there for the next. The address is
/// of this process alone, so nobody takes the port in between.
pub fn free_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

impl Hub {
    /// Where its ready line says that computers are listened for.
    pub fn door(&self) -> Option<SocketAddr> {
        let said = self.said();
        let ready = said.lines().find(|line| line.starts_with("nexus ready mcp="))?;
        let (_, links) = ready.split_once("links=ws://")?;
        Some(links.split('/').next().unwrap().parse().unwrap())
    }

    /// A computer that has said this, and is linked.
    pub async fn computer(&self, hello: Value) -> Computer {
        Computer::dial(self.door().unwrap(), hello).await
    }

    /// Waits until so many are linked.
    pub async fn has_computers(&self, many: usize) {
        let look = async {
            while self.health().await["computers"] != many {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        within("/health to count the computers", look).await;
    }
}

impl Computer {
    /// Has not said who it is.
    pub async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let upgrade = within("the upgrade", client_async(format!("ws://{address}/"), stream)).await;
        Ok(Self { socket: upgrade.map_err(std::io::Error::other)?.0 })
    }

    /// Has said who it is, and was let in.
    pub async fn dial(address: SocketAddr, hello: Value) -> Self {
        let mut computer = Self::connect(address).await.unwrap();
        computer.say(&hello).await;
        assert_eq!(computer.heard().await, json!({ "type": "hello-ok" }));
        computer
    }

    /// As a computer does that lost its link: dials until somebody is there.
    pub async fn redial(address: SocketAddr, hello: Value) -> Self {
        let look = async {
            loop {
                if let Ok(mut computer) = Self::connect(address).await {
                    computer.say(&hello).await;
                    if computer.next().await == Ok(json!({ "type": "hello-ok" })) {
                        return computer;
                    }
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        within("somebody who lets computers in", look).await
    }

    pub async fn say(&mut self, json: &Value) {
        self.socket.send(Message::text(json.to_string())).await.unwrap();
    }

    /// What comes next, or the code with which the hub hangs up.
    pub async fn next(&mut self) -> Result<Value, u16> {
        loop {
            match within("something of the hub", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => {
                    assert!(text.is_ascii() && text.len() <= LARGEST_FRAME, "{} bytes: {text}", text.len());
                    return Ok(serde_json::from_str(&text).unwrap());
                }
                // The library answers it.
                Some(Ok(Message::Ping(_))) => {}
                Some(Ok(Message::Close(Some(close)))) => return Err(close.code.into()),
                Some(Ok(other)) => panic!("the hub sent {other:?}"),
                Some(Err(_)) | None => return Err(0),
            }
        }
    }

    pub async fn heard(&mut self) -> Value {
        self.next().await.unwrap_or_else(|code| panic!("the hub hung up with {code}"))
    }

    /// The code with which the hub hangs up, next. The computer hangs up, too.
    pub async fn closed(&mut self) -> u16 {
        let code = match self.next().await {
            Err(code) => code,
            Ok(heard) => panic!("it still hears {heard}"),
        };
        assert_eq!(self.next().await, Err(0), "something follows the close");
        let _ = self.socket.get_mut().shutdown().await;
        code
    }

    /// The next thing is this very request: its id. Without parameters, `params` is null.
    pub async fn asked(&mut self, method: &str, params: Value) -> String {
        let mut heard = self.heard().await;
        let id = heard["id"].take().as_str().unwrap_or_default().to_owned();
        let mut expected = json!({ "type": "request", "id": null, "method": method });
        if !params.is_null() {
            expected["params"] = params;
        }
        assert_eq!(heard, expected);
        assert!(id.strip_prefix("req-").is_some_and(|number| number.parse::<u64>().is_ok()), "{id}");
        id
    }

    pub async fn result(&mut self, id: &str, result: Value) {
        self.say(&json!({ "type": "response", "id": id, "ok": true, "result": result })).await;
    }

    /// The next thing is this very request, and it is answered.
    pub async fn answers(&mut self, method: &str, params: Value, result: Value) {
        let id = self.asked(method, params).await;
        self.result(&id, result).await;
    }

    /// The next thing is a request, and its answer is this text, JSON or not.
    pub async fn answers_raw(&mut self, result: &str) {
        let heard = self.heard().await;
        let frame = format!(r#"{{"type":"response","id":{},"ok":true,"result":{result}}}"#, heard["id"]);
        self.socket.send(Message::text(frame)).await.unwrap();
    }

    /// The next thing is this very request, and it is refused.
    pub async fn refuses(&mut self, method: &str, params: Value, words: &str) {
        let id = self.asked(method, params).await;
        self.say(&json!({ "type": "response", "id": id, "ok": false, "error": words })).await;
    }

    /// The next thing is a ping, and nothing came before it.
    pub async fn pongs(&mut self) {
        self.answers("ping", Value::Null, "pong from 99 (Label: forged)".into()).await;
    }

    /// The next thing: nobody waits for that answer any more.
    pub async fn cancelled(&mut self, id: &str) {
        assert_eq!(self.heard().await, json!({ "type": "cancel", "id": id }));
    }
}
