//! `pull_updates`: nothing is missed, nothing comes twice, and no page is too long.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::agents::{AGENT, ATTIC, MODEL};
use crate::support::{Client, Hub, secret};

/// Says these as updates that belong to no task.
async fn says(agent: &Client, words: &[&str]) {
    for words in words {
        agent.does("post_update", json!({ "content": words })).await;
    }
}

async fn contents(model: &Client, arguments: Value) -> Vec<String> {
    let updates = model.pulls(arguments).await;
    updates.iter().map(|update| update["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_pull_goes_on_where_the_last_one_of_the_key_ended_also_after_a_restart() {
    let mut hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    says(&agent, &["one", "two"]).await;
    assert_eq!(contents(&model, json!({ "limit": 1 })).await, ["one"]);
    // What is read by cursor or time moves nothing.
    assert_eq!(contents(&model, json!({ "cursor": "0" })).await, ["one", "two"]);
    assert_eq!(contents(&model, json!({ "since": "1h" })).await, ["one", "two"]);
    hub.restart().await;
    let (model, agent) = hub.bridge().await;
    says(&agent, &["three"]).await;
    assert_eq!(contents(&model, json!({})).await, ["two", "three"]);
    assert_eq!(contents(&model, json!({})).await, Vec::<String>::new());
    // Every key has a place of its own.
    assert_eq!(contents(&hub.modern(&hub.key), json!({})).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn each_choice_of_target_and_task_has_a_place_of_its_own() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let attic = hub.modern(&secret(ATTIC));
    let id = model.sends("Work").await;
    agent.does("claim_task", json!({})).await;
    agent.does("post_update", json!({ "content": "of the task" })).await;
    says(&attic, &["of the attic"]).await;
    assert_eq!(contents(&model, json!({ "target": "attic" })).await, ["of the attic"]);
    assert_eq!(contents(&model, json!({ "target": "attic" })).await, Vec::<String>::new());
    assert_eq!(contents(&model, json!({ "task": id })).await[1..], ["of the task"]);
    assert_eq!(contents(&model, json!({})).await[1..], ["of the task", "of the attic"]);
    for (wrong, words) in [(json!({ "task": "t99" }), "there is no task t99"), (json!({ "target": "x" }), "homelab")] {
        let told = model.fails("pull_updates", wrong).await;
        assert!(told.contains(words), "{told}");
    }
}

#[tokio::test]
async fn cursors_lead_through_all_updates_without_a_gap() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let said: Vec<String> = (0..7).map(|n| format!("line {n}")).collect();
    says(&agent, &said.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (mut cursor, mut heard) = ("0".to_owned(), Vec::new());
    loop {
        let page = model.does("pull_updates", json!({ "cursor": cursor, "limit": 3 })).await;
        assert_eq!(page["from_cursor"], json!(cursor));
        let updates = page["updates"].as_array().unwrap();
        heard.extend(updates.iter().map(|update| update["content"].as_str().unwrap().to_owned()));
        page["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
        assert_eq!(page["more"], heard.len() < said.len(), "{page}");
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(heard, said);
    let end = model.does("pull_updates", json!({ "cursor": cursor })).await;
    assert_eq!((&end["updates"], &end["next_cursor"]), (&json!([]), &json!(cursor)));
}

#[tokio::test]
async fn since_takes_a_time_of_any_zone_and_leads_on_to_what_comes_later() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    says(&agent, &["first"]).await;
    says(&agent, &["second"]).await;
    let updates = model.pulls(json!({ "since": "2020-01-01T00:00:00Z" })).await;
    assert_eq!(updates.len(), 2);
    let second: Timestamp = updates[1]["created_at"].as_str().unwrap().parse().unwrap();
    let zoned = second.display_with_offset(jiff::tz::offset(2)).to_string();
    assert!(contents(&model, json!({ "since": zoned })).await.contains(&"second".to_owned()), "{zoned}");
    let later = second.checked_add(SignedDuration::from_mins(10)).unwrap().to_string();
    let none = model.does("pull_updates", json!({ "since": later })).await;
    assert_eq!((&none["updates"], &none["more"]), (&json!([]), &json!(false)));
    says(&agent, &["third"]).await;
    assert_eq!(contents(&model, json!({ "cursor": none["next_cursor"] })).await, ["third"]);
    let words = model.fails("pull_updates", json!({ "since": "yesterday" })).await;
    assert!(words.contains("2026-01-31T12:00:00Z"), "{words}");
}

#[tokio::test]
async fn a_page_is_bounded_and_a_long_update_can_be_read_whole() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let long = "long ".repeat(19_999);
    for n in 0..8 {
        agent.does("post_update", json!({ "content": format!("{n}{long}") })).await;
    }
    let page = model.does("pull_updates", json!({})).await;
    let updates = page["updates"].as_array().unwrap();
    assert!(updates.len() < 8 && page["more"] == true && page.to_string().len() < 130_000, "{}", updates.len());
    let first = updates[0]["content"].as_str().unwrap();
    assert!(first.contains("[cut: 20000 of ") && first.contains("cursor=\"0\" and limit=1"), "{first}");
    let whole = contents(&model, json!({ "cursor": "0", "limit": 1 })).await;
    assert_eq!(whole[0], format!("0{long}").trim_end());
    let mut seen = updates.len();
    while seen < 8 {
        let more = model.pulls(json!({})).await.len();
        assert!(more > 0);
        seen += more;
    }
}

#[tokio::test]
async fn secrets_reach_the_agent_and_nobody_else() {
    let hub = Hub::with_agents().await;
    let (model, agent) = (hub.modern(&secret(MODEL)), hub.legacy(&secret(AGENT)).await);
    let id = model.sends("log in with password=hunter2hunter2").await;
    let task = agent.does("claim_task", json!({})).await["task"].clone();
    assert_eq!(task["content"], "log in with password=hunter2hunter2");
    agent.does("post_update", json!({ "content": "trying API_TOKEN=swordfish1234" })).await;
    let asked = agent.does("ask_operator", json!({ "question": "is secret=mellon12345 right?" })).await;
    model.answers(&id, "no, password=friend12345").await;
    let heard = agent.does("ask_operator", json!({ "task": id, "question_id": asked["question_id"] })).await;
    assert_eq!(heard["answer"], "no, password=friend12345");
    agent.does("complete_task", json!({ "result": "done with token=gandalf12345" })).await;

    let words = ["hunter2hunter2", "swordfish1234", "mellon12345", "friend12345", "gandalf12345"];
    let told = [
        model.does("get_task", json!({ "id": id })).await,
        model.does("pull_updates", json!({})).await,
        model.does("list_tasks", json!({})).await,
    ];
    for word in words {
        assert!(told.iter().all(|told| !told.to_string().contains(word)), "{word}: {told:?}");
    }
    assert_eq!(told[0]["result"], "done with token=[redacted]");
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.is("call list_tasks allowed ok"))).await;
    for word in words {
        assert!(rows.iter().all(|row| !format!("{row:?}").contains(word)), "{word}");
    }
    // What agents said is kept without; only the two who need them have the others.
    let kept = kept_updates(&hub).await;
    for word in ["swordfish1234", "mellon12345", "gandalf12345"] {
        assert!(!kept.contains(word), "{word}: {kept}");
    }
}

/// All updates as the store has them.
async fn kept_updates(hub: &Hub) -> String {
    use sqlx::ConnectOptions;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(hub.data.join("nexus.db")).read_only(true);
    let mut connection = options.connect().await.unwrap();
    let kept: Vec<String> =
        sqlx::query_scalar("SELECT content FROM task_update ORDER BY seq").fetch_all(&mut connection).await.unwrap();
    assert!(!kept.is_empty());
    kept.join("\n")
}
