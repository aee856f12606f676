//! MCP over HTTP+SSE of 2024-11-05.

use serde_json::{Value, json};

use super::http::Response;
use super::{Ask, Hub, Wire, rpc};

/// An open stream, and where to post.
pub struct Sse {
    address: String,
    key: String,
    pub endpoint: String,
    pub stream: Wire,
    /// Notifications heard while waiting for answers.
    pub heard: Vec<Value>,
    /// How to answer what is asked, where the client says that it can.
    pub answer: Option<Value>,
    id: u64,
}

impl Hub {
    /// Opened and initialised.
    pub async fn sse(&self, key: &str) -> Sse {
        self.sse_answering(key, "2024-11-05", None).await
    }

    /// With somebody to ask, who answers always the same.
    pub async fn sse_answering(&self, key: &str, version: &str, answer: Option<Value>) -> Sse {
        let mut sse = Sse { answer, ..self.sse_raw(key).await };
        let client = json!({ "name": "it", "version": "1" });
        let capabilities = if sse.answer.is_some() { super::forms() } else { json!({}) };
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client });
        let hello = sse.request("initialize", params).await;
        assert_eq!(hello["result"]["protocolVersion"], version, "{hello}");
        sse.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        sse
    }

    pub async fn sse_raw(&self, key: &str) -> Sse {
        let (head, mut stream) = self.open(&Ask::get("/sse").key(key)).await;
        assert_eq!(head.status, 200, "{head:?}");
        let first = stream.event().await.unwrap();
        assert_eq!(first.name, "endpoint");
        let endpoint = first.data;
        Sse {
            address: self.address.clone(),
            key: key.to_owned(),
            endpoint,
            stream,
            heard: Vec::new(),
            answer: None,
            id: 0,
        }
    }
}

impl Sse {
    pub async fn post(&self, message: &Value) -> Response {
        self.post_text(&message.to_string()).await
    }

    pub async fn post_text(&self, text: &str) -> Response {
        let ask = Ask::new("POST", &self.endpoint).key(&self.key).body(text);
        Wire::to(&self.address).await.ask(&ask).await
    }

    /// Its answer, as it comes down the stream.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let message = rpc(self.id, method, &params);
        assert_eq!(self.post(&message).await.status(), 202);
        loop {
            let heard = self.stream.next().await;
            if heard["id"] == message["id"] && heard.get("method").is_none() {
                return heard;
            }
            if let (Some(answer), "elicitation/create") = (&self.answer, heard["method"].as_str().unwrap_or_default()) {
                self.post(&json!({ "jsonrpc": "2.0", "id": heard["id"], "result": answer })).await;
            }
            self.heard.push(heard);
        }
    }
}
