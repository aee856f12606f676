//! The hub goes away and comes back; the command runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nexus_core::tasks::Tasks;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Worker, output};
use crate::support::agents::AGENT;
use crate::support::{Hub, Program, secret, signal, write};

/// Counts its runs, and to ten, each step when it is told.
fn counting(hub: &Hub) -> String {
    let folder = hub.folder.path().display();
    format!(
        "echo run >> {folder}/runs; for n in 1 2 3 4 5 6 7 8 9 10; do until [ -e {folder}/go$n ]; do sleep 0.02; done; echo step $n; done"
    )
}

#[tokio::test]
async fn a_hub_that_is_killed_and_comes_back_misses_nothing_and_nothing_happens_twice() {
    let mut hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let mut worker = Worker::start(&hub, &counting(&hub));
    let task = model.sends("count").await;
    let steps = |from: usize, to: usize| (from..=to).for_each(|n| write(&hub.path(&format!("go{n}")), ""));
    steps(1, 3);
    model.hears(&task, "step 3").await;

    signal(hub.pid, Signal::KILL);
    steps(4, 7);
    worker.says("is not reachable").await;
    // At another port: the data folder says where.
    hub.restart().await;
    worker.says("answers again").await;
    let (model, _) = hub.bridge().await;
    model.hears(&task, "step 7").await;
    (8..=10).for_each(|n| write(&hub.path(&format!("go{n}")), ""));

    let done = model.comes_to(&task, "complete").await;
    let all: Vec<String> = (1..=10).map(|n| format!("step {n}")).collect();
    assert_eq!(done["result"], all.join("\n"));
    assert_eq!(done["attempts"], 1);
    assert_eq!(output(&model.all_about(&task).await), all.join("\n"), "each once, in order");
    assert_eq!(std::fs::read_to_string(hub.path("runs")).unwrap(), "run\n", "it ran once");
    assert_eq!(worker.said().matches("is not reachable").count(), 1, "{}", worker.said());
    assert!(worker.child.try_wait().unwrap().is_none());
}

#[tokio::test]
async fn a_command_that_ends_while_the_hub_is_away_is_told_when_it_is_back() {
    let mut hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let worker = Worker::start(&hub, &counting(&hub));
    let task = model.sends("count").await;
    write(&hub.path("go1"), "");
    model.hears(&task, "step 1").await;
    hub.stop().await;
    (2..=10).for_each(|n| write(&hub.path(&format!("go{n}")), ""));
    worker.says("is not reachable").await;
    hub.restart().await;
    let (model, _) = hub.bridge().await;
    let done = model.comes_to(&task, "complete").await;
    assert!(done["result"].as_str().unwrap().ends_with("step 10"), "{done}");
}

#[tokio::test]
async fn a_worker_may_be_there_before_its_hub() {
    let mut hub = Hub::with_agents().await;
    hub.stop().await;
    let mut worker = Worker::start(&hub, "echo done");
    worker.says("is not reachable").await;
    hub.restart().await;
    worker.says("serving `homelab`").await;
    let (model, _) = hub.bridge().await;
    let task = model.sends("go").await;
    model.comes_to(&task, "complete").await;

    // And it ends while there is none.
    hub.stop().await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await, Some(0));
}

#[tokio::test]
async fn a_task_that_waited_while_no_worker_was_there_is_done_by_the_next_one() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let tasks = [model.sends("one").await, model.sends("two").await];
    let _worker = Worker::start(&hub, "cat");
    assert_eq!(model.comes_to(&tasks[0], "complete").await["result"], "one");
    assert_eq!(model.comes_to(&tasks[1], "complete").await["result"], "two");
    let status = model.does("queue_status", json!({})).await;
    assert_eq!((&status["pending"], &status["in_progress"]), (&json!(0), &json!(0)), "{status}");
    let mut targets = status["targets"].as_array().unwrap().iter();
    let homelab = targets.find(|target| target["target"] == "homelab").unwrap();
    assert!(homelab["last_heard"].is_string() && homelab["deaf"] == false, "{status}");
}

#[tokio::test]
async fn a_key_that_is_no_longer_good_is_told_and_the_worker_stays() {
    let hub = Hub::with_agents().await;
    let key = hub.nexus(&["key", "new", "short-lived", "--target", "homelab"]).await.ok();
    let (model, _) = hub.bridge().await;
    let script = counting(&hub);
    let program = super::worker(&hub, &[], &["/bin/sh", "-c", &script]);
    let (child, talk) = program.env("NEXUS_AGENT_KEY", key.trim()).spawn_talking();
    let mut worker = Worker { child, talk };
    let task = model.sends("count").await;
    write(&hub.path("go1"), "");
    model.hears(&task, "step 1").await;
    hub.nexus(&["key", "revoke", "short-lived"]).await.ok();
    write(&hub.path("go2"), "");
    worker.says("does not take this key").await;
    assert!(worker.child.try_wait().unwrap().is_none(), "the operator may mend it");
    assert!(!worker.said().contains(key.trim()));
}

/// Carries to the hub and back, and loses every third piece of what the hub says, with its connection.
async fn leaky(hub: String, tasks: &Tasks) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, lost) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let (inner, count, pieces) = (tasks.clone(), lost.clone(), Arc::new(AtomicUsize::new(0)));
    tasks.spawn("a leaky relay", async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            let (hub, count, pieces) = (hub.clone(), count.clone(), pieces.clone());
            inner.spawn("a connection", async move {
                let mut server = TcpStream::connect(hub).await.unwrap();
                let (mut said, mut heard) = (vec![0; 65_536], vec![0; 65_536]);
                loop {
                    tokio::select! {
                        read = caller.read(&mut said) => match read {
                            Ok(1..) => server.write_all(&said[..read.unwrap()]).await.unwrap(),
                            _ => return,
                        },
                        read = server.read(&mut heard) => match read {
                            Ok(1..) if pieces.fetch_add(1, Ordering::Relaxed) % 3 == 2 => {
                                count.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                            Ok(1..) => if caller.write_all(&heard[..read.unwrap()]).await.is_err() { return },
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    (address, lost)
}

#[tokio::test]
async fn answers_that_get_lost_change_nothing() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let (tasks, runs) = (Tasks::new(), hub.path("runs"));
    let (address, lost) = leaky(hub.address.clone(), &tasks).await;
    let mut sent = Vec::new();
    for n in 1..=8 {
        sent.push(model.sends(&format!("task {n}")).await);
    }
    // Without a data folder, a home or a file: an address and a key are enough.
    let script = format!("echo $NEXUS_TASK >> {}; cat; sleep 0.15; echo more; sleep 0.15; echo end", runs.display());
    let url = format!("http://{address}");
    let args = ["agent", "--url", &url, "--target", "homelab", "--parallel", "2", "--", "/bin/sh", "-c", &script];
    let (child, talk) = Program::new(&args).env("NEXUS_AGENT_KEY", &secret(AGENT)).spawn_talking();
    let _worker = Worker { child, talk };
    for (n, task) in sent.iter().enumerate() {
        let done = model.comes_to(task, "complete").await;
        let whole = format!("task {}\nmore\nend", n + 1);
        assert_eq!((&done["result"], &done["attempts"]), (&json!(whole), &json!(1)));
        let told = model.all_about(task).await;
        assert_eq!(output(&told), whole, "each line once, in order");
        let ends = told.iter().filter(|(kind, _)| kind == "complete").count();
        assert_eq!((ends, told[0].0.as_str()), (1, "acknowledged"), "{told:?}");
    }
    let mut ran: Vec<String> = std::fs::read_to_string(&runs).unwrap().lines().map(str::to_owned).collect();
    ran.sort_unstable();
    sent.sort_unstable();
    assert_eq!(ran, sent, "each ran once");
    assert!(lost.load(Ordering::Relaxed) >= 10, "only {lost:?} answers were lost");
}
