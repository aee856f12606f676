//! The tools about tasks, from both sides of the bridge.

use serde_json::{Value, json};

use crate::record::postgres::Database;
use crate::support::agents::{AGENT, MODEL, told};
use crate::support::{Client, Hub, secret};

/// Claims the next task.
async fn claimed(agent: &Client) -> Value {
    let claimed = agent.does("claim_task", json!({})).await;
    assert!(claimed["task"].is_object(), "{claimed}");
    claimed["task"].clone()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(kind, content)| ((*kind).to_owned(), (*content).to_owned())).collect()
}

/// A task from its beginning to its end, seen from both sides.
async fn walk(model: &Client, agent: &Client) {
    let sent = model.does("send_message", json!({ "message": "Check the disks" })).await;
    let id = sent["id"].as_str().unwrap().to_owned();
    assert_eq!(sent, json!({ "queued": true, "id": id, "target": "homelab", "position": 1 }));

    let task = claimed(agent).await;
    assert_eq!((&task["id"], &task["content"]), (&json!(id), &json!("Check the disks")));
    assert_eq!((&task["attempt"], &task["max_attempts"], &task["sender"]), (&json!(1), &json!(1), &json!(MODEL)));
    let posted = agent.does("post_update", json!({ "content": "looking" })).await;
    assert_eq!(
        (&posted["task"], &posted["status"], &posted["stop"]),
        (&json!(id), &json!("in_progress"), &json!(false))
    );

    let asked = agent.does("ask_operator", json!({ "question": "Which disk?" })).await;
    assert_eq!((&asked["answered"], &asked["status"]), (&json!(false), &json!("input_required")));
    assert_eq!(model.does("get_task", json!({ "id": id })).await["question"], "Which disk?");
    let answered = model.answers(&id, "sda").await;
    assert_eq!((&answered["id"], &answered["status"]), (&json!(id), &json!("in_progress")));
    let heard = agent.does("ask_operator", json!({ "task": id, "question_id": asked["question_id"] })).await;
    assert_eq!((&heard["answered"], &heard["answer"]), (&json!(true), &json!("sda")));

    let ended = agent.does("complete_task", json!({ "task": id, "result": "all fine", "exit_code": 0 })).await;
    assert_eq!((&ended["task"], &ended["status"]), (&json!(id), &json!("complete")));
    let updates = model.pulls(json!({})).await;
    let heard = told(&updates);
    let expected = [
        ("acknowledged", "claimed by agent"),
        ("progress", "looking"),
        ("question", "Which disk?"),
        ("answer", "sda"),
        ("complete", "all fine"),
    ];
    assert_eq!(heard, pairs(&expected));
    assert!(updates.iter().all(|update| update["message_id"] == json!(id) && update["target"] == "homelab"));

    let whole = model.does("get_task", json!({ "id": id })).await;
    for time in ["created_at", "acknowledged_at", "started_at", "completed_at"] {
        assert!(whole[time].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}: {whole}");
    }
    assert_eq!(
        (&whole["result"], &whole["exit_code"], &whole["claimed_by"]),
        (&json!("all fine"), &json!(0), &json!(AGENT))
    );
    assert_eq!(whole["updates"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_task_goes_out_and_all_that_is_said_of_it_comes_back() {
    let hub = Hub::with_agents().await;
    walk(&hub.legacy(&secret(MODEL)).await, &hub.modern(&secret(AGENT))).await;
    walk(&hub.modern(&secret(MODEL)), &hub.legacy(&secret(AGENT)).await).await;
    for told in ["call send_message allowed ok", "call answer_task allowed ok"] {
        let row = hub.audit_has(told).await;
        assert_eq!((row.principal.as_deref(), row.access.as_deref()), (Some(MODEL), Some("write")), "{told}");
        assert_eq!((row.origin.as_deref(), row.how.as_deref()), (Some("agents"), Some("approved_by_key")), "{told}");
    }
    for tool in ["claim_task", "post_update", "ask_operator", "complete_task"] {
        let row = hub.audit_has(&format!("call {tool} allowed ok")).await;
        assert_eq!((row.principal.as_deref(), row.access.as_deref()), (Some(AGENT), Some("read_logged")), "{tool}");
    }
    hub.audit_has("call pull_updates allowed ok").await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_same_message_is_one_task_until_it_is_finished() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Tidy up\nthe attic").await;
    let again = model.does("send_message", json!({ "message": " Tidy up\r\nthe attic\n" })).await;
    let known = json!({ "queued": false, "reason": "duplicate", "id": id, "target": "homelab", "status": "pending" });
    assert_eq!(again, known);
    let elsewhere = model.does("send_message", json!({ "message": "Tidy up\nthe attic", "target": "attic" })).await;
    assert_eq!((&elsewhere["queued"], &elsewhere["target"]), (&json!(true), &json!("attic")));

    claimed(&agent).await;
    let running = model.does("send_message", json!({ "message": "Tidy up\nthe attic" })).await;
    assert_eq!((&running["queued"], &running["status"]), (&json!(false), &json!("acknowledged")));
    agent.does("complete_task", json!({})).await;
    assert_ne!(model.sends("Tidy up\nthe attic").await, id);
}

#[tokio::test]
async fn a_message_with_a_key_is_sent_once_whatever_it_says() {
    let hub = Hub::with_agents().key("other", "approved: [send_message]").await;
    let (model, agent) = hub.bridge().await;
    let keyed = |message: &str| json!({ "message": message, "idempotency_key": "night 17" });
    let id = model.does("send_message", keyed("Back up")).await["id"].clone();
    claimed(&agent).await;
    agent.does("complete_task", json!({ "result": "done" })).await;
    let again = model.does("send_message", keyed("Back up, please")).await;
    assert_eq!((&again["queued"], &again["id"], &again["status"]), (&json!(false), &id, &json!("complete")));
    let other = hub.modern(&secret("other")).does("send_message", keyed("Back up")).await;
    assert_eq!(other["queued"], true, "the keys of others are their own: {other}");
}

#[tokio::test]
async fn tasks_are_taken_by_priority_and_then_by_age() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    for (message, priority, position) in
        [("one", "normal", 1), ("two", "high", 1), ("three", "normal", 3), ("four", "low", 4), ("five", "urgent", 1)]
    {
        let sent = model.does("send_message", json!({ "message": message, "priority": priority })).await;
        assert_eq!(sent["position"], position, "{message}");
    }
    let peeked = agent.does("peek_tasks", json!({})).await;
    let lines: Vec<&str> =
        peeked["next"].as_array().unwrap().iter().map(|next| next["first_line"].as_str().unwrap()).collect();
    assert_eq!((&peeked["waiting"], lines), (&json!(5), vec!["five", "two", "one", "three", "four"]));
    for message in ["five", "two", "one", "three", "four"] {
        assert_eq!(claimed(&agent).await["content"], message);
    }
    assert_eq!(agent.does("claim_task", json!({})).await, json!({ "task": null, "waiting": 0 }));
}

#[tokio::test]
async fn stop_and_urgent_end_what_is_running_and_the_agent_hears_of_it() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let first = model.sends("A long job").await;
    claimed(&agent).await;
    let urgent = model.does("send_message", json!({ "message": "URGENT the disk is full" })).await;
    assert_eq!((&urgent["stopped"], &urgent["position"]), (&json!([first]), &json!(1)));
    let late = agent.does("post_update", json!({ "task": first, "content": "still at it" })).await;
    assert_eq!((&late["status"], &late["stop"]), (&json!("cancelled"), &json!(true)));
    let peeked = agent.does("peek_tasks", json!({})).await;
    assert_eq!((&peeked["running"][0]["id"], &peeked["running"][0]["holds"]), (&json!(first), &json!(false)));
    let second = claimed(&agent).await["id"].clone();
    assert_eq!(second, urgent["id"]);

    let stop = model.does("send_message", json!({ "message": "STOP" })).await;
    assert_eq!((&stop["position"], &stop["stopped"]), (&json!(0), &json!([second])));
    assert_eq!(model.does("get_task", json!({ "id": stop["id"] })).await["status"], "complete");
    let ended = agent.does("complete_task", json!({ "task": second, "result": "too late" })).await;
    assert_eq!(ended["status"], "cancelled");
    assert_eq!(agent.does("claim_task", json!({})).await["task"], Value::Null);
}

#[tokio::test]
async fn of_very_many_that_a_stop_ends_the_first_are_named() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    for nth in 0..103 {
        model.sends(&format!("Work {nth}")).await;
        claimed(&agent).await;
    }
    let stop = model.does("send_message", json!({ "message": "STOP" })).await;
    assert_eq!((stop["stopped"].as_array().unwrap().len(), &stop["stopped_more"]), (100, &json!(3)), "{stop}");
    assert_eq!(model.does("queue_status", json!({})).await["in_progress"], 0);
}

#[tokio::test]
async fn one_question_waits_at_a_time_and_an_answer_can_say_to_which() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Work").await;
    claimed(&agent).await;
    let asks = |question: &str| agent.does("ask_operator", json!({ "question": question }));
    let first = asks("Which disk?").await["question_id"].clone();
    let early = agent.fails("ask_operator", json!({ "question": "And which node?" })).await;
    for told in ["its question still waits for an answer", &format!("`question_id` {first}")] {
        assert!(early.contains(told), "{early}");
    }
    assert_eq!(model.does("get_task", json!({ "id": id })).await["question_id"], first);
    let answer = |question: &Value| json!({ "id": id, "answer": "sda", "question_id": question });
    model.does("answer_task", answer(&first)).await;
    let second = asks("And which node?").await["question_id"].clone();
    let late = model.fails("answer_task", answer(&first)).await;
    for told in ["another question", "nothing was answered", &format!("`question_id` {second}: “And which node?”")]
    {
        assert!(late.contains(told), "{late}");
    }
    let unsaid = model.fails("answer_task", json!({ "id": id, "answer": "sda" })).await;
    assert!(unsaid.contains("question_id"), "{unsaid}");
    assert_eq!(model.does("answer_task", answer(&second)).await["status"], "in_progress");
}

#[tokio::test]
async fn a_task_that_was_taken_is_told_whatever_else_cannot_be() {
    use sqlx::ConnectOptions as _;
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Work").await;
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(hub.data.join("nexus.db"));
    let mut db = file.connect().await.unwrap();
    // A count that is no number: what waits cannot be told.
    let spoil = "INSERT INTO task_count SELECT home, 'elsewhere', status, priority, 'x' FROM task_count LIMIT 1";
    assert_eq!(sqlx::query(spoil).execute(&mut db).await.unwrap().rows_affected(), 1);
    let reply = agent.does("claim_task", json!({})).await;
    assert_eq!((&reply["task"]["id"], reply.get("waiting")), (&json!(id), None), "{reply}");
}

#[tokio::test]
async fn a_task_is_cancelled_failed_and_done_again() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let waiting = model.sends("Never mind").await;
    let cancelled = model.does("cancel_task", json!({ "id": waiting, "reason": "not needed" })).await;
    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled["reason"].as_str().unwrap().contains("not needed"), "{cancelled}");
    let twice = model.fails("cancel_task", json!({ "id": waiting })).await;
    assert!(twice.contains(&format!("{waiting} is cancelled")), "{twice}");

    let id = model.sends("Mount the tape").await;
    claimed(&agent).await;
    agent.does("fail_task", json!({ "reason": "there is no tape", "exit_code": 3 })).await;
    let failed = model.does("get_task", json!({ "id": id })).await;
    assert_eq!((&failed["status"], &failed["exit_code"]), (&json!("error"), &json!(3)));
    assert!(
        model
            .fails("answer_task", json!({ "id": id, "answer": "look again", "question_id": 1 }))
            .await
            .contains("is error")
    );
    assert_eq!(model.does("retry_task", json!({ "id": id })).await["status"], "pending");
    assert_eq!(claimed(&agent).await["id"], json!(id));

    let dead = model.does("list_tasks", json!({ "status": ["cancelled"] })).await;
    assert_eq!((&dead["tasks"][0]["id"], dead["tasks"].as_array().unwrap().len()), (&json!(waiting), 1));
    assert_eq!(model.does("list_tasks", json!({ "status": [] })).await["tasks"], json!([]));
}

#[tokio::test]
async fn the_status_tells_what_waits_what_runs_and_who_is_there() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let idle = model.does("queue_status", json!({})).await;
    assert_eq!((&idle["pending"], &idle["current_task"], &idle["total_updates"]), (&json!(0), &json!(null), &json!(0)));
    for target in idle["targets"].as_array().unwrap() {
        assert_eq!((&target["deaf"], &target["last_heard"]), (&json!(true), &Value::Null), "{target}");
    }
    model.sends("One").await;
    model.sends("Two").await;
    model.does("send_message", json!({ "message": "Three", "target": "attic" })).await;
    claimed(&agent).await;
    let busy = model.does("queue_status", json!({})).await;
    assert_eq!((&busy["pending"], &busy["in_progress"], &busy["current_task"]), (&json!(2), &json!(1), &json!("One")));
    assert!(busy["oldest_pending_s"].is_u64() && busy["total_updates"] == 1, "{busy}");
    let of = |name: &str| busy["targets"].as_array().unwrap().iter().find(|one| one["target"] == name).unwrap().clone();
    assert_eq!((&of("homelab")["deaf"], &of("homelab")["way"]), (&json!(false), &json!("worker")));
    assert!(of("homelab")["last_heard"].is_string() && of("attic")["deaf"] == true, "{busy}");
    let attic = model.does("queue_status", json!({ "target": "attic" })).await;
    assert_eq!(
        (&attic["pending"], &attic["in_progress"], &attic["current_task"]),
        (&json!(1), &json!(0), &Value::Null)
    );

    hub.has_tasks(&json!({ "pending": 2, "in_progress": 1, "dead": 0 })).await;

    let targets = model.does("list_targets", json!({})).await;
    assert_eq!(targets["default"], "homelab");
    let homelab = &targets["targets"][1];
    assert_eq!(
        (&homelab["description"], &homelab["deaf"]),
        (&json!("the management node"), &json!(false)),
        "{targets}"
    );
}

#[tokio::test]
async fn the_limits_of_a_task_are_its_own_or_else_its_targets() {
    let yaml = "agents: { targets: { homelab: { worker: {}, max_attempts: 3, deadline: 1d }, attic: { worker: {} } } }";
    let hub = Hub::start().yaml(yaml).agent_keys().await;
    let model = hub.modern(&secret(MODEL));
    let limits = async |arguments: Value| {
        let sent = model.does("send_message", arguments).await;
        let task = model.does("get_task", json!({ "id": sent["id"] })).await;
        let time = |name: &str| task[name].as_str().map(|time| time.parse::<jiff::Timestamp>().unwrap());
        let left = time("deadline").map(|deadline| deadline.duration_since(time("created_at").unwrap()).as_hours());
        (left, task["max_attempts"].as_i64().unwrap())
    };
    let own = json!({ "message": "a", "target": "homelab", "deadline": "100h", "max_attempts": 7 });
    // The deadline counts from a moment before the task is kept.
    assert!(matches!(limits(own).await, (Some(99 | 100), 7)));
    assert!(matches!(limits(json!({ "message": "b", "target": "homelab" })).await, (Some(23 | 24), 3)));
    assert_eq!(limits(json!({ "message": "c", "target": "attic" })).await, (None, 1));
    let words = model.fails("send_message", json!({ "message": "d" })).await;
    assert!(words.contains("There is no default target") && words.contains("attic, homelab"), "{words}");
}

#[tokio::test]
async fn who_is_asked_reads_what_the_task_is_about_and_no_secret() {
    let yaml = "agents: { targets: { homelab: { worker: {} } } }\napproval: { mode: operator }\n";
    let hub = Hub::start().yaml(yaml).key(MODEL, "approved: [send_message]").key(AGENT, "target: homelab").await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Clean the disks,\nthe password=hunter2hunter2 is old").await;
    claimed(&agent).await;
    let asked = agent.does("ask_operator", json!({ "question": "Which\u{1b}[31m disk?" })).await;
    for (tool, arguments) in [
        ("answer_task", json!({ "id": id, "answer": "the big one", "question_id": asked["question_id"] })),
        ("cancel_task", json!({ "id": id })),
        ("retry_task", json!({ "id": id })),
    ] {
        let waits = model.call(tool, arguments).await;
        let code = waits["structuredContent"]["code"].as_str().unwrap_or_else(|| panic!("{waits}")).to_owned();
        let pending: Value = serde_json::from_str(&hub.nexus(&["pending", "--json"]).await.ok()).unwrap();
        let pending = pending.as_array().unwrap().iter().find(|one| one["code"] == *code).unwrap().to_string();
        assert!(pending.contains("for homelab, input_required: “Clean the disks, ⏎"), "{pending}");
        assert!(pending.contains("it asks: “Which") && pending.contains(" disk?”"), "{pending}");
        assert!(!pending.contains("hunter2") && !pending.contains("u001b"), "{pending}");
    }
    // What is not there has no background, and is a question all the same.
    let waits = model.call("cancel_task", json!({ "id": "t99" })).await;
    assert!(waits["structuredContent"]["code"].is_string(), "{waits}");
}

#[tokio::test]
async fn what_a_target_left_behind_that_is_no_longer_there_is_still_seen() {
    let mut before = Hub::with_agents().await;
    let model = before.modern(&secret(MODEL));
    let sent = model.does("send_message", json!({ "message": "Sweep", "target": "attic" })).await;
    before.stop().await;
    let yaml = "agents: { targets: { homelab: { worker: {} } } }";
    let hub = Hub::start().yaml(yaml).key(MODEL, "approved: [cancel_task]").data(&before.data).await;
    let model = hub.modern(&secret(MODEL));
    let status = model.does("queue_status", json!({})).await;
    let left = &status["targets"][0];
    assert_eq!((&left["target"], &left["way"], &left["pending"]), (&json!("attic"), &json!("removed"), &json!(1)));
    assert_eq!(left["deaf"], true);
    assert_eq!(model.does("cancel_task", json!({ "id": sent["id"] })).await["status"], "cancelled");
    assert_eq!(model.does("queue_status", json!({})).await["targets"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_hub_without_targets_says_what_to_do() {
    let hub = Hub::start().key(MODEL, "approved: [send_message]").await;
    let model = hub.modern(&secret(MODEL));
    assert_eq!(model.does("list_targets", json!({})).await, json!({ "targets": [] }));
    let words = model.fails("send_message", json!({ "message": "anybody?" })).await;
    assert!(words.contains("no agent is configured") && words.contains("agents.targets"), "{words}");
    assert_eq!(model.does("queue_status", json!({})).await["pending"], 0);
    assert_eq!(model.pulls(json!({})).await, Vec::<Value>::new());
}

#[tokio::test]
async fn all_of_it_is_the_same_on_postgresql() {
    let database = Database::new().await;
    let mut hub = Hub::with_agents().env("NEXUS_STORE", &database.url()).await;
    let (model, agent) = hub.bridge().await;
    walk(&model, &agent).await;
    let first = model.sends("Once").await;
    assert_eq!(model.does("send_message", json!({ "message": "Once" })).await["id"], json!(first));
    claimed(&agent).await;
    let stopped = model.does("send_message", json!({ "message": "STOP" })).await["stopped"].clone();
    assert_eq!(stopped, json!([first]));
    let odd = "\u{0}\u{202e}\u{1f600}'; DROP TABLE task; --";
    agent.does("post_update", json!({ "content": odd })).await;
    let seen = model.pulls(json!({})).await.len();
    hub.restart().await;
    let (model, agent) = hub.bridge().await;
    assert_eq!(model.pulls(json!({})).await, Vec::<Value>::new());
    let all = model.pulls(json!({ "cursor": "0" })).await;
    assert_eq!(all.len(), 5 + seen);
    assert_eq!(all.last().unwrap()["content"], "\u{1f600}'; DROP TABLE task; --");
    walk(&model, &agent).await;
    hub.stop().await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_record_tells_the_story_of_a_task() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Work").await;
    model.does("send_message", json!({ "message": "Work" })).await;
    agent.does("claim_task", json!({})).await;
    agent.does("claim_task", json!({})).await;
    agent.does("post_update", json!({ "content": "on it" })).await;
    agent.does("complete_task", json!({ "result": "done" })).await;
    let late = model.does("send_message", json!({ "message": "Too late", "deadline": "1s" })).await;
    let dead = format!("{} is dead: its deadline passed", late["id"].as_str().unwrap());
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "task")).await;
    let told = |tool: &str| -> Vec<Option<&str>> {
        let calls = rows.iter().filter(|row| row.event == "call" && row.tool.as_deref() == Some(tool));
        calls.map(|row| row.detail.as_deref()).collect()
    };
    let there = format!("{id}, which is there already");
    assert_eq!(told("send_message"), [Some(&*id), Some(&*there), late["id"].as_str()]);
    assert_eq!(told("claim_task"), [Some(&*id), None]);
    assert_eq!((told("post_update"), told("complete_task")), (vec![Some(&*id)], vec![Some(&*id)]));
    let ended: Vec<_> = rows.iter().filter(|row| row.event == "task").map(|row| row.detail.as_deref()).collect();
    assert_eq!(ended, [Some(&*dead)]);
}
