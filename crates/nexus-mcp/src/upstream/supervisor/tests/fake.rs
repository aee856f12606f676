//! Servers for tests: in memory, and able to misbehave on request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use nexus_core::tasks::Tasks;

use crate::upstream::config::{Endpoint, EraChoice, HttpEndpoint, Program, ServerConfig};
use crate::upstream::error::ConfigurationError;
use crate::upstream::log::ServerLog;
use crate::upstream::supervisor::Connectors;
use crate::upstream::transport::Connector;
use crate::upstream::transport::memory::{Far, MemoryConnector, Streams};

/// A server that behaves as it is told, also while it is connected.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    pub conduct: Arc<Mutex<Conduct>>,
    starts: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
    orders: broadcast::Sender<Command>,
}

#[derive(Debug, Default)]
pub(crate) struct Conduct {
    pub tools: Vec<Value>,
    pub refuses: bool,
    /// Hears pings and subscriptions and says nothing.
    pub deaf: bool,
    pub lists_nonsense: bool,
    /// Never answers its greeting.
    pub hangs: bool,
}

#[derive(Clone, Debug)]
enum Command {
    Die,
    Say(String),
}

impl Fake {
    pub fn with_tools(tools: impl IntoIterator<Item = Value>) -> Self {
        let conduct = Conduct { tools: tools.into_iter().collect(), ..Conduct::default() };
        Self {
            conduct: Arc::new(Mutex::new(conduct)),
            starts: Arc::default(),
            alive: Arc::default(),
            orders: broadcast::Sender::new(16),
        }
    }

    /// How often it was started.
    pub fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// How many of it are running.
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    pub fn die(&self) {
        let _ = self.orders.send(Command::Die);
    }

    pub fn say_tools_changed(&self) {
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        let _ = self.orders.send(Command::Say(changed.into()));
    }

    async fn serve(self, mut far: Far) {
        self.starts.fetch_add(1, Ordering::SeqCst);
        if self.conduct.lock().refuses {
            return;
        }
        let _alive = Alive::new(&self.alive);
        let mut orders = self.orders.subscribe();
        loop {
            let message = tokio::select! {
                message = far.heard() => message,
                order = orders.recv() => match order {
                    Ok(Command::Say(text)) => {
                        far.say(text);
                        continue;
                    }
                    Ok(Command::Die) | Err(_) => return,
                },
            };
            let Some(message) = message else { return };
            let request: Value = serde_json::from_str(&message.text).unwrap();
            if let (Some(id), Some(answer)) = (request.get("id"), self.answer(&request)) {
                let mut answer = answer;
                answer["jsonrpc"] = json!("2.0");
                answer["id"] = id.clone();
                far.say(answer.to_string());
            }
        }
    }

    fn answer(&self, request: &Value) -> Option<Value> {
        let conduct = self.conduct.lock();
        Some(match request["method"].as_str().unwrap() {
            "initialize" if conduct.hangs => return None,
            "initialize" => json!({ "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "fake", "version": "1" },
            } }),
            "tools/list" if conduct.lists_nonsense => json!({ "result": { "tools": 1 } }),
            "tools/list" => json!({ "result": { "tools": conduct.tools } }),
            "tools/call" if request["params"]["name"] == "hang" => return None,
            "tools/call" => {
                json!({ "result": { "content": [{ "type": "text", "text": request["params"].to_string() }] } })
            }
            "ping" | "resources/subscribe" if conduct.deaf => return None,
            "ping" => json!({ "result": {} }),
            _ => json!({ "error": { "code": -32601, "message": "no such method" } }),
        })
    }
}

struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A tool that takes any object.
pub(crate) fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

/// All servers of a test, by name.
#[derive(Debug, Default)]
pub(crate) struct Fakes {
    servers: Mutex<HashMap<String, Fake>>,
    tasks: Tasks,
}

impl Fakes {
    pub fn new(servers: impl IntoIterator<Item = (&'static str, Fake)>) -> Arc<Self> {
        let servers = servers.into_iter().map(|(name, fake)| (name.to_owned(), fake)).collect();
        Arc::new(Self { servers: Mutex::new(servers), tasks: Tasks::new() })
    }
}

impl Connectors for Fakes {
    fn connector(&self, config: &ServerConfig, _log: Arc<ServerLog>) -> Result<Arc<dyn Connector>, ConfigurationError> {
        let known = self.servers.lock().get(config.name.as_str()).cloned();
        let fake = known.ok_or_else(|| ConfigurationError::Unknown(config.name.to_string()))?;
        let serve = move |far| fake.clone().serve(far);
        Ok(MemoryConnector::new(self.tasks.clone(), Streams::Shared, serve))
    }
}

/// An entry whose program is one of the fakes.
pub(crate) fn stdio(name: &str) -> ServerConfig {
    let mut config = ServerConfig::new(name, Endpoint::Stdio(Program::new("fake", ["--token", "s3cret"])));
    config.era = EraChoice::Legacy;
    config
}

pub(crate) fn http(name: &str) -> ServerConfig {
    let mut config = ServerConfig::new(name, Endpoint::Http(HttpEndpoint::new("http://u:p@host/mcp?key=x")));
    config.era = EraChoice::Legacy;
    config
}
