//! `kill -9` at any moment: no write that was answered, and none that happened, is without its row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nexus_core::tasks::Tasks;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{AuditRow, Client, Hub, Program, secret, signal, until};

/// Kills in all, shared by the folders.
const KILLS: usize = 100;
const FOLDERS: usize = 4;
const WRITERS: usize = 6;

/// One call on a connection of its own. None: the hub died first.
async fn call(client: &Client, address: &str, tool: &str, arguments: Value) -> Option<Value> {
    let message = client.message("tools/call", json!({ "name": tool, "arguments": arguments }));
    let ask = client.ask(&message).header("Connection", "close");
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(&ask.render(address)).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let body: Value = serde_json::from_str(body).ok()?;
    (body["result"]["isError"] == false).then(|| body["result"].clone())
}

/// What is asked of the hubs of one folder, and what they have answered.
#[derive(Default)]
struct Load {
    next: AtomicUsize,
    answered: Mutex<BTreeSet<String>>,
    stop: AtomicBool,
}

impl Load {
    /// Writes one file after the other, by either tool, each with a name of its own.
    async fn write(self: Arc<Self>, client: Client, address: String, out: PathBuf) {
        while !self.stop.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("file-{n:06}");
            let path = out.join(&name);
            let done = match n % 4 {
                0 => {
                    call(&client, &address, "run_command", json!({ "cmd": format!("touch {}", path.display()) })).await
                }
                _ => call(&client, &address, "write_file", json!({ "path": path, "content": "x" })).await,
            };
            match done {
                Some(_) => drop(self.answered.lock().insert(name)),
                None => return,
            }
        }
    }

    async fn read(self: Arc<Self>, client: Client, address: String) {
        while !self.stop.load(Ordering::Relaxed) {
            if call(&client, &address, "get_session_info", json!({})).await.is_none() {
                return;
            }
        }
    }
}

fn random(most: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 % most
}

/// A hub that does not live to see its first call.
async fn die_young(data: &Path) {
    let (mut child, _talk) = Program::new(&["serve"]).data(data).env("MCP_PORT", "0").spawn_talking();
    tokio::time::sleep(Duration::from_micros(random(100_000))).await;
    child.kill().await.unwrap();
}

/// One folder, one hub after the other, each killed while it is at work.
async fn folder(kills: usize) -> String {
    let home = tempfile::TempDir::new().unwrap();
    let (data, out) = (home.path().join("data"), home.path().join("out"));
    std::fs::create_dir(&out).unwrap();
    let start = || Hub::start().key("robot", "level: yolo").data(&data);
    let load = Arc::new(Load::default());
    for kill in 0..kills {
        if kill % 5 == 4 {
            die_young(&data).await;
            continue;
        }
        let mut hub = start().await;
        let tasks = Tasks::new();
        for _ in 0..WRITERS {
            let client = hub.modern(&secret("robot"));
            tasks.spawn("a writer", load.clone().write(client, hub.address.clone(), out.clone()));
        }
        tasks.spawn("a reader", load.clone().read(hub.modern(&hub.key), hub.address.clone()));
        // From before the first answer to the middle of things, at no particular moment.
        let answers = load.answered.lock().len() + usize::try_from(random(30)).unwrap();
        until("enough answers", || load.answered.lock().len() >= answers).await;
        tokio::time::sleep(Duration::from_micros(random(20_000))).await;
        signal(hub.pid, rustix::process::Signal::KILL);
        hub.ended().await;
        assert!(tasks.finish(Duration::from_secs(10)).await);
    }
    let mut hub = start().await;
    let ended = |rows: &[AuditRow]| begun(rows).values().all(|(begun, ended)| *begun == 1 && *ended == 1);
    let rows = hub.audit_reaches(ended).await;
    let kept: Vec<&str> =
        rows.iter().filter(|row| row.event == "begun").filter_map(|row| row.arguments.as_deref()).collect();
    let named: BTreeSet<String> = kept
        .iter()
        .filter_map(|arguments| arguments.split("file-").nth(1))
        .map(|rest| format!("file-{}", &rest[..6]))
        .collect();
    let answered = load.answered.lock().clone();
    let unrecorded: Vec<&String> = answered.difference(&named).collect();
    assert!(unrecorded.is_empty(), "answered and not in the record: {unrecorded:?}");
    let happened: BTreeSet<String> = std::fs::read_dir(&out)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("file-"))
        .collect();
    let unseen: Vec<&String> = happened.difference(&named).collect();
    assert!(unseen.is_empty(), "happened and not in the record: {unseen:?}");
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "no row twice");
    let abandoned = rows.iter().filter(|row| row.outcome.as_deref() == Some("abandoned")).count();
    hub.stop().await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
    format!("{kills} kills: {} answered, {} rows, {abandoned} abandoned", answered.len(), rows.len())
}

/// For each write: how often it begun, and how often it ended.
fn begun(rows: &[AuditRow]) -> BTreeMap<&str, (usize, usize)> {
    let mut calls: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.access.as_deref() == Some("write")) {
        let call = calls.entry(row.call_id.as_deref().unwrap()).or_default();
        match row.event.as_str() {
            "begun" => call.0 += 1,
            _ => call.1 += 1,
        }
    }
    calls
}

#[tokio::test]
async fn a_hundred_kills_under_load_lose_no_row_and_leave_no_write_without_an_end() {
    let folders: Vec<_> = (0..FOLDERS).map(|_| folder(KILLS / FOLDERS)).collect();
    for told in futures_util::future::join_all(folders).await {
        println!("{told}");
    }
}
