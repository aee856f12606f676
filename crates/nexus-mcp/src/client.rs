//! A small MCP client for the command line: lists and calls the tools of a hub, in either era.

use std::fmt;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::TcpStream;

use nexus_core::tasks::Tasks;

use crate::version::{LEGACY, MODERN};

/// Bytes of one answer. A listing of a thousand tools is a hundredth of it.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("`{0}` is not the address of a hub; it looks like http://127.0.0.1:8765/mcp")]
    BadUrl(String),
    #[error("no hub answers at {url}")]
    Unreachable { url: String, source: std::io::Error },
    #[error("the connection to the hub broke")]
    Broken(#[from] hyper::Error),
    #[error("the hub does not know this key")]
    WrongKey,
    #[error("the hub answered HTTP {status}: {body}")]
    Http { status: StatusCode, body: String },
    #[error("the hub refused: {message} ({code})")]
    Rpc { code: i64, message: String },
    #[error("the hub's answer makes no sense: {0}")]
    Nonsense(String),
}

/// Who sits before the client, if anyone does.
pub trait Person: Send {
    /// What a tool says while it runs.
    fn hears(&mut self, message: &str);

    /// Puts a form (the parameters of `elicitation/create`), and gives the result of that request.
    fn asked(&mut self, form: &Value) -> Value {
        let _ = form;
        json!({ "action": "cancel" })
    }
}

/// A person who is not there.
struct Nobody;

impl Person for Nobody {
    fn hears(&mut self, _: &str) {}
}

/// Rounds of questions one call may take.
const MOST_ROUNDS: usize = 8;

/// A hub to talk to.
pub struct Client {
    address: String,
    path: String,
    key: String,
    tasks: Tasks,
    /// Set when the hub speaks only the old era.
    session: Option<String>,
    /// What the client says it can do.
    capabilities: Value,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Client {
    /// Finds out which era the hub speaks; the new one if it has the choice. `asks`: there is somebody to ask.
    pub async fn connect(url: &str, key: &str, tasks: Tasks, asks: bool) -> Result<Self, ClientError> {
        let bad = || ClientError::BadUrl(url.to_owned());
        let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
        let capabilities = if asks { json!({ "elicitation": { "form": {} } }) } else { json!({}) };
        let (address, path) = (address.into(), format!("/{path}"));
        let client = Self { address, path, key: key.into(), tasks, session: None, capabilities };
        match client.request("server/discover", json!({}), &mut Nobody).await {
            Ok(_) => Ok(client),
            Err(ClientError::Rpc { code: -32022, .. }) => client.initialize().await,
            Err(error) => Err(error),
        }
    }

    /// The tools, as the hub lists them.
    pub async fn tools(&self) -> Result<Vec<Value>, ClientError> {
        let mut listed = self.request("tools/list", json!({}), &mut Nobody).await?;
        match listed["tools"].take() {
            Value::Array(tools) => Ok(tools),
            _ => Err(ClientError::Nonsense("no list of tools".into())),
        }
    }

    /// Calls a tool and gives its whole result, after as many questions as it takes.
    pub async fn call(&self, tool: &str, arguments: &Value, person: &mut dyn Person) -> Result<Value, ClientError> {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } });
        let mut result = self.request("tools/call", params.clone(), person).await?;
        for _ in 0..MOST_ROUNDS {
            if result["resultType"] != "input_required" {
                break;
            }
            let mut again = params.clone();
            for (name, question) in result["inputRequests"].as_object().into_iter().flatten() {
                if question["method"] == "elicitation/create" {
                    again["inputResponses"][name] = person.asked(&question["params"]);
                }
            }
            again["requestState"] = result["requestState"].take();
            result = self.request("tools/call", again, person).await?;
        }
        Ok(result)
    }

    async fn initialize(mut self) -> Result<Self, ClientError> {
        let hello = json!({ "protocolVersion": LEGACY[0], "capabilities": self.capabilities, "clientInfo": { "name": "nexus-cli", "version": env!("CARGO_PKG_VERSION") } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        let response = self.send(&body, "initialize", None).await?;
        self.session = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        self.answer_of(response, &mut Nobody).await?;
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send(&ready, "notifications/initialized", None).await?;
        Ok(self)
    }

    async fn request(&self, method: &str, mut params: Value, person: &mut dyn Person) -> Result<Value, ClientError> {
        if self.session.is_none() {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({ "name": "nexus-cli", "version": env!("CARGO_PKG_VERSION") });
        }
        let name = params["name"].as_str().map(str::to_owned);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.send(&body, method, name.as_deref()).await?;
        self.answer_of(response, person).await
    }

    async fn send(
        &self,
        body: &Value,
        method: &str,
        name: Option<&str>,
    ) -> Result<hyper::Response<hyper::body::Incoming>, ClientError> {
        let unreachable =
            |source| ClientError::Unreachable { url: format!("http://{}{}", self.address, self.path), source };
        let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        self.tasks.spawn("client connection", connection);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream");
        request = match &self.session {
            Some(session) => request.header("mcp-session-id", session).header("mcp-protocol-version", LEGACY[0]),
            None if method == "initialize" => request,
            None => request.header("mcp-protocol-version", MODERN).header("mcp-method", method),
        };
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| ClientError::Nonsense(error.to_string()))?;
        let response = sender.send_request(request).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(ClientError::WrongKey),
            _ => Ok(response),
        }
    }

    /// The answer in a response: one JSON document, or the last message of a stream of them.
    async fn answer_of(
        &self,
        response: hyper::Response<hyper::body::Incoming>,
        person: &mut dyn Person,
    ) -> Result<Value, ClientError> {
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let streamed = kind.starts_with("text/event-stream");
        let mut body = response.into_body();
        let mut unread = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                unread.extend_from_slice(&data);
            }
            if unread.len() > LARGEST_ANSWER {
                return Err(ClientError::Nonsense("it is too long".into()));
            }
            while streamed && let Some(message) = next_event(&mut unread) {
                match serde_json::from_str::<Value>(&message) {
                    Ok(message) if message.get("method").is_some() => self.told(&message, person).await?,
                    Ok(message) => return result_of(message),
                    Err(error) => return Err(ClientError::Nonsense(error.to_string())),
                }
            }
        }
        match serde_json::from_slice(&unread) {
            Ok(message) => result_of(message),
            Err(_) => {
                Err(ClientError::Http { status, body: String::from_utf8_lossy(&unread).chars().take(300).collect() })
            }
        }
    }

    /// A notification, or in the old era a question.
    async fn told(&self, message: &Value, person: &mut dyn Person) -> Result<(), ClientError> {
        if message["method"] == "notifications/progress"
            && let Some(words) = message["params"]["message"].as_str()
        {
            person.hears(words);
        }
        let Some(id) = message.get("id") else { return Ok(()) };
        let answer = if message["method"] == "elicitation/create" {
            json!({ "jsonrpc": "2.0", "id": id, "result": person.asked(&message["params"]) })
        } else {
            let error = json!({ "code": -32601, "message": "this client has no such method" });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        };
        self.send(&answer, "", None).await.map(drop)
    }
}

/// Takes the first whole event off the buffer and gives its data. Comments give an empty text and are passed over.
fn next_event(unread: &mut Vec<u8>) -> Option<String> {
    loop {
        let end = unread.windows(2).position(|pair| pair == b"\n\n")?;
        let event: Vec<u8> = unread.drain(..end + 2).collect();
        let text = String::from_utf8_lossy(&event);
        let data: String = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
        if !data.is_empty() {
            return Some(data);
        }
    }
}

fn result_of(mut message: Value) -> Result<Value, ClientError> {
    if let Some(error) = message.get("error") {
        let code = error["code"].as_i64().unwrap_or_default();
        let message = error["message"].as_str().unwrap_or_default().to_owned();
        return Err(ClientError::Rpc { code, message });
    }
    match message.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(ClientError::Nonsense("neither result nor error".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_off_one_by_one() {
        let mut unread = b": alive\n\nevent: message\ndata: {\"a\":1}\n\ndata: {\"b\"".to_vec();
        assert_eq!(next_event(&mut unread).as_deref(), Some("{\"a\":1}"));
        assert_eq!(next_event(&mut unread), None);
        unread.extend_from_slice(b":2}\n\n");
        assert_eq!(next_event(&mut unread).as_deref(), Some("{\"b\":2}"));
    }
}
