//! The real `nexus agent` with commands that behave, and with commands that do not.

mod ends;
mod output;
mod speaking;
mod stopping;
mod trouble;

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::watch;

use crate::support::agents::AGENT;
use crate::support::{Client, Hub, LOOK_AGAIN, Program, secret, signal, within};

/// A running worker, ended when dropped.
struct Worker {
    child: Child,
    talk: watch::Receiver<String>,
}

impl Worker {
    /// Serves `homelab`, wherever the hub of the data folder is, with the script as the command of `sh`.
    fn start(hub: &Hub, script: &str) -> Self {
        Self::with(hub, &[], script)
    }

    /// With more options of `nexus agent`.
    fn with(hub: &Hub, options: &[&str], script: &str) -> Self {
        Self::running(hub, options, &["/bin/sh", "-c", script])
    }

    fn running(hub: &Hub, options: &[&str], command: &[&str]) -> Self {
        let (child, talk) = worker(hub, options, command).spawn_talking();
        Self { child, talk }
    }

    fn said(&self) -> String {
        self.talk.borrow().clone()
    }

    async fn says(&self, words: &str) {
        let mut talk = self.talk.clone();
        let said = within(words, talk.wait_for(|said| said.contains(words))).await;
        assert!(said.is_ok(), "it ended without saying `{words}`: {}", self.said());
    }

    fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    fn signal(&self, kind: rustix::process::Signal) {
        signal(self.pid(), kind);
    }

    async fn ended(&mut self) -> Option<i32> {
        within("the end of the worker", self.child.wait()).await.unwrap().code()
    }
}

/// The command line of a worker with the key for `homelab`. The grace is short, so that the tests are.
fn worker(hub: &Hub, options: &[&str], command: &[&str]) -> Program {
    let data = hub.data.to_str().unwrap().to_owned();
    let mut args = vec!["agent", "--data", &data];
    for usual in [["--target", "homelab"], ["--grace", "300ms"]] {
        if !options.contains(&usual[0]) {
            args.extend(usual);
        }
    }
    args.extend(options.iter().chain(&["--"]).chain(command));
    let program = Program::new(&args).current_dir(hub.folder.path());
    program.env("NEXUS_AGENT_KEY", &secret(AGENT)).env("NEXUS", env!("CARGO_BIN_EXE_nexus"))
}

impl Client {
    /// The task once it stands so. Much to tell takes its time: as long as something is told, it is waited for.
    async fn comes_to(&self, task: &str, status: &str) -> Value {
        let mut news = Value::Null;
        loop {
            let seen = news.clone();
            let now = within(&format!("{task} is {status}"), async {
                loop {
                    let now = self.does("get_task", json!({ "id": task, "updates": 1 })).await;
                    let over = ["complete", "error", "cancelled", "dead"].iter().any(|end| now["status"] == *end);
                    if over || now["status"] == status || now["updates"][0]["id"] != seen {
                        return now;
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            })
            .await;
            if now["status"] == status {
                return now;
            }
            assert!(now["updates"][0]["id"] != seen, "{task} is to become {status}: {now}");
            news = now["updates"][0]["id"].clone();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// All that was said about a task, once this is among it.
    async fn hears(&self, task: &str, words: &str) -> Vec<(String, String)> {
        within(&format!("`{words}` about {task}"), async {
            loop {
                let told = self.all_about(task).await;
                if told.iter().any(|(_, content)| content.contains(words)) {
                    return told;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        })
        .await
    }

    /// Kind and content of every update of a task, without moving any bookmark.
    async fn all_about(&self, task: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut cursor = json!("0");
        loop {
            let page = self.does("pull_updates", json!({ "task": task, "cursor": cursor, "limit": 1000 })).await;
            all.extend(crate::support::agents::told(page["updates"].as_array().unwrap()));
            if page["more"] != true {
                return all;
            }
            cursor = page["next_cursor"].clone();
        }
    }
}

/// What the agent itself has said, joined.
fn output(told: &[(String, String)]) -> String {
    let said: Vec<&str> = told.iter().filter(|(kind, _)| kind == "progress").map(|(_, words)| words.as_str()).collect();
    said.join("\n")
}

/// The number that a command has written to a file, once it is there.
async fn number_in(file: &Path) -> u32 {
    within("a file with a number", async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if text.ends_with('\n') {
                return text.trim().parse().unwrap();
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    })
    .await
}

/// KiB of memory that a process has in use.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
