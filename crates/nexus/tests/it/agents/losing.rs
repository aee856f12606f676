//! Agents whose task is not theirs any more, and words that were meant for somebody else.

use serde_json::{Value, json};

use crate::support::agents::{AGENT, MODEL};
use crate::support::{Client, Hub, secret};

/// Another key that serves `homelab`.
const SECOND: &str = "second-agent";

async fn claims(agent: &Client) -> String {
    agent.does("claim_task", json!({})).await["task"]["id"].as_str().unwrap().to_owned()
}

/// What `peek_tasks` tells of a task: its status, and whether it is the caller's.
async fn peeks(agent: &Client, id: &str) -> (String, bool) {
    let peeked = agent.does("peek_tasks", json!({})).await;
    let task = peeked["running"].as_array().unwrap().iter().find(|task| task["id"] == id);
    let task = task.unwrap_or_else(|| panic!("{id} is not in {peeked}"));
    (task["status"].as_str().unwrap().to_owned(), task["holds"].as_bool().unwrap())
}

#[tokio::test]
async fn an_agent_hears_no_answer_that_was_meant_for_another() {
    let hub = Hub::with_agents().key(SECOND, "target: homelab").await;
    let (model, first) = hub.bridge().await;
    let second = hub.modern(&secret(SECOND));
    let id = model.sends("Tidy up").await;
    claims(&first).await;
    let asked = first.does("ask_operator", json!({ "question": "Shall I delete /data?" })).await;
    let polls = json!({ "task": id, "question_id": asked["question_id"] });
    model.does("cancel_task", json!({ "id": id })).await;
    assert_eq!(first.does("ask_operator", polls.clone()).await["stop"], true);
    model.does("retry_task", json!({ "id": id })).await;
    let lost = first.fails("ask_operator", polls.clone()).await;
    assert!(lost.contains("stop working on it"), "{lost}");

    assert_eq!(claims(&second).await, id);
    let asked = second.does("ask_operator", json!({ "question": "Shall I print the date?" })).await;
    model.answers(&id, "yes, do it").await;
    let lost = first.fails("ask_operator", polls).await;
    assert!(lost.contains("belongs to somebody else") && !lost.contains("yes, do it"), "{lost}");
    let heard = second.does("ask_operator", json!({ "task": id, "question_id": asked["question_id"] })).await;
    assert_eq!((&heard["answer"], &heard["stop"]), (&json!("yes, do it"), &json!(false)));

    assert_eq!(peeks(&first, &id).await, ("in_progress".to_owned(), false), "it is another's now");
    assert_eq!(peeks(&second, &id).await, ("in_progress".to_owned(), true));
}

#[tokio::test]
async fn an_agent_whose_task_was_cancelled_hears_of_it_whatever_it_calls() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Work").await;
    claims(&agent).await;
    assert_eq!(peeks(&agent, &id).await, ("acknowledged".to_owned(), true));
    model.does("cancel_task", json!({ "id": id })).await;
    let posted = agent.does("post_update", json!({ "content": "half done" })).await;
    assert_eq!((&posted["task"], &posted["status"]), (&json!(id), &json!("cancelled")));
    assert_eq!(posted["stop"], true);
    assert_eq!(peeks(&agent, &id).await, ("cancelled".to_owned(), false));
    let asked = agent.does("ask_operator", json!({ "question": "Shall I go on?" })).await;
    assert_eq!((&asked["task"], &asked["stop"]), (&json!(id), &json!(true)));
    let ended = agent.does("complete_task", json!({ "result": "done after all" })).await;
    assert_eq!((&ended["task"], &ended["status"]), (&json!(id), &json!("cancelled")), "it stays so");
    // The next one is spoken of, and not the last.
    let next = model.sends("More work").await;
    claims(&agent).await;
    let posted = agent.does("post_update", json!({ "content": "on it" })).await;
    assert_eq!((&posted["task"], &posted["stop"]), (&json!(next), &json!(false)));
}

#[tokio::test]
async fn what_is_done_when_its_time_is_over_is_taken_and_the_agent_hears_so() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let sent = model.does("send_message", json!({ "message": "Be quick", "deadline": "2s" })).await;
    let id = sent["id"].as_str().unwrap();
    let claim = agent.does("claim_task", json!({ "wait_seconds": 1 })).await["task"]["claim"].clone();
    hub.has_tasks(&json!({ "pending": 0, "in_progress": 0, "dead": 1 })).await;
    assert_eq!(peeks(&agent, id).await, ("dead".to_owned(), false));
    for arguments in [json!({ "content": "half done" }), json!({ "content": "half done", "claim": claim })] {
        let posted = agent.does("post_update", arguments).await;
        assert_eq!((&posted["task"], &posted["status"]), (&json!(id), &json!("dead")));
        assert_eq!(posted["stop"], true);
    }
    let ended = agent.does("complete_task", json!({ "result": "all fine" })).await;
    assert_eq!((&ended["task"], &ended["status"]), (&json!(id), &json!("complete")));
    assert_eq!(model.does("get_task", json!({ "id": id })).await["result"], "all fine");
    // What an agent has ended itself is over for it.
    let posted = agent.does("post_update", json!({ "content": "I am here" })).await;
    assert_eq!((posted.get("task"), &posted["stop"]), (None, &json!(false)), "{posted}");
    assert_eq!(agent.does("peek_tasks", json!({})).await["running"], json!([]));
    assert!(agent.fails("complete_task", json!({})).await.contains("no task of `homelab` is running"));
}

#[tokio::test]
async fn what_was_approved_for_one_question_answers_no_other() {
    let yaml = "agents: { targets: { homelab: { worker: {} } } }\napproval: { mode: operator }\n";
    let hub = Hub::start().yaml(yaml).key(MODEL, "approved: [send_message]").key(AGENT, "target: homelab").await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Tidy up").await;
    claims(&agent).await;
    let first = agent.does("ask_operator", json!({ "question": "Shall I print the date?" })).await;
    let answer = json!({ "id": id, "answer": "yes", "question_id": first["question_id"] });
    let waits = model.call("answer_task", answer.clone()).await["structuredContent"].clone();
    let summary = waits["action"]["summary"].as_str().unwrap_or_else(|| panic!("{waits}"));
    assert!(summary.contains("it asks: “Shall I print the date?”"), "{summary}");
    hub.nexus(&["approve", waits["code"].as_str().unwrap(), "--once"]).await.ok();

    hub.nexus(&["tasks", "answer", &id, "no"]).await.ok();
    let second = agent.does("ask_operator", json!({ "question": "Shall I delete /data?" })).await;
    let late = model.fails("answer_task", answer.clone()).await;
    assert!(late.contains("another question") && late.contains("Shall I delete /data?"), "{late}");
    let polls = json!({ "task": id, "question_id": second["question_id"] });
    assert_eq!(agent.does("ask_operator", polls).await["answered"], false);
    // Whoever is asked about it from now on reads that it is over.
    let waits = model.call("answer_task", answer).await["structuredContent"].clone();
    let summary = waits["action"]["summary"].as_str().unwrap_or_else(|| panic!("{waits}"));
    let over = format!("no question {} of it waits", first["question_id"]);
    assert!(summary.contains(&over) && !summary.contains("delete"), "{summary}");
}

#[tokio::test]
async fn half_a_secret_is_shown_to_nobody_and_what_it_hides_to_who_decides() {
    let yaml = "agents: { targets: { homelab: { worker: {} } } }\napproval: { mode: operator }\n";
    let hub = Hub::start().yaml(yaml).key(MODEL, "approved: [cancel_task]").key(AGENT, "target: homelab").await;
    let model = hub.modern(&secret(MODEL));
    let mut told = Vec::new();
    // The secret stands where a long message is cut.
    for place in [980, 985, 1_140, 1_145, 1_150] {
        let message = format!("{} https://me:hunter2hunter2@host/ and more", "x".repeat(place));
        for (tool, arguments) in [
            ("send_message", json!({ "message": message })),
            ("answer_task", json!({ "id": "t1", "answer": message, "question_id": 1 })),
        ] {
            let waits = model.call(tool, arguments).await["structuredContent"].clone();
            assert_eq!(waits["status"], "approval_required", "{waits}");
            let summary = waits["action"]["summary"].as_str().unwrap();
            assert!(summary.ends_with('…') || summary.contains("[redacted]"), "{summary}");
            told.push(waits.to_string());
        }
    }
    told.push(hub.nexus(&["pending", "--json"]).await.ok());
    let asked = |rows: &[crate::support::AuditRow]| rows.iter().filter(|row| row.tool.is_some()).count() >= 10;
    told.extend(hub.audit_reaches(asked).await.iter().map(|row| format!("{row:?}")));
    assert!(told.iter().all(|told| !told.contains("hunter")), "{told:#?}");

    let message = format!("Cookie: sid=hunter2; rm -rf /srv {}", "x".repeat(2_000));
    let waits = model.call("send_message", json!({ "message": message })).await["structuredContent"].clone();
    let code = waits["code"].as_str().unwrap();
    let pending: Value = serde_json::from_str(&hub.nexus(&["pending", "--json"]).await.ok()).unwrap();
    let pending = pending.as_array().unwrap().iter().find(|one| one["code"] == code).unwrap().to_string();
    assert!(pending.contains("; rm -rf /srv xxx"), "who decides sees what is wanted: {pending}");
}
