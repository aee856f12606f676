//! Who may do what with tasks: agents their own target's, the trusted any, and the model what its key says.

use serde_json::{Value, json};

use crate::support::agents::{AGENT, ATTIC, MODEL, TARGETS};
use crate::support::{Hub, secret};

const FOR_AGENTS: [&str; 6] = ["ask_operator", "claim_task", "complete_task", "fail_task", "peek_tasks", "post_update"];
const FOR_MODELS: [&str; 9] = [
    "answer_task",
    "cancel_task",
    "get_task",
    "list_targets",
    "list_tasks",
    "pull_updates",
    "queue_status",
    "retry_task",
    "send_message",
];

#[tokio::test]
async fn an_agents_key_is_shown_six_tools_and_has_no_others() {
    let hub = Hub::with_agents().await;
    for agent in hub.both(&secret(AGENT)).await {
        assert_eq!(agent.tools().await, FOR_AGENTS);
        for tool in FOR_MODELS.into_iter().chain(["run_command", "get_session_info", "approve_writes", "get_audit_log"])
        {
            let refused = agent.send("tools/call", json!({ "name": tool, "arguments": {} })).await;
            assert_eq!(refused.code(), -32602, "{tool}: {refused:?}");
        }
    }
    for model in hub.both(&secret(MODEL)).await {
        let tools = model.tools().await;
        assert!(FOR_MODELS.iter().all(|tool| tools.contains(&(*tool).to_owned())), "{tools:?}");
        assert!(FOR_AGENTS.iter().all(|tool| !tools.contains(&(*tool).to_owned())), "{tools:?}");
    }
    hub.audit_has("call send_message unknown_tool").await;
}

#[tokio::test]
async fn an_agent_serves_its_own_target_and_sees_nothing_of_others() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let attic = hub.modern(&secret(ATTIC));
    let sent = model.does("send_message", json!({ "message": "Sweep", "target": "attic" })).await;
    let id = sent["id"].as_str().unwrap();
    for tool in ["claim_task", "peek_tasks"] {
        let words = agent.fails(tool, json!({ "target": "attic" })).await;
        assert!(words.contains("this key serves the target `homelab`, and no other"), "{tool}: {words}");
    }
    assert_eq!(agent.does("claim_task", json!({})).await["task"], Value::Null);
    let claim = attic.does("claim_task", json!({ "target": "attic" })).await["task"]["claim"].clone();

    let about = json!({ "task": id, "claim": claim });
    for (tool, more) in [
        ("post_update", json!({ "content": "mine now" })),
        ("complete_task", json!({})),
        ("fail_task", json!({ "reason": "no" })),
        ("ask_operator", json!({ "question": "really?" })),
    ] {
        let mut arguments = about.clone();
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let words = agent.fails(tool, arguments).await;
        assert!(words.contains(&format!("{id} is no task of `homelab`")), "{tool}: {words}");
    }
    // The name of a claim is no key to another target's task.
    assert_eq!(agent.does("peek_tasks", json!({ "claims": [claim] })).await["running"], json!([]));
    assert_eq!(agent.does("claim_task", json!({ "claim": claim })).await["task"], Value::Null);
    assert_eq!(model.does("get_task", json!({ "id": id })).await["status"], "acknowledged");
    let row = hub.audit_has("call claim_task allowed refused").await;
    assert_eq!(row.principal.as_deref(), Some(AGENT));
}

#[tokio::test]
async fn a_trusted_key_may_serve_any_target_and_a_sandboxed_one_none() {
    let hub = Hub::start()
        .yaml(TARGETS)
        .key("guest", "level: sandboxed")
        .key("boxed", "level: sandboxed, target: attic")
        .await;
    let (trusted, guest, boxed) = (hub.modern(&hub.key), hub.modern(&secret("guest")), hub.modern(&secret("boxed")));
    for (tool, arguments) in [
        ("claim_task", json!({})),
        ("peek_tasks", json!({})),
        ("post_update", json!({ "content": "hello" })),
        ("complete_task", json!({ "task": "t1" })),
        ("fail_task", json!({ "task": "t1", "reason": "no" })),
        ("ask_operator", json!({ "task": "t1", "question": "who?" })),
    ] {
        let words = guest.fails(tool, arguments).await;
        assert!(words.contains("a sandboxed key serves no target") && words.contains("--target"), "{tool}: {words}");
    }
    assert_eq!(boxed.does("claim_task", json!({})).await["task"], Value::Null);
    assert_eq!(boxed.tools().await, FOR_AGENTS);
    for target in ["homelab", "attic"] {
        trusted.does("claim_task", json!({ "target": target })).await;
        let noted = trusted.does("post_update", json!({ "content": "hello", "target": target, "kind": "note" })).await;
        assert!(noted["update"].is_u64() && noted.get("task").is_none(), "{noted}");
    }
    let words = trusted.fails("claim_task", json!({ "target": "cellar" })).await;
    assert!(words.contains("there is no target `cellar`") && words.contains("attic, homelab"), "{words}");
}

#[tokio::test]
async fn a_message_runs_unasked_only_with_a_key_that_says_so() {
    let hub = Hub::with_agents().key("asks", "level: trusted").key("guest", "level: sandboxed").await;
    for client in hub.both(&secret("asks")).await {
        let message = "Check the disks\nand the tapes";
        let result =
            client.call("send_message", json!({ "message": message, "target": "attic", "priority": "high" })).await;
        assert_eq!(result["isError"], true);
        let waits = &result["structuredContent"];
        assert_eq!(waits["status"], "approval_required", "{waits}");
        assert_eq!(waits["action"]["summary"], "send to attic, priority high: Check the disks ⏎ and the tapes");
        let refused = hub.modern(&secret("guest")).call("send_message", json!({ "message": message })).await;
        assert_eq!(refused["structuredContent"]["error"]["why"], "level_too_low", "{refused}");
        // What cannot be sent is not asked about.
        let words = client.fails("send_message", json!({ "message": message, "deadline": "soon" })).await;
        assert!(words.contains("a deadline is a time to come"), "{words}");
        assert_eq!(client.does("queue_status", json!({})).await["pending"], 0);
    }
    let asked = hub.modern_asked(&secret("asks"));
    let yes = crate::support::decided("once");
    let (sent, questions) = asked.call_answering("send_message", json!({ "message": "Check the disks" }), &yes).await;
    assert_eq!((&sent["structuredContent"]["queued"], questions.len()), (&json!(true), 1));
    hub.modern(&secret(MODEL)).sends("Check the tapes").await;
    let row = hub.audit_has("call send_message allowed ok").await;
    assert_eq!(row.principal.as_deref(), Some("asks"));
    hub.audit_reaches(|rows| rows.iter().any(|row| row.how.as_deref() == Some("approved_by_key"))).await;
}

#[tokio::test]
async fn which_task_is_meant_must_be_clear() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let words = agent.fails("complete_task", json!({})).await;
    assert!(words.contains("no task of `homelab` is running that this key has claimed"), "{words}");
    // What belongs to no task is still heard.
    assert_eq!(agent.does("post_update", json!({ "content": "I am here" })).await["stop"], false);
    let ids = [model.sends("One").await, model.sends("Two").await];
    for _ in &ids {
        agent.does("claim_task", json!({})).await;
    }
    let words = agent.fails("post_update", json!({ "content": "half done" })).await;
    assert!(ids.iter().all(|id| words.contains(id)) && words.contains("which task?"), "{words}");
    // A trusted key that has not claimed it does not speak for who has.
    let words = hub.modern(&hub.key).fails("complete_task", json!({ "task": ids[0] })).await;
    assert!(words.contains("belongs to somebody else"), "{words}");
    for id in &ids {
        assert_eq!(agent.does("complete_task", json!({ "task": id })).await["status"], "complete");
    }
}

#[tokio::test]
async fn bad_arguments_are_refused_with_words_that_help() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let long = "x".repeat(100_001);
    for (tool, arguments, words) in [
        ("send_message", json!({}), "message"),
        ("send_message", json!({ "message": " \n " }), "it is empty"),
        ("send_message", json!({ "message": long }), "at most 100000 fit"),
        ("send_message", json!({ "message": "a\u{0}b" }), "NUL"),
        ("send_message", json!({ "message": "x", "target": "cellar" }), "known targets: attic, homelab"),
        ("send_message", json!({ "message": "x", "target": "" }), "known targets"),
        ("send_message", json!({ "message": "x", "priority": "highest" }), "urgent"),
        ("send_message", json!({ "message": "x", "deadline": "2020-01-01" }), "in the past"),
        ("send_message", json!({ "message": "x", "deadline": "99999999999d" }), "a deadline is a time to come"),
        ("send_message", json!({ "message": "x", "max_attempts": 0 }), "1 to 100 times"),
        ("send_message", json!({ "message": "x", "max_attempts": -1 }), "max_attempts"),
        ("send_message", json!({ "message": "x", "idempotency_key": "" }), "1 to 200 printable"),
        ("send_message", json!({ "message": "x", "color": "red" }), "color"),
        ("pull_updates", json!({ "cursor": "-1" }), "not a cursor"),
        ("pull_updates", json!({ "cursor": "9999999999999999999999" }), "not a cursor"),
        ("pull_updates", json!({ "limit": 0 }), "1 to 1000"),
        ("pull_updates", json!({ "limit": 1001 }), "1 to 1000"),
        ("pull_updates", json!({ "wait_seconds": 61 }), "0 to 60 seconds"),
        ("pull_updates", json!({ "wait_seconds": -1 }), "wait_seconds"),
        ("pull_updates", json!({ "task": "17x" }), "one looks like t17"),
        ("get_task", json!({ "id": "t999999999999999999999999" }), "one looks like t17"),
        ("get_task", json!({ "id": "t7" }), "there is no task t7"),
        ("get_task", json!({ "id": "t1", "updates": 201 }), "0 to 200"),
        ("list_tasks", json!({ "limit": 0 }), "1 to 200"),
        ("list_tasks", json!({ "status": ["lost"] }), "pending"),
        ("answer_task", json!({ "id": "t7", "answer": "x", "question_id": 1 }), "there is no task t7"),
        ("cancel_task", json!({ "id": "t7" }), "there is no task t7"),
        ("retry_task", json!({ "id": "t7" }), "there is no task t7"),
        ("queue_status", json!({ "target": "cellar" }), "known targets"),
    ] {
        let told = model.fails(tool, arguments.clone()).await;
        assert!(told.contains(words) && told.len() < 5_000, "{tool} {arguments}: {told}");
    }
    let claims: Vec<String> = (0..65).map(|n| n.to_string()).collect();
    for (tool, arguments, words) in [
        ("claim_task", json!({ "lease_seconds": 9 }), "10 to 3600"),
        ("claim_task", json!({ "claim": "a\nb" }), "printable"),
        ("peek_tasks", json!({ "claims": claims }), "at most 64"),
        ("post_update", json!({ "content": "" }), "it is empty"),
        ("post_update", json!({ "content": long }), "at most 100000 fit"),
        ("post_update", json!({ "content": "x", "kind": "complete" }), "note"),
        ("post_update", json!({ "content": "x", "task": "t7" }), "there is no task t7"),
        ("complete_task", json!({ "task": "t7", "exit_code": 1.5 }), "exit_code"),
        ("fail_task", json!({ "task": "t7" }), "reason"),
        ("ask_operator", json!({ "task": "t7", "question": "" }), "it is empty"),
    ] {
        let told = agent.fails(tool, arguments.clone()).await;
        assert!(told.contains(words) && told.len() < 5_000, "{tool} {arguments}: {told}");
    }
    let id = model.sends("Work").await;
    agent.does("claim_task", json!({})).await;
    assert!(agent.fails("ask_operator", json!({})).await.contains("`question_id`"));
    let odd = agent.fails("ask_operator", json!({ "task": id, "question_id": i64::MAX })).await;
    assert!(odd.contains("that question does not wait for an answer ask again with `question`"), "{odd}");
    // Letters that deceive are no trouble, and no trick.
    let sneaky =
        model.does("send_message", json!({ "message": "\u{202e}evil\u{1b}[31m '; DROP TABLE task; --" })).await;
    assert_eq!(sneaky["queued"], true);
    assert_eq!(model.does("queue_status", json!({})).await["pending"], 1);
}
