//! Ends of the hub in the worst moment: no update is lost, and none counts twice.

use serde_json::json;

use super::{send, stands, started, updates};
use crate::support::agents::MODEL;
use crate::support::telegram::OPERATOR;
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
