//! Runs the real program, on a free port, in a folder and an environment of its own.

pub mod agents;
mod audit;
mod client;
pub mod computers;
mod http;
pub mod loki;
mod program;
mod sse;
mod stdio;
pub mod telegram;
mod upstream;
pub mod webhook;

use std::future::{Future, IntoFuture};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::sync::watch;

pub use audit::{AuditRow, parsed, rows};
pub use client::{Answer, Client, MODERN, decided, finish, forms, retried, rpc};
pub use http::{Ask, Wire};
pub use program::{Program, Ran};
pub use sse::Sse;
pub use stdio::Stdio;
pub use upstream::{Notes, TestServer, Web, command_of, hostile, put, test_server, text_of, with};

/// Far beyond what anything here takes: a test that fails should say so, not hang.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Between two looks at a state that cannot be waited for.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What comes of it, or a failed test.
#[track_caller]
pub fn within<F: Future>(what: &str, work: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let done = tokio::time::timeout(DEADLINE, work).await;
        done.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}, at {place}"))
    }
}

/// Looks until it is so.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(what, async move {
        while !so() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    })
}

/// The secret behind a key of that name in [`Setup::key`].
pub fn secret(name: &str) -> String {
    format!("{name}-0123456789abcdef0123456789abcdef")
}

pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A running hub. Ended when dropped.
pub struct Hub {
    /// `127.0.0.1:port`.
    pub address: String,
    pub data: PathBuf,
    /// The key named `default`.
    pub key: String,
    pub pid: u32,
    /// For files of the test; gone with the hub.
    pub folder: TempDir,
    config: Option<PathBuf>,
    env: Vec<(String, String)>,
    child: Child,
    talk: watch::Receiver<String>,
}

/// How a hub is to start.
pub struct Setup {
    folder: TempDir,
    data: Option<PathBuf>,
    yaml: String,
    keys: String,
    env: Vec<(String, String)>,
    args: Vec<String>,
}

impl Hub {
    /// With a key of its own and nothing configured. `Hub::start().await`, or with more said before the `await`.
    pub fn start() -> Setup {
        Setup {
            folder: TempDir::new().unwrap(),
            data: None,
            yaml: String::new(),
            keys: String::new(),
            env: [
                ("MCP_PORT", "0"),
                ("CC_LINK_HOST", "127.0.0.1"),
                ("CC_LINK_PORT", "0"),
                ("MCP_API_KEY", &secret("default")),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
            args: Vec::new(),
        }
    }

    /// What it has said on stderr so far.
    pub fn said(&self) -> String {
        self.talk.borrow().clone()
    }

    pub async fn says(&self, words: &str) -> String {
        let mut talk = self.talk.clone();
        let said = within(words, talk.wait_for(|said| said.contains(words))).await;
        said.unwrap_or_else(|_| panic!("it ended without saying `{words}`: {}", self.said())).clone()
    }

    /// The command line with the same configuration, data folder and environment.
    pub fn program(&self, args: &[&str]) -> Program {
        let mut program = Program::bare(args).data(&self.data).current_dir(self.folder.path());
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        match &self.config {
            Some(config) => program.config(config),
            None => program,
        }
    }

    pub async fn nexus(&self, args: &[&str]) -> Ran {
        self.program(args).run().await
    }

    pub fn terminate(&self) {
        signal(self.pid, rustix::process::Signal::TERM);
    }

    /// Waits for its end, and for its last words.
    pub async fn ended(&mut self) -> ExitStatus {
        let status = within("the end of the hub", self.child.wait()).await.unwrap();
        within("the end of stderr", last_words(&self.talk)).await;
        status
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it as an operator would, and keeps its folder.
    pub async fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.ended().await
    }

    /// Ends it and starts it again, in the same folder and with the same files.
    pub async fn restart(&mut self) {
        self.stop().await;
        (self.child, self.talk) = self.program(&["serve"]).spawn_talking();
        self.address = served_at(&self.talk).await;
        self.pid = self.child.id().unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The key that it made for itself.
    pub fn made_key(&self) -> String {
        std::fs::read_to_string(self.data.join("key")).unwrap().trim().to_owned()
    }
}

/// The address in its ready line, once it is there.
async fn served_at(talk: &watch::Receiver<String>) -> String {
    let mut ready = talk.clone();
    let waiting = ready.wait_for(|said| said.lines().any(|line| line.starts_with("nexus ready mcp=")));
    let said = match within("the ready line", waiting).await {
        Ok(said) => said.clone(),
        Err(_) => panic!("it did not come up: {}", talk.borrow().as_str()),
    };
    let line = said.lines().find(|line| line.starts_with("nexus ready mcp=")).unwrap();
    line.split_once("mcp=http://").unwrap().1.split_once("/mcp").unwrap().0.to_owned()
}

/// All that was said, once nobody can say more.
pub async fn last_words(talk: &watch::Receiver<String>) -> String {
    let mut talk = talk.clone();
    while talk.changed().await.is_ok() {}
    talk.borrow().clone()
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Whether a process is there and not only waiting to be buried.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

impl Drop for Hub {
    /// Asks it to end, then insists.
    fn drop(&mut self) {
        let started = Instant::now();
        let mut asked = 0;
        while let Ok(None) = self.child.try_wait() {
            let waited = started.elapsed();
            if waited > Duration::from_secs(3) {
                let _ = self.child.start_kill();
                return;
            }
            if asked == 0 || (asked == 1 && waited > Duration::from_millis(500)) {
                self.terminate();
                asked += 1;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Setup {
    /// Lines of `nexus.yaml`, beside those of [`Setup::key`].
    pub fn yaml(mut self, text: &str) -> Self {
        self.yaml = text.to_owned();
        self
    }

    /// A key in `nexus.yaml`: `.key("robot", "level: yolo")`. Its secret is `secret("robot")`.
    pub fn key(mut self, name: &str, more: &str) -> Self {
        let comma = if more.is_empty() { "" } else { ", " };
        self.keys.push_str(&format!("  - {{ name: {name}, sha256: {}{comma}{more} }}\n", sha256(&secret(name))));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self = self.without_env(name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// Without `MCP_API_KEY`.
    pub fn keyless(self) -> Self {
        self.without_env("MCP_API_KEY")
    }

    /// Over another hub's data folder, which outlives this one.
    pub fn data(mut self, folder: &Path) -> Self {
        self.data = Some(folder.to_owned());
        self
    }

    /// With the fixtures, and open to loopback without a key.
    pub fn conformance(mut self) -> Self {
        self.args.push("--conformance".to_owned());
        self
    }

    fn program(&self) -> (Program, PathBuf, Option<PathBuf>) {
        let data = self.data.clone().unwrap_or_else(|| self.folder.path().join("data"));
        let args: Vec<&str> = ["serve"].into_iter().chain(self.args.iter().map(String::as_str)).collect();
        let mut program = Program::bare(&args).data(&data).current_dir(self.folder.path());
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        let mut text = self.yaml.clone();
        if !self.keys.is_empty() {
            text.push_str(&format!("\nkeys:\n{}", self.keys));
        }
        let config = (!text.is_empty()).then(|| self.folder.path().join("hub.yaml"));
        if let Some(path) = &config {
            write(path, &text);
            program = program.config(path);
        }
        (program, data, config)
    }

    /// For a hub that is not to come up: what became of it.
    pub async fn refused(self) -> Ran {
        self.program().0.run().await
    }
}

impl IntoFuture for Setup {
    type Output = Hub;
    type IntoFuture = Pin<Box<dyn Future<Output = Hub>>>;

    /// Comes back when it serves.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (program, data, config) = self.program();
            let (child, talk) = program.spawn_talking();
            let address = served_at(&talk).await;
            let key = self.env.iter().find(|(name, _)| name == "MCP_API_KEY").map(|(_, key)| key.clone());
            let pid = child.id().unwrap();
            Hub {
                address,
                data,
                key: key.unwrap_or_default(),
                pid,
                folder: self.folder,
                config,
                env: self.env,
                child,
                talk,
            }
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's own file")]
pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}
