//! `kill -9` of the hub, of the worker and of both, at no particular moment and under load: every message is one task,
//! every task ends, no command runs more often than its task was claimed, and nothing is told twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nexus_core::tasks::Tasks;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::sync::watch;

use crate::record::postgres::Database;
use crate::support::{Client, DEADLINE, Hub, Program, Setup, secret, signal, until, within, write};

const YAML: &str = "agents: { targets: { homelab: { worker: {} } } }";
const SENDERS: usize = 4;
/// So many messages more than commands have run, at most: there is always something to do, and never too much.
const BACKLOG: usize = 16;
const KILLS: usize = 9;
/// The shortest there is: what a killed worker had is given up when it is over.
const LEASE: &str = "10s";

/// What each task runs. Its message is its name; each run has a name as well, so that what is told twice shows.
const SCRIPT: &str = r#"
name=$(cat)
run=$(cat /proc/sys/kernel/random/uuid)
echo "$name $run" >> "$RUNS"
echo "begins $run"
case $name in *slow*) sleep 0.2 ;; esac
echo "ends $run"
case $name in *fails*) exit 3 ;; esac
"#;

/// One address for whichever hub is alive.
struct Relay {
    address: String,
    to: Arc<Mutex<String>>,
    _tasks: Tasks,
}

impl Relay {
    async fn to(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let (tasks, to) = (Tasks::new(), Arc::new(Mutex::new(address.to_owned())));
        let (inner, current) = (tasks.clone(), to.clone());
        tasks.spawn("a relay", async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let address = current.lock().clone();
                inner.spawn("a connection", async move {
                    // Nobody there is a closed connection, as with a hub that is down.
                    if let Ok(mut hub) = TcpStream::connect(address).await {
                        let _ = copy_bidirectional(&mut caller, &mut hub).await;
                    }
                });
            }
        });
        Self { address: here, to, _tasks: tasks }
    }
}

/// Numbers that are the same in every run of a test.
struct Dice(AtomicU64);

impl Dice {
    fn below(&self, most: u64) -> u64 {
        // splitmix64
        let mut mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// One call on a connection of its own: what the tool said, or why it said nothing.
async fn call(client: &Client, address: &str, tool: &str, arguments: &Value) -> Result<Value, String> {
    let message = client.message("tools/call", json!({ "name": tool, "arguments": arguments }));
    let ask = client.ask(&message).header("Connection", "close");
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.write_all(&ask.render(address)).await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let body: Value = serde_json::from_str(body).map_err(|_| answer.clone())?;
    match body["result"]["isError"] == false {
        true => Ok(body["result"]["structuredContent"].clone()),
        false => Err(answer),
    }
}

/// What is asked of the hubs, and what they have answered.
#[derive(Default)]
struct Load {
    /// Each message that was sent, and the id that the hub gave it.
    answers: Mutex<BTreeMap<String, String>>,
    /// A line for each command that has run.
    runs: PathBuf,
    over: AtomicBool,
    /// What a hub that was there refused; it should not.
    refused: Mutex<Vec<String>>,
}

impl Load {
    /// Sends one message after the other, each as often as it takes to be answered.
    async fn send(self: Arc<Self>, client: Client, address: String, sender: usize) {
        for n in 0.. {
            while self.answers.lock().len() > runs(&self.runs).len() + BACKLOG && !self.over.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let kind = ["plain", "slow", "fails", "plain"][n % 4];
            let name = format!("message {sender}-{n:03} {kind}");
            let arguments = json!({
                "message": name, "idempotency_key": format!("key {sender}-{n}"), "max_attempts": 1 + n % 3,
            });
            let id = loop {
                match call(&client, &address, "send_message", &arguments).await {
                    Ok(said) => break said["id"].as_str().unwrap().to_owned(),
                    Err(why) if why.contains("\"isError\":true") => return self.refused.lock().push(why),
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            self.answers.lock().insert(name, id);
        }
    }
}

/// Which messages were run, and the name of each run.
fn runs(file: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file).unwrap();
    let runs = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    runs.map(|(name, run)| (name.to_owned(), run.to_owned())).collect()
}

/// The real programs, which come and go.
struct World {
    folder: tempfile::TempDir,
    store: Option<String>,
    dice: Dice,
    relay: Relay,
    hub: Hub,
    worker: (Child, watch::Receiver<String>),
}

impl World {
    async fn new(store: Option<String>, seed: u64) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        write(&folder.path().join("run.sh"), SCRIPT);
        write(&folder.path().join("runs"), "");
        let hub = hub(folder.path(), store.as_deref()).await;
        let relay = Relay::to(&hub.address).await;
        let worker = worker(folder.path(), &relay.address);
        Self { folder, store, dice: Dice(AtomicU64::new(seed)), relay, hub, worker }
    }

    async fn kill_hub(&mut self) {
        signal(self.hub.pid, rustix::process::Signal::KILL);
        self.hub.ended().await;
    }

    async fn kill_worker(&mut self) {
        self.worker.0.start_kill().unwrap();
        within("the end of the worker", self.worker.0.wait()).await.unwrap();
    }

    async fn start_hub(&mut self) {
        self.hub = hub(self.folder.path(), self.store.as_deref()).await;
        self.relay.to.lock().clone_from(&self.hub.address);
    }

    fn start_worker(&mut self) {
        self.worker = worker(self.folder.path(), &self.relay.address);
    }

    /// The hub, the worker or both, in turn.
    async fn kill_and_start(&mut self, turn: usize) {
        tokio::time::sleep(Duration::from_micros(self.dice.below(30_000))).await;
        match turn % 3 {
            0 => {
                self.kill_hub().await;
                self.start_hub().await;
            }
            1 => {
                self.kill_worker().await;
                self.start_worker();
            }
            _ => {
                self.kill_hub().await;
                self.kill_worker().await;
                self.start_worker();
                self.start_hub().await;
            }
        }
    }

    fn runs(&self) -> Vec<(String, String)> {
        runs(&self.folder.path().join("runs"))
    }

    fn model(&self) -> Client {
        self.hub.modern(&secret("model"))
    }

    async fn is_finished(&self) -> bool {
        let status = self.model().does("queue_status", json!({})).await;
        status["pending"] == 0 && status["in_progress"] == 0
    }

    /// All tasks, whatever became of them.
    async fn tasks(&self) -> Vec<Value> {
        let (model, mut tasks, mut arguments) = (self.model(), Vec::new(), json!({ "limit": 50 }));
        loop {
            let page = model.does("list_tasks", arguments.clone()).await;
            for line in page["tasks"].as_array().unwrap() {
                tasks.push(model.does("get_task", json!({ "id": line["id"], "updates": 0 })).await);
            }
            match page.get("before") {
                Some(before) => arguments["before"] = before.clone(),
                None => return tasks,
            }
        }
    }

    /// All updates, from the first.
    async fn updates(&self) -> Vec<Value> {
        let (model, mut updates, mut cursor) = (self.model(), Vec::new(), json!("0"));
        loop {
            let page = model.does("pull_updates", json!({ "cursor": cursor, "limit": 500 })).await;
            updates.extend(page["updates"].as_array().unwrap().iter().cloned());
            cursor = page["next_cursor"].clone();
            if page["more"] != true {
                return updates;
            }
        }
    }
}

async fn hub(folder: &Path, store: Option<&str>) -> Hub {
    let setup = Hub::start().yaml(YAML).key("model", "level: yolo").key("agent", "target: homelab");
    let setup = setup.data(&folder.join("data"));
    match store {
        Some(url) => setup.env("NEXUS_STORE", url).await,
        None => setup.await,
    }
}

fn worker(folder: &Path, hub: &str) -> (Child, watch::Receiver<String>) {
    let script: PathBuf = folder.join("run.sh");
    let url = format!("http://{hub}");
    let args = ["agent", "--target", "homelab", "--url", &url, "--parallel", "4", "--lease", LEASE, "--", "/bin/sh"];
    let program = Program::new(&args).arg(script.to_str().unwrap()).current_dir(folder);
    program.env("NEXUS_AGENT_KEY", &secret("agent")).env("RUNS", folder.join("runs").to_str().unwrap()).spawn_talking()
}

/// Messages, tasks, runs and updates agree.
fn judge(answers: &BTreeMap<String, String>, tasks: &[Value], runs: &[(String, String)], updates: &[Value]) -> String {
    let mut known: BTreeMap<&str, &Value> = BTreeMap::new();
    for task in tasks {
        assert!(known.insert(task["content"].as_str().unwrap(), task).is_none(), "two tasks say the same: {task}");
    }
    assert_eq!(known.len(), answers.len(), "as many tasks as messages");
    for (message, id) in answers {
        assert_eq!(known.get(message.as_str()).map(|task| &task["id"]), Some(&json!(id)), "{message}");
    }

    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        let (status, message) = (task["status"].as_str().unwrap(), task["content"].as_str().unwrap());
        *ends.entry(status).or_default() += 1;
        let attempts = task["attempts"].as_u64().unwrap();
        assert!(attempts >= 1 && attempts <= task["max_attempts"].as_u64().unwrap(), "{task}");
        let ran = runs.iter().filter(|(name, _)| name == message).count();
        assert!(u64::try_from(ran).unwrap() <= attempts, "ran {ran} times: {task}");
        match status {
            "complete" => assert!(ran >= 1 && !message.contains("fails") && task["exit_code"] == 0, "{task}"),
            "error" => assert!(ran >= 1 && message.contains("fails") && task["exit_code"] == 3, "{task}"),
            "dead" => assert!(task["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{task}"),
            _ => panic!("not finished: {task}"),
        }
    }

    let numbers: Vec<i64> = updates.iter().map(|update| update["id"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>(), "dense and in order");
    judge_said(&known, runs, updates);
    let again = tasks.iter().filter(|task| task["attempts"] != 1).count();
    format!("{ends:?}, {again} tried again, {} runs, {} updates", runs.len(), updates.len())
}

/// What the commands printed is told at most once; of a task that came to its end, all of its last run.
fn judge_said(tasks: &BTreeMap<&str, &Value>, runs: &[(String, String)], updates: &[Value]) {
    let mut said: BTreeMap<&str, usize> = BTreeMap::new();
    let mut finished: BTreeMap<&str, usize> = BTreeMap::new();
    for update in updates {
        match update["kind"].as_str().unwrap() {
            "progress" => {
                for line in update["content"].as_str().unwrap().lines() {
                    *said.entry(line).or_default() += 1;
                }
            }
            "complete" | "error" => *finished.entry(update["message_id"].as_str().unwrap()).or_default() += 1,
            _ => (),
        }
    }
    let known: BTreeSet<String> =
        runs.iter().flat_map(|(_, run)| [format!("begins {run}"), format!("ends {run}")]).collect();
    for (line, times) in &said {
        assert!(known.contains(*line), "nobody said `{line}`");
        assert_eq!(*times, 1, "`{line}` is told more than once");
    }
    for (message, task) in tasks.iter().filter(|(_, task)| task["status"] != "dead") {
        let told =
            |run: &str| ["begins", "ends"].iter().all(|word| said.contains_key(format!("{word} {run}").as_str()));
        let whole = runs.iter().filter(|(name, run)| name == message && told(run)).count();
        assert!(whole >= 1, "no run is told whole: {task}");
        assert_eq!(finished.get(task["id"].as_str().unwrap()), Some(&1), "{task}");
    }
}

async fn torture(store: Option<String>, seed: u64) -> String {
    let mut world = World::new(store, seed).await;
    let (tasks, runs) = (Tasks::new(), world.folder.path().join("runs"));
    let load = Arc::new(Load { runs, ..Load::default() });
    for sender in 0..SENDERS {
        tasks.spawn("a sender", load.clone().send(world.model(), world.relay.address.clone(), sender));
    }
    for turn in 0..KILLS {
        // Not before something has been done since the last time.
        let enough = world.runs().len() + usize::try_from(world.dice.below(6)).unwrap();
        until("the commands to run", || world.runs().len() > enough).await;
        world.kill_and_start(turn).await;
    }
    load.over.store(true, Ordering::Relaxed);
    assert!(tasks.finish(DEADLINE).await, "not all messages are answered");
    assert_eq!(*load.refused.lock(), Vec::<String>::new());
    let ending = async {
        while !world.is_finished().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("all tasks to end", ending).await;
    let (tasks, updates) = (world.tasks().await, world.updates().await);
    let told = judge(&load.answers.lock(), &tasks, &world.runs(), &updates);
    world.kill_worker().await;
    world.hub.stop().await;
    assert_eq!(world.hub.findings().await, Vec::<String>::new());
    told
}

#[tokio::test]
async fn kills_of_hub_worker_and_both_lose_no_task_and_run_and_tell_nothing_twice() {
    println!("{}", torture(None, 17).await);
}

#[tokio::test]
async fn kills_of_hub_worker_and_both_lose_nothing_on_postgresql() {
    let database = Database::new().await;
    println!("{}", torture(Some(database.url()), 18).await);
}

/// Sends the same words three hundred times at once, with ten keys and written in two ways.
async fn send_the_same(hub: Setup) {
    const KEYS: usize = 10;
    const OF_EACH: usize = 30;
    let names: Vec<String> = (0..KEYS).map(|n| format!("model{n}")).collect();
    let hub = names.iter().fold(hub.yaml(YAML), |hub, name| hub.key(name, "level: yolo")).await;
    let clients: Vec<Client> = names.iter().map(|name| hub.modern(&secret(name))).collect();
    let one = json!({ "message": "Caf\u{e9} au lait\n" });
    let other = json!({ "message": "  Cafe\u{301} au lait\r\n" });
    let sending = (0..KEYS * OF_EACH).map(|n| {
        let words = if n % 2 == 0 { &one } else { &other };
        call(&clients[n % KEYS], &hub.address, "send_message", words)
    });
    let said = within("all answers", futures_util::future::join_all(sending)).await;
    let said: Vec<Value> = said.into_iter().map(Result::unwrap).collect();
    let queued: Vec<&Value> = said.iter().filter(|said| said["queued"] == true).collect();
    assert_eq!(queued.len(), 1, "{queued:?}");
    for said in said.iter().filter(|said| said["queued"] == false) {
        assert_eq!((&said["id"], &said["reason"]), (&queued[0]["id"], &json!("duplicate")), "{said}");
    }
    let tasks = clients[0].does("list_tasks", json!({})).await;
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 1, "{tasks}");
}

#[tokio::test]
async fn of_three_hundred_senders_of_the_same_words_exactly_one_wins() {
    send_the_same(Hub::start()).await;
}

#[tokio::test]
async fn of_three_hundred_senders_of_the_same_words_exactly_one_wins_on_postgresql() {
    let database = Database::new().await;
    send_the_same(Hub::start().env("NEXUS_STORE", &database.url())).await;
}
