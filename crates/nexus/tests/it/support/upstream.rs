//! Servers behind a hub: their entries and their state, and programs that misbehave on purpose.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{Client, DEADLINE, Hub, LOOK_AGAIN, Ran, Setup, secret, within, write};

fn tests(name: &str) -> String {
    format!("{}/../../tests/hostile/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The entry of `tests/hostile/server.py` in one of its modes: `hostile("flood count=1000")`.
pub fn hostile(mode: &str) -> Value {
    let mut args = vec!["-B".to_owned(), tests("server.py")];
    args.extend(mode.split(' ').map(str::to_owned));
    json!({ "command": "python3", "args": args })
}

/// The entry of `nexus test-server`.
pub fn test_server() -> Value {
    json!({ "command": [env!("CARGO_BIN_EXE_nexus"), "test-server"] })
}

/// An entry with more fields.
pub fn with(mut entry: Value, more: Value) -> Value {
    let (Value::Object(entry_fields), Value::Object(more)) = (&mut entry, more) else { panic!("no entries") };
    entry_fields.extend(more);
    entry
}

/// All text of a result.
pub fn text_of(result: &Value) -> String {
    let content = result["content"].as_array().unwrap_or_else(|| panic!("no content: {result}"));
    content.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// A file that a hostile server writes and a test reads.
#[derive(Debug)]
pub struct Notes(pub PathBuf);

impl Notes {
    pub fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    pub fn count(&self, kind: &str) -> usize {
        self.lines().iter().filter(|line| line.starts_with(kind)).count()
    }

    pub fn numbers(&self) -> Vec<u32> {
        self.lines().iter().filter_map(|line| line.parse().ok()).collect()
    }

    /// For the command line of a server: `state=/tmp/…`.
    pub fn named(&self, key: &str) -> String {
        format!("{key}={}", self.0.display())
    }
}

impl Setup {
    /// Servers of the home layer, by name.
    pub fn upstreams(self, servers: &Value) -> Self {
        self.home_file(".nexus/mcp.json", &json!({ "servers": servers }).to_string())
    }

    pub fn home_file(self, name: &str, text: &str) -> Self {
        let home = self.folder.path().join("home");
        put(&home.join(name), text);
        self.env("HOME", home.to_str().unwrap())
    }

    /// A file in the folder that the hub works in.
    pub fn work_file(self, name: &str, text: &str) -> Self {
        put(&self.folder.path().join(name), text);
        let home = self.folder.path().join("home");
        self.env("HOME", home.to_str().unwrap())
    }

    /// A file for a server to write, before the hub is there.
    pub fn notes(&self, name: &str) -> Notes {
        Notes(self.folder.path().join(name))
    }

    /// A key that is never asked.
    pub fn robot(self) -> Self {
        self.key("robot", "level: yolo")
    }
}

/// Writes it whole or not at all, as an editor does.
pub fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let fresh = path.with_extension("fresh");
    write(&fresh, text);
    std::fs::rename(&fresh, path).unwrap();
}

impl Hub {
    /// A client of the key of [`Setup::robot`].
    pub fn robot(&self) -> Client {
        self.modern(&secret("robot"))
    }

    pub async fn legacy_robot(&self) -> Client {
        self.legacy(&secret("robot")).await
    }

    /// What `list_upstreams` says of a server, or `/health` of an entry that is none.
    pub async fn upstream(&self, name: &str) -> Value {
        let told = self.modern(&self.key).call("list_upstreams", json!({})).await;
        let servers = told["structuredContent"]["servers"].as_array().unwrap_or_else(|| panic!("{told}"));
        match servers.iter().find(|server| server["name"] == name) {
            Some(server) => server.clone(),
            None => self.health().await["upstreams"][name].clone(),
        }
    }

    /// Waits until it is so with a server.
    pub async fn upstream_reaches(&self, name: &str, so: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let now = self.upstream(name).await;
            if so(&now) {
                return now;
            }
            assert!(started.elapsed() < DEADLINE, "{name} is {now}; the hub said {}", self.said());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    pub async fn upstream_is(&self, name: &str, state: &str) -> Value {
        self.upstream_reaches(name, |now| now["state"] == state).await
    }

    pub async fn upstreams_are_ready(&self, servers: &Value) {
        for name in servers.as_object().unwrap_or(&Map::new()).keys() {
            self.upstream_is(name, "ready").await;
        }
    }

    /// The home layer's file, from now on.
    pub fn configures(&self, servers: &Value) {
        put(&self.path("home/.nexus/mcp.json"), &json!({ "servers": servers }).to_string());
    }

    /// `nexus mcp …`.
    pub async fn mcp(&self, args: &[&str]) -> Ran {
        self.nexus(&[&["mcp"], args].concat()).await
    }

    /// The row of a server in `nexus mcp list --json`.
    pub async fn listed(&self, name: &str) -> Value {
        let told = self.mcp(&["list", "--json"]).await.ok();
        let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
        let rows = told.as_array().or_else(|| told["servers"].as_array()).unwrap_or_else(|| panic!("{told}"));
        rows.iter().find(|row| row["name"] == name).cloned().unwrap_or_default()
    }

    /// KiB that it holds in memory.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }

    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap().count()
    }

    /// Its children and theirs, and so on.
    pub fn descendants(&self) -> Vec<u32> {
        descendants(self.pid)
    }
}

/// The words it was started with.
pub fn command_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

fn descendants(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

/// A running `tests/hostile/web.py`. Ended when dropped.
pub struct Web {
    pub url: String,
    _child: Child,
}

impl Web {
    pub async fn start(mode: &str) -> Self {
        let mut child = python(&tests("web.py"), mode).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = within("the ready line of web.py", lines.next_line()).await.unwrap().unwrap_or_default();
        let url = first.strip_prefix("ready ").unwrap_or_else(|| panic!("web.py said {first}")).to_owned();
        Self { url, _child: child }
    }

    pub fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap().trim_end_matches("/mcp")
    }
}

/// A running `nexus test-server --http`. Ended when dropped.
pub struct TestServer {
    pub url: String,
    child: Child,
}

impl TestServer {
    /// On any free port, or again on the one it had.
    pub async fn start(at: &str) -> Self {
        let program = super::Program::new(&["test-server", "--http", at]);
        let (child, mut talk) = program.spawn_talking();
        let said = within("test-server to be ready", talk.wait_for(|said| said.contains("ready http://"))).await;
        let said = said.unwrap().clone();
        let url = said.split("ready ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        Self { url, child }
    }

    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

#[allow(clippy::disallowed_methods, reason = "the tests' way to start a server of theirs")]
fn python(script: &str, mode: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-B", script]).args(mode.split(' ')).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    command
}
