//! Calls tools as the hub would, without the hub.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nexus_core::ToolError;
use nexus_core::call::{CallCx, Client, Deaf, Progress};
use nexus_core::principal::{Level, Principal, PrincipalId};
use nexus_core::reply::Reply;
use nexus_core::session::{Era, Session, SessionKey, Transport};
use nexus_core::tool::Tool;
use nexus_tools::{Settings, Toolbox};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Far beyond what anything here takes: a test that fails should say so, not hang.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A toolbox and one caller's session.
pub struct Bench {
    pub toolbox: Toolbox,
    pub cx: CallCx,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self { toolbox: Toolbox::new(settings), cx: caller("tester") }
    }

    /// Runs a tool. The reply as the model gets it.
    pub async fn call<T: Tool<Toolbox>>(&self, args: Value) -> Result<Value, ToolError> {
        self.call_as::<T>(&self.cx, args).await
    }

    pub async fn call_as<T: Tool<Toolbox>>(&self, cx: &CallCx, args: Value) -> Result<Value, ToolError> {
        let tool: T = serde_json::from_value(args).expect("valid arguments");
        let running = tokio::time::timeout(DEADLINE, tool.run(&self.toolbox, cx));
        let reply = running.await.expect("it ends")?;
        let Reply::Plain { structured: Some(raw), .. } = Reply::structured(&reply, None)? else {
            panic!("a structured reply")
        };
        Ok(serde_json::from_str(raw.get()).unwrap())
    }

    /// What the model reads of a call that does not work.
    pub async fn refusal<T: Tool<Toolbox>>(&self, args: Value) -> String {
        match self.call::<T>(args.clone()).await {
            Err(error) => error.into_reply().text().to_owned(),
            Ok(reply) => panic!("{args} worked: {reply}"),
        }
    }
}

pub fn caller(name: &str) -> CallCx {
    let key = SessionKey::Lease { principal: PrincipalId::new(name) };
    CallCx {
        id: Uuid::new_v4(),
        principal: Arc::new(Principal::new(name, Level::Trusted)),
        session: Arc::new(Session::open(key, Transport::Http)),
        era: Era::Modern,
        client_name: None,
        cancel: CancellationToken::new(),
        client: Arc::new(Deaf),
        answered: None,
        noted: Arc::default(),
    }
}

/// A caller that hears how far its calls have come.
pub struct Listener(mpsc::UnboundedSender<Progress>);

impl Listener {
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Progress>) {
        let (tell, told) = mpsc::unbounded_channel();
        (Arc::new(Self(tell)), told)
    }
}

impl Client for Listener {
    fn progress(&self, step: Progress) {
        let _ = self.0.send(step);
    }
}

/// A number of seconds no other process sleeps for: a command's mark in the table of processes.
pub fn mark() -> String {
    format!("1{:09}", Uuid::new_v4().as_u128() % 1_000_000_000)
}

/// Processes with the mark among their arguments. A zombie has none.
pub fn marked(mark: &str) -> usize {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let lines = pids.filter_map(|pid| fs::read(pid.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).split('\0').any(|word| word == mark)).count()
}

/// Writes a file, for a test to find.
pub fn put(path: &Path, content: impl AsRef<[u8]>) {
    fs::File::create(path).unwrap().write_all(content.as_ref()).unwrap();
}

/// Waits for a state. It is looked for, not slept for.
pub async fn until(what: &str, mut state: impl FnMut() -> bool) {
    let reached = async {
        while !state() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, reached).await.is_err() {
        panic!("never: {what}");
    }
}
