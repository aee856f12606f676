//! The far server, the hub in front of it, and a client of either era.

#![allow(clippy::needless_pass_by_value, reason = "`json!(…)` is read more easily without a `&` before it")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use nexus_core::audit::Nowhere;
use nexus_core::catalogue::Catalogue;
use nexus_core::hub::{Hub, Policy};
use nexus_core::name::ServerName;
use nexus_core::principal::{Level, Principal};
use nexus_core::session::{Era, Session, SessionKey, Transport};
use nexus_core::tasks::Tasks;

use crate::conformance::Fixtures;
use crate::exchange::{Capabilities, Exchange, OUTBOX, Peer};
use crate::front::stdio;
use crate::server::{Extras, News, Server};
use crate::upstream::config::{Endpoint, EraChoice, Program, ServerConfig, Source};
use crate::upstream::error::ConfigurationError;
use crate::upstream::log::ServerLog;
use crate::upstream::offers::Offers;
use crate::upstream::pins::InMemory;
use crate::upstream::registry::{Entry, Registry};
use crate::upstream::supervisor::{Connectors, Parts, Upstream};
use crate::upstream::tools;
use crate::upstream::transport::Connector;
use crate::upstream::transport::memory::{Far, MemoryConnector, Streams};
use crate::version::Protocol;
use crate::wire::{Incoming, Message, RequestId, RpcError};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Bench {
    pub(super) upstream: Upstream,
    pub(super) peer: Arc<Peer>,
    server: Arc<Server>,
    principal: Arc<Principal>,
    session: Arc<Session>,
    far_session: Arc<Session>,
    tasks: Tasks,
    outbox: mpsc::Sender<String>,
    heard: Arc<Mutex<Vec<Value>>>,
    says: broadcast::Sender<String>,
    pub(super) registry: Registry,
}

/// The one way to the one server.
#[derive(Debug)]
struct OneServer {
    tasks: Tasks,
    session: Arc<Session>,
    /// Messages that the server sends of its own accord.
    says: broadcast::Sender<String>,
}

impl Connectors for OneServer {
    fn connector(&self, _: &ServerConfig, _: Arc<ServerLog>) -> Result<Arc<dyn Connector>, ConfigurationError> {
        let (tasks, session, says) = (self.tasks.clone(), self.session.clone(), self.says.clone());
        let serve = move |far| far_end(far, tasks.clone(), session.clone(), says.subscribe());
        Ok(MemoryConnector::new(self.tasks.clone(), Streams::Shared, serve))
    }
}

/// A server of ours at the other end, as `nexus stdio` would be.
async fn far_end(mut far: Far, tasks: Tasks, session: Arc<Session>, mut says: broadcast::Receiver<String>) {
    let fixtures = Fixtures::new(0).unwrap();
    let catalogue = Arc::new(Catalogue::default());
    drop(catalogue.attach(fixtures.clone()));
    let hub = Arc::new(Hub::new(catalogue, Arc::new(Nowhere), Policy::default()));
    let server = Server::new(hub, Protocol::Dual, "1", CancellationToken::new(), Some(fixtures));
    let (near, there) = tokio::io::duplex(1 << 20);
    let (from_here, to_here) = tokio::io::split(there);
    let principal = Arc::new(Principal::new("far", Level::Yolo));
    let serving = tasks.clone();
    tasks.spawn("far server", async move {
        let _ = stdio::serve(Arc::new(server), serving, principal, session, from_here, to_here).await;
    });
    let (read, mut write) = tokio::io::split(near);
    let mut lines = BufReader::new(read).lines();
    loop {
        tokio::select! {
            message = far.heard() => match message {
                Some(message) => write.write_all(format!("{}\n", message.text).as_bytes()).await.unwrap(),
                None => return,
            },
            line = lines.next_line() => match line {
                Ok(Some(line)) => far.say(line),
                _ => return,
            },
            Ok(message) = says.recv() => far.say(message),
        }
    }
}

impl Bench {
    /// A hub whose one server speaks that era, and a key of that level.
    pub(super) async fn new(server_era: Era, level: Level) -> Self {
        Self::remembering(server_era, level, Arc::default()).await
    }

    /// The same, where something is known of the server already.
    pub(super) async fn remembering(server_era: Era, level: Level, memory: Arc<InMemory>) -> Self {
        let tasks = Tasks::new();
        let says = broadcast::Sender::new(16);
        let far_session = Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio));
        let connectors = Arc::new(OneServer { tasks: tasks.clone(), session: far_session.clone(), says: says.clone() });
        let registry = Registry::new(Parts::new(connectors, memory, tasks.clone()));
        let mut config = ServerConfig::new("x", Endpoint::Stdio(Program::new("in memory", [""; 0])));
        config.era = if server_era == Era::Legacy { EraChoice::Legacy } else { EraChoice::Modern };
        config.source = Source::Home { file: "mcp.json".into(), line: 1 };
        registry.apply(vec![Entry::agreed(config)]).await;
        let principal = Arc::new(Principal::new("tester", level));
        let upstream = registry.get(&ServerName::new("x"), &principal.id).unwrap();
        upstream.ready().await.unwrap();

        let catalogue = Arc::new(Catalogue::default());
        drop(catalogue.attach(Arc::new(tools::tools(&registry).unwrap())));
        let offers = Offers::new(tasks.clone());
        tasks.spawn("catalogue", catalogue.attach(offers.provide(upstream.clone()).unwrap()));
        let hub = Arc::new(Hub::new(catalogue, Arc::new(Nowhere), Policy::default()));
        let extras: Arc<dyn Extras> = offers;
        let server = Server::new(hub, Protocol::Dual, "1", CancellationToken::new(), Some(extras));
        let peer = Arc::new(Peer::default());
        peer.version.set("2025-11-25").unwrap();
        let (outbox, mut inbox) = mpsc::channel::<String>(OUTBOX);
        let heard: Arc<Mutex<Vec<Value>>> = Arc::default();
        let told = heard.clone();
        tasks.spawn("client", async move {
            while let Some(message) = inbox.recv().await {
                told.lock().push(serde_json::from_str(&message).unwrap());
            }
        });
        Self {
            upstream,
            peer,
            server: Arc::new(server),
            principal,
            session: Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio)),
            far_session,
            tasks,
            outbox,
            heard,
            says,
            registry,
        }
    }

    fn exchange(&self, era: Era) -> Exchange {
        let (principal, session) = (self.principal.clone(), self.session.clone());
        let mut exchange =
            Exchange::new(RequestId::number(7), principal, session, era, self.peer.clone(), self.outbox.clone());
        let able = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} }).to_string();
        exchange.capabilities = Capabilities::parse(&RawValue::from_string(able).unwrap()).unwrap();
        exchange.progress_token = RawValue::from_string("\"mine\"".to_owned()).ok();
        exchange.log_level = (era == Era::Modern).then(|| "info".to_owned());
        exchange
    }

    /// One request of a client of that era.
    pub(super) async fn ask(&self, era: Era, method: &str, params: Value) -> Result<Value, RpcError> {
        let mut exchange = self.exchange(era);
        if era == Era::Modern {
            exchange.request_state = params["requestState"].as_str().map(str::to_owned);
            let answers = params.get("inputResponses").map(Value::to_string);
            exchange.input_responses = answers.and_then(|answers| RawValue::from_string(answers).ok());
        }
        let text = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let Ok(Incoming::One(Message::Request(request))) = Incoming::parse(text.as_bytes()) else { panic!("{text}") };
        let answer = tokio::time::timeout(PATIENCE, self.server.answer(&request, Arc::new(exchange)));
        answer.await.expect("no answer").map(|result| serde_json::from_str(&result).unwrap())
    }

    pub(super) async fn call(&self, era: Era, tool: &str, args: Value) -> Value {
        self.ask(era, "tools/call", json!({ "name": tool, "arguments": args })).await.unwrap()
    }

    /// A call on its way, and how to give it up.
    pub(super) fn start(&self, tool: &str, args: Value) -> (JoinHandle<Option<()>>, CancellationToken) {
        self.begin(Era::Legacy, "tools/call", &json!({ "name": tool, "arguments": args }))
    }

    fn begin(&self, era: Era, method: &str, params: &Value) -> (JoinHandle<Option<()>>, CancellationToken) {
        let (exchange, server) = (self.exchange(era), self.server.clone());
        let cancel = exchange.cancel.clone();
        let text = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let begun = self.tasks.spawn("request", async move {
            let Ok(Incoming::One(Message::Request(request))) = Incoming::parse(text.as_bytes()) else { panic!() };
            let _ = server.answer(&request, Arc::new(exchange)).await;
        });
        (begun, cancel)
    }

    /// A subscription of the new era, until it is given up.
    pub(super) fn listen(&self, notifications: &Value) -> (JoinHandle<Option<()>>, CancellationToken) {
        self.begin(Era::Modern, "subscriptions/listen", &json!({ "notifications": notifications }))
    }

    /// What the hub would tell a client of the old era from now on.
    pub(super) fn news(&self) -> News {
        self.server.news()
    }

    /// The server sends something that nobody asked for.
    pub(super) fn server_says(&self, message: &Value) {
        self.says.send(message.to_string()).unwrap();
    }

    /// The tools that the key sees.
    pub(super) fn listing(&self) -> Arc<str> {
        self.server.hub.catalogue.listing(&self.principal)
    }

    pub(super) fn running_at_the_server(&self) -> usize {
        self.far_session.in_flight()
    }

    /// The parameters of all notifications of that kind so far.
    pub(super) fn heard(&self, method: &str) -> Vec<Value> {
        let heard = self.heard.lock();
        heard.iter().filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
    }

    /// Answers the next question to the client, and gives it.
    pub(super) fn answer_with(&self, answer: Value) -> JoinHandle<Option<Value>> {
        self.answer_after(Duration::ZERO, answer)
    }

    /// The same, by somebody who thinks about it. For clocks that stand still.
    pub(super) fn answer_after(&self, thinking: Duration, answer: Value) -> JoinHandle<Option<Value>> {
        let (heard, peer) = (self.heard.clone(), self.peer.clone());
        self.tasks.spawn("human", async move {
            let asked = || heard.lock().iter().find(|message| message["id"].is_number()).cloned();
            wait("a question", || asked().is_some()).await;
            let question = asked().unwrap();
            tokio::time::sleep(thinking).await;
            let text = json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }).to_string();
            let Ok(Incoming::One(Message::Response { id, answer })) = Incoming::parse(text.as_bytes()) else {
                panic!()
            };
            assert!(peer.settle(&id, answer));
            question
        })
    }

    pub(super) async fn until(&self, what: &str, is: impl Fn() -> bool) {
        wait(what, is).await;
    }
}

/// Looks again and again, until it is so or it is too late.
async fn wait(what: &str, is: impl Fn() -> bool) {
    let ends = tokio::time::Instant::now() + PATIENCE;
    while !is() {
        assert!(tokio::time::Instant::now() < ends, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
