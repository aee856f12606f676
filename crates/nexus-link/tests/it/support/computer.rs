//! A computer that keeps to the rules, by a WebSocket library that is not the hub's.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::within;

pub struct Computer {
    socket: WebSocketStream<TcpStream>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Text(String),
    Pong(Vec<u8>),
    Closed(u16, String),
    /// Without a word.
    Lost,
}

impl Computer {
    pub async fn connect(address: SocketAddr, headers: &[(&'static str, &str)]) -> Result<Self, Error> {
        let mut request = format!("ws://{address}/").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let socket = TcpStream::connect(address).await?;
        let (socket, _) = within("the upgrade", client_async(request, socket)).await?;
        Ok(Self { socket })
    }

    pub async fn greet(&mut self, hello: Value) {
        self.say(hello).await;
        assert_eq!(self.heard().await, json!({ "type": "hello-ok" }));
    }

    pub async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    pub async fn say_text(&mut self, text: &str) {
        self.send(Message::text(text)).await;
    }

    pub async fn say(&mut self, json: Value) {
        self.say_text(&json.to_string()).await;
    }

    pub async fn answer(&mut self, id: &str, result: Value) {
        self.say(json!({ "type": "response", "id": id, "ok": true, "result": result })).await;
    }

    /// Whatever comes next. Pings are answered by the library.
    pub async fn next(&mut self) -> Heard {
        loop {
            return match within("something comes", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => Heard::Text(text.to_string()),
                Some(Ok(Message::Pong(payload))) => Heard::Pong(payload.to_vec()),
                Some(Ok(Message::Close(Some(close)))) => Heard::Closed(close.code.into(), close.reason.to_string()),
                Some(Ok(Message::Ping(_))) => continue,
                Some(Ok(other)) => panic!("the hub sent {other:?}"),
                Some(Err(_)) | None => Heard::Lost,
            };
        }
    }

    /// The next frame's JSON.
    pub async fn heard(&mut self) -> Value {
        match self.next().await {
            Heard::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("no text came, but {other:?}"),
        }
    }

    /// The next frame is a request: its id and its method.
    pub async fn request(&mut self) -> (String, String) {
        let heard = self.heard().await;
        assert_eq!(heard["type"], "request", "{heard}");
        let text = |key: &str| heard[key].as_str().unwrap().to_owned();
        (text("id"), text("method"))
    }

    /// The next frame is an error: its words.
    pub async fn error(&mut self) -> String {
        let heard = self.heard().await;
        assert_eq!(heard["type"], "error", "{heard}");
        heard["error"].as_str().unwrap().to_owned()
    }

    /// The next frame is a close: its code.
    pub async fn closed(&mut self) -> u16 {
        match self.next().await {
            Heard::Closed(code, _) => code,
            other => panic!("no close came, but {other:?}"),
        }
    }
}
