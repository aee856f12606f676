//! JSON-RPC messages, read without building trees and written as text.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::envelope::Envelope;

pub(crate) mod envelope;

/// What arrived.
#[derive(Debug)]
pub enum Message {
    Request(Request),
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// The answer to something we asked.
    Response {
        id: RequestId,
        answer: Result<Box<RawValue>, Box<RawValue>>,
    },
}

/// A request that wants an answer.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: RequestId,
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

/// An id as its JSON text: a string or a number, compared as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// An id of ours.
    pub fn number(n: u64) -> Self {
        Self(n.to_string().into())
    }

    pub(crate) fn parse(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let fits = text.len() <= 256 && matches!(text.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'));
        fits.then(|| Self(text.into()))
    }
}

/// One message, or several in an array, as old clients may send them.
#[derive(Debug)]
pub enum Incoming {
    One(Message),
    Batch(Vec<Result<Message, RpcError>>),
}

/// More messages than this in one array are refused.
const LONGEST_BATCH: usize = 64;

impl Incoming {
    pub fn parse(bytes: &[u8]) -> Result<Self, RpcError> {
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
                if items.is_empty() || items.len() > LONGEST_BATCH {
                    return Err(RpcError::invalid_request("a batch holds 1 to 64 messages"));
                }
                let mut messages: Vec<_> =
                    items.into_iter().map(|item| Message::parse(item.get().as_bytes())).collect();
                match messages.iter().all(Result::is_err) {
                    true => messages.swap_remove(0).map(Self::One),
                    false => Ok(Self::Batch(messages)),
                }
            }
            _ => Ok(Self::One(Message::parse(bytes)?)),
        }
    }
}

impl Message {
    fn parse(bytes: &[u8]) -> Result<Self, RpcError> {
        let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
        let id = match envelope.id {
            None => None,
            Some(raw) => {
                Some(RequestId::parse(raw).ok_or_else(|| RpcError::invalid_request("an id is a string or a number"))?)
            }
        };
        let invalid = |why| Err(RpcError { id: id.clone(), ..RpcError::invalid_request(why) });
        if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        let owned = |raw: Option<&RawValue>| raw.map(RawValue::to_owned);
        match (envelope.method, &id, envelope.result, envelope.error) {
            (Some(method), Some(id), None, None) => Ok(Self::Request(Request {
                id: id.clone(),
                method: method.into_owned(),
                params: owned(envelope.params),
            })),
            (Some(method), None, None, None) => {
                Ok(Self::Notification { method: method.into_owned(), params: owned(envelope.params) })
            }
            (None, Some(id), Some(result), None) => {
                Ok(Self::Response { id: id.clone(), answer: Ok(result.to_owned()) })
            }
            (None, Some(id), None, Some(error)) => Ok(Self::Response { id: id.clone(), answer: Err(error.to_owned()) }),
            _ => invalid("neither a request, a notification nor a response"),
        }
    }
}

fn unreadable(error: &serde_json::Error) -> RpcError {
    match error.classify() {
        serde_json::error::Category::Data => RpcError::invalid_request("not a JSON-RPC message"),
        _ => RpcError::new(PARSE_ERROR, format!("not JSON: {error}"), 400),
    }
}

/// The parts of `params` that anything here looks at. All of them in one pass, none of them as trees.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    pub meta: Option<Meta<'a>>,
    #[serde(borrow)]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub uri: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub cursor: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub protocol_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    pub client_info: Option<ClientInfo<'a>>,
    #[serde(borrow)]
    pub level: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub notifications: Option<&'a RawValue>,
    #[serde(borrow)]
    pub input_responses: Option<&'a RawValue>,
    #[serde(borrow)]
    pub request_state: Option<Cow<'a, str>>,
    /// What is to be completed.
    #[serde(borrow, rename = "ref")]
    pub reference: Option<&'a RawValue>,
    #[serde(borrow)]
    pub argument: Option<&'a RawValue>,
    #[serde(borrow)]
    pub context: Option<&'a RawValue>,
}

/// What the modern era says with each request, and the progress token of both.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    pub client_info: Option<ClientInfo<'a>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    pub log_level: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClientInfo<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow)]
    pub version: Cow<'a, str>,
}

impl<'a> Params<'a> {
    pub fn parse(raw: Option<&'a RawValue>) -> Result<Self, RpcError> {
        match raw {
            None => Ok(Self::default()),
            Some(raw) if raw.get().starts_with('{') => serde_json::from_str(raw.get())
                .map_err(|error| RpcError::invalid_params(format!("the params do not fit: {error}"))),
            Some(_) => Err(RpcError::invalid_params("params must be an object")),
        }
    }
}

impl RequestId {
    /// The `requestId` of a cancellation.
    pub fn of_params(params: &Params<'_>) -> Option<Self> {
        Self::parse(params.request_id?)
    }
}

pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL_ERROR: i32 = -32603;
pub const HEADER_MISMATCH: i32 = -32020;
pub const MISSING_CAPABILITY: i32 = -32021;
pub const UNSUPPORTED_VERSION: i32 = -32022;

/// What cannot be routed is answered by one of these; everything else is a result.
#[derive(Clone, Debug)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    pub data: Option<Value>,
    /// The HTTP status that goes with it.
    pub status: u16,
    /// The request it answers, when the request itself could not be used.
    pub id: Option<RequestId>,
}

impl RpcError {
    pub fn new(code: i32, message: impl Into<String>, status: u16) -> Self {
        Self { code, message: message.into(), data: None, status, id: None }
    }

    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message, 400)
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message, 400)
    }

    pub fn method_not_found(method: &str) -> Self {
        let method: String = method.chars().take(100).collect();
        Self::new(METHOD_NOT_FOUND, format!("no such method: {method}"), 404)
    }

    pub fn id_in_use() -> Self {
        Self::invalid_request("this id is in use by a request that is still running")
    }

    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// Bytes from which on a text is changed in its place: a copy of megabytes would stand beside it.
const LARGE: usize = 64 * 1024;

/// JSON on one line. Between its tokens others may have put line ends, and on a stream of lines what comes after one
/// would be a message of its own.
pub fn on_one_line(json: String) -> String {
    let bytes = json.as_bytes();
    if !bytes.contains(&b'\n') && !bytes.contains(&b'\r') {
        return json;
    }
    // Within a string they are written as escapes.
    let mut bytes = json.into_bytes();
    bytes.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    String::from_utf8(bytes).unwrap_or_default()
}

/// A response as JSON text, on one line.
pub fn response(id: &RequestId, answer: Result<String, RpcError>) -> String {
    match answer.map(on_one_line) {
        Ok(mut result) if result.len() > LARGE => {
            result.insert_str(0, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.as_json()));
            result.push('}');
            result
        }
        Ok(result) => {
            let mut out = String::with_capacity(result.len() + id.as_json().len() + 40);
            let _ = write!(out, r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_json());
            out
        }
        Err(error) => error_response(Some(id), &error),
    }
}

/// An error as JSON text; without an id when the request had none that could be read.
pub fn error_response(id: Option<&RequestId>, error: &RpcError) -> String {
    let id = id.or(error.id.as_ref()).map_or("null", RequestId::as_json);
    let mut out =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":{}"#, error.code, quoted(&error.message));
    if let Some(data) = &error.data {
        let _ = write!(out, r#","data":{data}"#);
    }
    out.push_str("}}");
    out
}

/// A notification as JSON text; `params` is JSON.
pub fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, quoted(method))
}

/// A request of ours as JSON text.
pub fn request(id: &RequestId, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{params}}}"#, id.as_json(), quoted(method))
}

/// A JSON string.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(json: &str) -> String {
        match Incoming::parse(json.as_bytes()) {
            Ok(Incoming::One(Message::Request(request))) => {
                format!("request {} {}", request.id.as_json(), request.method)
            }
            Ok(Incoming::One(Message::Notification { method, .. })) => format!("notification {method}"),
            Ok(Incoming::One(Message::Response { id, answer })) => {
                format!("response {} {}", id.as_json(), answer.is_ok())
            }
            Ok(Incoming::Batch(messages)) => format!("batch of {}", messages.len()),
            Err(error) => format!("{} id={}", error.code, error.id.map_or("null".into(), |id| id.as_json().to_owned())),
        }
    }

    #[test]
    fn messages_are_told_apart() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping");
        check(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#, "request \"a\" ping");
        check(r#"{"jsonrpc":"2.0","method":"x"}"#, "notification x");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response 1 true");
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "response 1 true");
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#, "response 1 false");
        check(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#, "batch of 2");

        check(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600 id=null");
        check(r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, "-32600 id=null");
        check(r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, "-32600 id=7");
        check(r#"{"id":7,"method":"ping"}"#, "-32600 id=7");
        check(r#"{"jsonrpc":"2.0","id":7}"#, "-32600 id=7");
        check(r#"{"jsonrpc":"2.0","id":7,"method":5}"#, "-32600 id=null");
        check(r#"{"jsonrpc":"2.0","id":7,"#, "-32700 id=null");
        check("[]", "-32600 id=null");
        check("", "-32700 id=null");
        check("garbage", "-32700 id=null");
        check("\u{0}\u{1}", "-32700 id=null");
        check("42", "-32600 id=null");

        #[track_caller]
        fn check(json: &str, expected: &str) {
            assert_eq!(kind(json), expected, "{json}");
        }
    }

    #[test]
    fn a_result_cannot_hold_a_line_that_passes_for_a_message() {
        let forged = "{\"a\":\n{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\"}\r\n,\"b\":\"c\\nd\"}".to_owned();
        let text = response(&RequestId::number(1), Ok(forged));
        assert!(!text.contains(['\n', '\r']), "{text}");
        let tree: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(tree["result"]["b"], "c\nd");
        let large = response(&RequestId::number(1), Ok(format!("{{\"a\":\n\"{}\"}}", "x".repeat(2 * LARGE))));
        assert!(!large.contains('\n') && serde_json::from_str::<Value>(&large).is_ok());
    }

    #[test]
    fn deep_nesting_is_read_without_a_deep_stack() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}1{}}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        let _ = Incoming::parse(deep.as_bytes());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Incoming::parse(&bytes);
        }

        #[test]
        fn an_error_is_always_json(message in "\\PC*") {
            let text = error_response(None, &RpcError::invalid_request(message));
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }
}
