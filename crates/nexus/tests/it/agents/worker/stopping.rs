//! Cancelled, stopped, out of time: a command ends at once, or is ended.

use serde_json::json;

use super::{Worker, number_in};
use crate::support::{Hub, is_alive, until};

/// Ends by itself when it is interrupted, and says so.
const POLITE: &str = "trap 'echo interrupted; exit 130' INT; echo begun; while :; do sleep 0.05; done";

#[tokio::test]
async fn a_cancelled_task_is_interrupted_at_once_and_the_next_one_begins() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    // The grace is so long that only the signal itself can have ended it within the test's patience.
    let worker =
        Worker::with(&hub, &["--grace", "10m"], &format!("case $(cat) in quick) echo quick; exit;; esac; {POLITE}"));
    let task = model.sends("hang").await;
    let next = model.sends("quick").await;
    model.hears(&task, "begun").await;
    model.does("cancel_task", json!({ "id": task, "reason": "enough of it" })).await;

    let said = model.hears(&task, "the command was stopped").await;
    let (kind, words) = said.last().unwrap();
    assert_eq!(kind, "note");
    assert!(words.starts_with("the command was stopped, it is cancelled"), "{words}");
    assert!(words.ends_with("enough of it: exit code 130"), "{words}");
    assert!(said.iter().any(|(_, words)| words == "interrupted"), "its last words are kept: {said:?}");
    assert_eq!(model.does("get_task", json!({ "id": task })).await["status"], "cancelled");
    assert_eq!(model.comes_to(&next, "complete").await["result"], "quick");
    worker.says(&format!("{task} stopped")).await;
}

#[tokio::test]
async fn a_message_that_says_stop_ends_what_runs() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let _worker = Worker::start(&hub, POLITE);
    let task = model.sends("hang").await;
    model.hears(&task, "begun").await;
    let stop = model.does("send_message", json!({ "message": "STOP" })).await;
    assert_eq!(stop["stopped"], json!([task]), "{stop}");
    model.hears(&task, "the command was stopped").await;
    assert_eq!(model.does("get_task", json!({ "id": task })).await["status"], "cancelled");
    assert_eq!(model.does("get_task", json!({ "id": stop["id"] })).await["status"], "complete");
}

#[tokio::test]
async fn an_urgent_message_ends_what_runs_and_comes_next() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let _worker = Worker::start(&hub, &format!("w=$(cat); case $w in URGENT*) echo \"$w\"; exit;; esac; {POLITE}"));
    let task = model.sends("hang").await;
    let waiting = model.sends("hang as well").await;
    model.hears(&task, "begun").await;
    let urgent = model.sends("URGENT the disk is full").await;
    assert_eq!(model.comes_to(&urgent, "complete").await["result"], "URGENT the disk is full");
    assert_eq!(model.does("get_task", json!({ "id": task })).await["status"], "cancelled");
    model.hears(&waiting, "begun").await;
}

#[tokio::test]
async fn a_task_whose_deadline_passes_is_dead_and_its_command_is_stopped() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let _worker = Worker::start(&hub, POLITE);
    let sent = model.does("send_message", json!({ "message": "hang", "deadline": "2s" })).await;
    let task = sent["id"].as_str().unwrap();
    let said = model.hears(task, "the command was stopped").await;
    assert!(said.iter().any(|(kind, _)| kind == "dead"), "{said:?}");
    assert_eq!(model.does("get_task", json!({ "id": task })).await["status"], "dead");
}

#[tokio::test]
async fn what_ignores_every_signal_is_killed_with_all_its_children() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let (leader, child) = (hub.path("leader"), hub.path("child"));
    let stubborn = format!(
        "trap '' INT TERM; echo $$ > {}; sh -c 'trap \"\" INT TERM; echo $$ > {}; while :; do sleep 1; done' & echo begun; while :; do sleep 1; done",
        leader.display(),
        child.display()
    );
    let _worker = Worker::start(&hub, &stubborn);
    let task = model.sends("hang").await;
    let (leader, child) = (number_in(&leader).await, number_in(&child).await);
    assert!(is_alive(leader) && is_alive(child));
    model.does("cancel_task", json!({ "id": task })).await;
    until("the end of both", || !is_alive(leader) && !is_alive(child)).await;
    let said = model.hears(&task, "the command was stopped").await;
    assert!(said.last().unwrap().1.ends_with("killed by SIGKILL"), "{said:?}");
}

#[tokio::test]
async fn a_cancelled_flood_ends_too() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let _worker = Worker::start(&hub, "case $(cat) in flood) exec yes;; esac; echo fine");
    let task = model.sends("flood").await;
    let next = model.sends("something else").await;
    model.hears(&task, "y\ny").await;
    model.does("cancel_task", json!({ "id": task })).await;
    assert_eq!(model.comes_to(&next, "complete").await["result"], "fine");
}
