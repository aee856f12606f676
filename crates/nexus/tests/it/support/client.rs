//! MCP over Streamable HTTP, in either era.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::http::{Head, Response};
use super::{Ask, Hub, Wire};

pub const MODERN: &str = "2026-07-28";

/// A request as a message.
pub fn rpc(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A client with a key: in a session, or in the era that has none.
pub struct Client {
    address: String,
    key: String,
    /// None: every request stands alone.
    pub session: Option<String>,
    pub version: String,
    /// What it says it can do.
    pub capabilities: Value,
    ids: AtomicU64,
}

/// What a client says that can put forms to a person.
pub fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// A person's answer to the question of the gate.
pub fn decided(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

/// What came back: notifications, and at last the response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub head: Head,
    pub messages: Vec<Value>,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The response itself.
    #[track_caller]
    pub fn message(&self) -> &Value {
        self.messages.last().unwrap_or_else(|| panic!("no answer: {self:?}"))
    }

    #[track_caller]
    pub fn result(&self) -> &Value {
        assert!(self.message()["error"].is_null(), "{self:?}");
        &self.message()["result"]
    }

    #[track_caller]
    pub fn code(&self) -> i64 {
        self.message()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}

impl Hub {
    /// A session of the newest version that has such.
    pub async fn legacy(&self, key: &str) -> Client {
        Client::initialized(self, key, "2025-11-25").await
    }

    pub fn modern(&self, key: &str) -> Client {
        Client {
            address: self.address.clone(),
            key: key.to_owned(),
            session: None,
            version: MODERN.to_owned(),
            capabilities: json!({}),
            ids: AtomicU64::new(1),
        }
    }

    /// A session whose client can be asked.
    pub async fn legacy_asked(&self, key: &str) -> Client {
        Client::able(self, key, "2025-11-25", forms()).await
    }

    pub fn modern_asked(&self, key: &str) -> Client {
        Client { capabilities: forms(), ..self.modern(key) }
    }

    /// One client of each era, both with somebody to ask.
    pub async fn both_asked(&self, key: &str) -> [Client; 2] {
        [self.legacy_asked(key).await, self.modern_asked(key)]
    }

    /// One client of each era.
    pub async fn both(&self, key: &str) -> [Client; 2] {
        [self.legacy(key).await, self.modern(key)]
    }
}

impl Client {
    pub async fn initialized(hub: &Hub, key: &str, version: &str) -> Self {
        Self::able(hub, key, version, json!({})).await
    }

    pub async fn able(hub: &Hub, key: &str, version: &str, capabilities: Value) -> Self {
        let response = hub.ask(&Self::hello_of(version, &capabilities).key(key)).await;
        assert_eq!(response.status(), 200, "{response:?}");
        let negotiated = response.json()["result"]["protocolVersion"].as_str().unwrap().to_owned();
        let client = Self {
            address: hub.address.clone(),
            key: key.to_owned(),
            session: response.header("mcp-session-id").map(str::to_owned),
            version: negotiated,
            capabilities,
            ids: AtomicU64::new(1),
        };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(hub.ask(&client.ask(&ready)).await.status(), 202);
        client
    }

    /// The request that opens a session, without a key.
    pub fn hello(version: &str) -> Ask {
        Self::hello_of(version, &json!({}))
    }

    fn hello_of(version: &str, capabilities: &Value) -> Ask {
        let client = json!({ "name": "it", "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client });
        Ask::post(&rpc(0, "initialize", &params))
    }

    /// A message with the headers that belong to it.
    pub fn ask(&self, message: &Value) -> Ask {
        let mut ask = Ask::post(message).key(&self.key).header("MCP-Protocol-Version", &self.version);
        if let Some(session) = &self.session {
            return ask.header("Mcp-Session-Id", session);
        }
        if let Some(method) = message["method"].as_str() {
            ask = ask.header("Mcp-Method", method);
        }
        let params = &message["params"];
        match params["name"].as_str().or(params["uri"].as_str()) {
            Some(name) => ask.header("Mcp-Name", name),
            None => ask,
        }
    }

    /// A request with an id of its own, and what its era wants in it.
    pub fn message(&self, method: &str, mut params: Value) -> Value {
        if self.session.is_none() {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = self.version.as_str().into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "it", "version": "1" });
        }
        rpc(self.ids.fetch_add(1, Ordering::Relaxed), method, &params)
    }

    pub async fn wire(&self) -> Wire {
        Wire::to(&self.address).await
    }

    pub async fn send(&self, method: &str, params: Value) -> Answer {
        self.exchange(&self.ask(&self.message(method, params))).await
    }

    /// One request, and all that is said until it is answered.
    pub async fn exchange(&self, ask: &Ask) -> Answer {
        let mut wire = self.wire().await;
        wire.send(ask).await;
        finish(&mut wire).await
    }

    /// The request is on its way; its answer is read later, with [`finish`] or by events.
    pub async fn start(&self, message: &Value) -> Wire {
        let mut wire = self.wire().await;
        wire.send(&self.ask(message)).await;
        wire
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments })).await.result().clone()
    }

    /// Calls a tool as a client does that can be asked: answers whatever comes on the way, and gives the result
    /// with the questions.
    pub async fn call_answering(&self, tool: &str, arguments: Value, answer: &Value) -> (Value, Vec<Value>) {
        let params = json!({ "name": tool, "arguments": arguments });
        match self.session {
            Some(_) => self.answering_now(params, answer).await,
            None => self.answering_later(params, answer).await,
        }
    }

    async fn answering_now(&self, params: Value, answer: &Value) -> (Value, Vec<Value>) {
        let message = self.message("tools/call", params);
        let mut wire = self.start(&message).await;
        let head = wire.head().await;
        let mut asked = Vec::new();
        if !head.is_stream() {
            return (wire.rest(head).await.json()["result"].clone(), asked);
        }
        loop {
            let heard = wire.next().await;
            if heard["id"] == message["id"] && heard.get("method").is_none() {
                return (heard["result"].clone(), asked);
            }
            if heard["method"] == "elicitation/create" {
                self.answer(&heard["id"], answer).await;
                asked.push(heard["params"].clone());
            }
        }
    }

    /// Answers a question of the hub, in the old era.
    pub async fn answer(&self, id: &Value, answer: &Value) {
        let mut message = json!({ "jsonrpc": "2.0", "id": id });
        match answer.get("error") {
            Some(error) => message["error"] = error.clone(),
            None => message["result"] = answer.clone(),
        }
        let sent = self.wire().await.ask(&self.ask(&message)).await;
        assert_eq!(sent.status(), 202, "{sent:?}");
    }

    async fn answering_later(&self, params: Value, answer: &Value) -> (Value, Vec<Value>) {
        let mut result = self.send("tools/call", params.clone()).await.result().clone();
        let mut asked = Vec::new();
        while result["resultType"] == "input_required" {
            asked.push(result["inputRequests"]["approval"]["params"].clone());
            let again = retried(&params, &result, answer);
            result = self.send("tools/call", again).await.result().clone();
        }
        (result, asked)
    }

    /// The structured content of a call that works.
    #[track_caller]
    pub fn does(&self, tool: &str, arguments: Value) -> impl Future<Output = Value> {
        let tool = tool.to_owned();
        async move {
            let result = self.call(&tool, arguments).await;
            assert_eq!(result["isError"], false, "{tool}: {result}");
            result["structuredContent"].clone()
        }
    }

    /// The names of the tools it is shown.
    pub async fn tools(&self) -> Vec<String> {
        let answer = self.send("tools/list", json!({})).await;
        let tools = answer.result()["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The same call again, with the answer to what its result asked.
pub fn retried(params: &Value, asked: &Value, answer: &Value) -> Value {
    let mut again = params.clone();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ "approval": answer });
    again
}

/// Reads an answer, whichever form it has.
pub async fn finish(wire: &mut Wire) -> Answer {
    let head = wire.head().await;
    let mut messages = Vec::new();
    if head.is_stream() {
        while let Some(event) = wire.event().await {
            messages.push(event.json());
        }
        return Answer { head, messages };
    }
    let response: Response = wire.rest(head.clone()).await;
    // What is refused before anyone looks at it is told in plain words, or in none.
    messages.extend(serde_json::from_str::<Value>(&response.body));
    Answer { head, messages }
}
