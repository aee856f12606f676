//! Servers to test against, and a host that writes down what it hears.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

use nexus_core::tasks::Tasks;

use crate::upstream::client::{Changed, Client, Host, Listener, Options};
use crate::upstream::error::UpstreamError;
use crate::upstream::transport::memory::{Far, MemoryConnector, Streams};
use crate::version::MODERN;
use crate::wire::RpcError;

/// A message of the client, taken apart.
#[derive(Clone, Debug)]
pub struct Heard {
    pub id: u64,
    pub method: String,
    pub message: Value,
}

impl Heard {
    pub fn params(&self) -> &Value {
        &self.message["params"]
    }
}

pub async fn hear(far: &mut Far) -> Option<Heard> {
    let outgoing = far.heard().await?;
    let message: Value = serde_json::from_str(&outgoing.text).unwrap();
    assert_eq!(message["jsonrpc"], "2.0");
    Some(Heard { id: outgoing.id.unwrap_or_default(), method: outgoing.method.into_owned(), message })
}

pub fn answer(far: &Far, id: u64, result: Value) {
    far.say(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
}

pub fn refuse(far: &Far, id: u64, code: i64, data: Value) {
    let error = json!({ "code": code, "message": "no", "data": data });
    far.say(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
}

pub fn notice(far: &Far, method: &str, params: Value) {
    far.say(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
}

pub fn greeting(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": { "name": "old", "version": "1" } })
}

pub fn discovery(capabilities: Value) -> Value {
    json!({
        "resultType": "complete", "supportedVersions": [MODERN], "capabilities": capabilities,
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "new", "version": "2" } },
    })
}

/// A server of the old era. What is not part of the handshake goes to `more`.
pub async fn old_era(mut far: Far, mut more: impl FnMut(&Far, Heard)) {
    while let Some(heard) = hear(&mut far).await {
        match heard.method.as_str() {
            "server/discover" => refuse(&far, heard.id, -32601, Value::Null),
            "initialize" => answer(&far, heard.id, greeting("2025-11-25")),
            "notifications/initialized" => {}
            _ => more(&far, heard),
        }
    }
}

/// A server of the new era.
pub async fn new_era(mut far: Far, capabilities: Value, mut more: impl FnMut(&Far, Heard)) {
    while let Some(heard) = hear(&mut far).await {
        match heard.method.as_str() {
            "server/discover" => answer(&far, heard.id, discovery(capabilities.clone())),
            _ => more(&far, heard),
        }
    }
}

/// Connects to a server that is a function, over one shared stream.
pub async fn connect<F>(
    options: Options,
    serve: impl Fn(Far) -> F + Send + Sync + 'static,
) -> Result<Client, UpstreamError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let connector = MemoryConnector::new(Tasks::new(), Streams::Shared, serve);
    Client::connect(connector, options).await
}

/// Connects to a server of the old era.
pub async fn connect_old(more: impl FnMut(&Far, Heard) + Clone + Send + Sync + 'static) -> Client {
    connect(options(), move |far| old_era(far, more.clone())).await.unwrap()
}

pub fn options() -> Options {
    Options::new(Tasks::new())
}

pub fn options_with(host: &Arc<Diary>) -> Options {
    Options { host: host.clone(), ..options() }
}

/// A host or listener that writes down what it hears. What it is asked it answers with the method's name, once
/// `answers` says so.
#[derive(Default)]
pub struct Diary {
    pub entries: Mutex<Vec<String>>,
    pub written: Notify,
    pub answering: Answering,
    pub session: Option<Uuid>,
    pub asked: AtomicUsize,
}

#[derive(Default)]
pub enum Answering {
    #[default]
    AtOnce,
    Never,
}

impl Diary {
    pub fn read(&self) -> Vec<String> {
        self.entries.lock().clone()
    }

    /// Waits until there are that many entries.
    pub async fn has(&self, count: usize) -> Vec<String> {
        let waiting = async {
            loop {
                let written = self.written.notified();
                if self.entries.lock().len() >= count {
                    return self.read();
                }
                written.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), waiting).await.expect("heard nothing")
    }

    fn write(&self, entry: String) {
        self.entries.lock().push(entry);
        self.written.notify_waiters();
    }

    async fn answered(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.write(format!("asked {method} {}", params.map_or("-", RawValue::get)));
        match self.answering {
            Answering::AtOnce => Ok(to_raw_value(&json!({ "to": method })).unwrap()),
            Answering::Never => std::future::pending().await,
        }
    }
}

impl Host for Diary {
    fn changed(&self, what: Changed) {
        self.write(format!("changed {}", what.as_str()));
    }

    fn updated(&self, uri: &str) {
        self.write(format!("updated {uri}"));
    }

    fn logged(&self, params: &RawValue) {
        self.write(format!("logged {}", params.get()));
    }

    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        Box::pin(self.answered(method, params))
    }
}

impl Listener for Diary {
    fn progress(&self, params: &RawValue) {
        self.write(format!("progress {}", params.get()));
    }

    fn logged(&self, params: &RawValue) {
        self.write(format!("logged {}", params.get()));
    }

    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        Box::pin(self.answered(method, params))
    }

    fn session(&self) -> Option<Uuid> {
        self.session
    }
}
