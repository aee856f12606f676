//! Ends of the hub in the worst moment: no update is lost, and none counts twice.

use serde_json::json;

use super::{send, stands, started, updates, with};
use crate::support::agents::MODEL;
use crate::support::telegram::{OPERATOR, Say, Telegram};
use crate::support::{Hub, secret, signal, within};

/// Kills the hub whenever an update was given out: sometimes before it is stored, sometimes after.
#[tokio::test]
async fn kills_between_fetching_and_confirming_lose_and_double_nothing() {
    let (telegram, mut hub, model) = started().await;
    let id = send(&model, "desk", "Count with me").await;
    let posted = telegram.hears("Count with me").await;
    settled(&hub).await;
    for round in 1..=6 {
        let model = hub.legacy(&secret(MODEL)).await;
        telegram.replies(OPERATOR, OPERATOR, posted.message, &format!("number {round}"));
        match round % 2 {
            // It may be stored by then, or not.
            1 => {
                let given =
                    telegram.reaches("it to be given out", move |state| state.given.contains_key(&(100 + round)));
                given.await;
            }
            _ => drop(updates(&model, json!({ "task": id }), &format!("number {round}")).await),
        }
        signal(hub.pid, rustix::process::Signal::KILL);
        hub.ended().await;
        hub.restart().await;
    }
    let model = hub.legacy(&secret(MODEL)).await;
    telegram.replies(OPERATOR, OPERATOR, posted.message, "number 7");
    let all = updates(&model, json!({ "task": id }), "number 7").await;
    assert_eq!(numbers(&all), (1..=7).map(|nth| format!("number {nth}")).collect::<Vec<_>>());
    assert_eq!(telegram.state().sent.iter().filter(|sent| sent.text.contains("Count with me")).count(), 1);
}

fn numbers(all: &[(String, String)]) -> Vec<&str> {
    all.iter().map(|(_, content)| content.as_str()).filter(|said| said.starts_with("number")).collect()
}

#[tokio::test]
async fn an_update_that_comes_again_after_its_place_was_forgotten_is_taken_once() {
    let (telegram, mut hub, model) = started().await;
    let id = send(&model, "desk", "Count with me").await;
    let posted = telegram.hears("Count with me").await;
    stands(&model, &id, "acknowledged").await;
    telegram.replies(OPERATOR, OPERATOR, posted.message, "number 1");
    telegram.says(OPERATOR, "/send homelab once only");
    telegram.hears("for homelab").await;
    updates(&model, json!({ "task": id }), "number 1").await;
    hub.stop().await;
    forget(&hub, "telegram:offset:%").await;
    telegram.give_again(&[101, 102]);
    hub.restart().await;
    telegram.reaches("both to come again", |state| state.given[&102] >= 2 && state.waiting.is_empty()).await;
    let model = hub.legacy(&secret(MODEL)).await;
    telegram.replies(OPERATOR, OPERATOR, posted.message, "number 2");
    let all = updates(&model, json!({ "task": id }), "number 2").await;
    assert_eq!(numbers(&all), ["number 1", "number 2"]);
    let tasks = model.does("list_tasks", json!({ "target": "homelab" })).await;
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 1, "{tasks}");
}

/// The hub has forgotten how far it was, and the last update comes again.
async fn comes_again(telegram: &Telegram, hub: &mut Hub) {
    let number = *telegram.state().given.keys().max().unwrap();
    telegram.reaches("it to be confirmed", |state| state.waiting.is_empty()).await;
    hub.stop().await;
    forget(hub, "telegram:offset:%").await;
    telegram.give_again(&[number]);
    hub.restart().await;
    telegram.reaches("it to come again", move |state| state.given[&number] >= 2 && state.waiting.is_empty()).await;
}

#[tokio::test]
async fn a_decision_that_comes_again_is_made_once() {
    let (telegram, mut hub, model) = started().await;
    let agent = hub.modern(&secret("agent"));
    let id = send(&model, "homelab", "Ask me twice").await;
    agent.does("claim_task", json!({ "wait_seconds": 10 })).await;
    agent.does("ask_operator", json!({ "question": "this one?" })).await;
    telegram.says(OPERATOR, &format!("/answer {id} yes"));
    stands(&model, &id, "in_progress").await;
    agent.does("ask_operator", json!({ "question": "and that one?" })).await;
    comes_again(&telegram, &mut hub).await;
    let model = hub.legacy(&secret(MODEL)).await;
    assert_eq!(stands(&model, &id, "input_required").await["question"], "and that one?");

    telegram.says(OPERATOR, &format!("/cancel {id} not today"));
    stands(&model, &id, "cancelled").await;
    model.does("retry_task", json!({ "id": id })).await;
    comes_again(&telegram, &mut hub).await;
    let model = hub.legacy(&secret(MODEL)).await;
    stands(&model, &id, "pending").await;

    model.does("cancel_task", json!({ "id": id })).await;
    telegram.says(OPERATOR, &format!("/retry {id}"));
    stands(&model, &id, "pending").await;
    model.does("cancel_task", json!({ "id": id })).await;
    comes_again(&telegram, &mut hub).await;
    let model = hub.legacy(&secret(MODEL)).await;
    stands(&model, &id, "cancelled").await;

    // What was not done then is done now.
    telegram.says(OPERATOR, &format!("/retry {id}"));
    stands(&model, &id, "pending").await;
}

#[tokio::test]
async fn a_notice_waits_until_telegram_takes_it_and_no_key_reads_it_away() {
    let telegram = Telegram::start().await;
    let mut hub = with(&telegram).key("telegram", "").await;
    let (model, agent) = (hub.legacy(&secret(MODEL)).await, hub.modern(&secret("agent")));
    let posted = send(&model, "desk", "Stay here").await;
    telegram.hears("Stay here").await;
    assert_eq!(stands(&model, &posted, "acknowledged").await["claimed_by"], "telegram:bot");
    telegram.says(OPERATOR, "/send homelab tell me how it ends");
    telegram.hears("for homelab").await;
    telegram.always("sendMessage", Some(Say::Close));
    let id = agent.does("claim_task", json!({ "wait_seconds": 10 })).await["task"]["id"].as_str().unwrap().to_owned();
    agent.does("complete_task", json!({ "task": id, "result": "well" })).await;
    stands(&model, &id, "complete").await;
    // Somebody who is called as the bot is reads all there is.
    hub.legacy(&secret("telegram")).await.does("pull_updates", json!({ "limit": 1000 })).await;
    signal(hub.pid, rustix::process::Signal::KILL);
    hub.ended().await;
    telegram.always("sendMessage", None);
    hub.restart().await;
    telegram.hears("homelab is done").await;
}

/// Waits until nothing is being posted any more: what Telegram takes while the hub dies may come twice.
async fn settled(hub: &Hub) {
    use sqlx::ConnectOptions as _;
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(hub.data.join("nexus.db")).read_only(true);
    let mut db = file.connect().await.unwrap();
    let busy = "SELECT count(*) FROM remembered WHERE name LIKE 'telegram:posting:%' AND value <> ''";
    let look = async {
        while sqlx::query_scalar::<_, i64>(busy).fetch_one(&mut db).await.unwrap() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("all to be posted", look).await;
}

/// Takes remembered values out of the store of a hub that has ended.
async fn forget(hub: &Hub, like: &str) {
    use sqlx::ConnectOptions as _;
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(hub.data.join("nexus.db")).connect().await.unwrap();
    let gone = sqlx::query("DELETE FROM remembered WHERE name LIKE $1").bind(like).execute(&mut db).await.unwrap();
    assert_eq!(gone.rows_affected(), 1);
}
