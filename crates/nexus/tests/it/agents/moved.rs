//! Targets that nexus.yaml speaks of otherwise than when their tasks were taken, or not at all.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::telegram::{send, stands, updates, with};
use crate::support::agents::{ATTIC, MODEL};
use crate::support::telegram::{GROUP, OPERATOR, Say, Telegram};
use crate::support::webhook::{self, Receiver, SECRET};
use crate::support::{Client, Hub, LOOK_AGAIN, Setup, secret, signal, within};

/// With workers for all targets, over the data folder of a hub that has ended.
async fn with_workers(old: &Hub) -> Hub {
    Hub::with_agents().data(&old.data).await
}

/// Tasks for `attic`, the default, are posted.
fn hooked(receiver: &Receiver) -> Setup {
    let attic = format!("attic: {{ webhook: {{ url: '{}' }} }}", receiver.url());
    let yaml = format!("agents: {{ default: attic, targets: {{ {attic}, homelab: {{ worker: {{}} }} }} }}");
    Hub::start().yaml(&yaml).agent_keys().env("NEXUS_WEBHOOK_SECRET", SECRET)
}

async fn claims(hub: &Hub) -> Value {
    hub.modern(&secret(ATTIC)).does("claim_task", json!({ "wait_seconds": 20 })).await["task"].clone()
}

async fn channels(model: &Client) -> Value {
    model.does("queue_status", json!({})).await["channels"].clone()
}

async fn until_deaf(model: &Client) {
    let look = async {
        while channels(model).await[0]["trouble"].is_null() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    within("the bot to be deaf", look).await;
}

#[tokio::test]
async fn a_chat_that_became_a_worker_gives_back_what_nobody_got_and_the_rest_is_given_up_in_words() {
    let telegram = Telegram::start().await;
    let mut old = with(&telegram).await;
    let model = old.legacy(&secret(MODEL)).await;
    let once = send(&model, "attic", "sweep the floor").await;
    let twice = json!({ "target": "attic", "message": "count the boxes", "max_attempts": 2 });
    let twice = model.does("send_message", twice).await["id"].as_str().unwrap().to_owned();
    for (id, words) in [(&once, "sweep the floor"), (&twice, "count the boxes")] {
        let posted = telegram.hears(words).await;
        telegram.replies(OPERATOR, GROUP, posted.message, "on my way");
        updates(&model, json!({ "task": id }), "on my way").await;
    }
    telegram.always("sendMessage", Some(Say::Hang));
    let unposted = send(&model, "attic", "lock the door").await;
    stands(&model, &unposted, "acknowledged").await;
    signal(old.pid, Signal::KILL);
    old.ended().await;

    let hub = with_workers(&old).await;
    let model = hub.legacy(&secret(MODEL)).await;
    let dead = stands(&model, &once, "dead").await;
    assert_eq!(dead["reason"], "it was carried by telegram:bot, and attic is reached by worker now");
    assert_eq!((&claims(&hub).await["id"], &claims(&hub).await["id"]), (&json!(twice), &json!(unposted)));
    assert_eq!(stands(&model, &twice, "acknowledged").await["attempts"], 2);
    assert_eq!(stands(&model, &unposted, "acknowledged").await["attempts"], 1, "nobody had got it");
    let told = format!("{once} is dead: it was carried by telegram:bot");
    hub.audit_reaches(move |rows| {
        rows.iter().any(|row| row.event == "task" && row.detail.as_deref().is_some_and(|said| said.contains(&told)))
    })
    .await;
    assert_eq!(channels(&model).await, json!([]), "there is no bot any more");
}

#[tokio::test]
async fn a_webhook_that_became_a_worker_gives_back_what_it_did_not_take() {
    let receiver = Receiver::start().await;
    let mut old = hooked(&receiver).await;
    let model = old.modern(&secret(MODEL));
    let taken = model.sends("sweep the floor").await;
    receiver.hears("the first", |heard| heard.messages.len() == 1).await;
    old.posted("attic", "m1", &json!({ "task": taken, "kind": "progress", "content": "half" })).await;
    receiver.always(webhook::Say::Status(500, "oh no"));
    let waiting = model.sends("count the boxes").await;
    receiver.hears("the second", |heard| heard.messages.len() == 2).await;
    old.stop().await;

    let hub = with_workers(&old).await;
    let model = hub.modern(&secret(MODEL));
    let dead = stands(&model, &taken, "dead").await;
    assert_eq!(dead["reason"], "it was carried by webhook:attic, and attic is reached by worker now");
    assert_eq!(claims(&hub).await["id"], json!(waiting));
    assert_eq!(stands(&model, &waiting, "acknowledged").await["attempts"], 1);
}

#[tokio::test]
async fn a_target_that_is_gone_keeps_its_tasks_and_the_operator_sees_and_ends_them() {
    let receiver = Receiver::start().await;
    let mut old = hooked(&receiver).await;
    let model = old.modern(&secret(MODEL));
    let id = model.sends("sweep the floor").await;
    receiver.hears("the task", |heard| heard.messages.len() == 1).await;
    old.posted("attic", "m1", &json!({ "task": id, "kind": "progress", "content": "half" })).await;
    old.stop().await;

    let hub = Hub::start().yaml("agents: { targets: { homelab: { worker: {} } } }").data(&old.data).await;
    let shown = hub.nexus(&["tasks"]).await;
    assert!(shown.stdout.contains("sweep the floor") && shown.stdout.contains("in_progress"), "{shown:?}");
    assert!(shown.stderr.contains("attic is no longer in nexus.yaml"), "{shown:?}");
    assert!(!shown.stderr.contains("The attic"), "it is no channel: {shown:?}");
    assert!(hub.nexus(&["tasks", "cancel", &id]).await.stderr.contains("t1 is cancelled."));
    assert_eq!(hub.nexus(&["tasks"]).await.stderr, "");
}

#[tokio::test]
async fn the_operator_is_told_of_a_deaf_bot() {
    let telegram = Telegram::start().await;
    let conflict = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
    telegram.always("getUpdates", Some(Say::Error(409, conflict, json!({}))));
    let hub = with(&telegram).await;
    let model = hub.legacy(&secret(MODEL)).await;
    let id = send(&model, "desk", "label the cables").await;
    until_deaf(&model).await;
    let line = "The telegram bot is deaf: another program asks Telegram";
    let shown = hub.nexus(&["tasks"]).await;
    assert!(shown.stdout.contains(&id) && shown.stderr.contains(line), "{shown:?}");
    assert!(!shown.stderr.contains("desk cannot be reached"), "said once: {shown:?}");
    let shown = hub.nexus(&["tasks", "--target", "desk"]).await;
    assert!(shown.stderr.contains("desk cannot be reached: another program asks Telegram"), "{shown:?}");
    assert_eq!(hub.nexus(&["tasks", "--target", "homelab"]).await.stderr, "There are no tasks.\n");
}
