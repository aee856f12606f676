//! Webhook targets: tasks are posted, signed; what their agent says comes back, signed.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::agents::{MODEL, told};
use crate::support::webhook::{Came, Receiver, SECRET, Say, now, signed, update};
use crate::support::{Ask, Client, Hub, Setup, secret, signal, write};

/// A hub with the target `hook`, and `other` at the same place.
fn setup(receiver: &Receiver) -> Setup {
    let url = receiver.url();
    let targets = ["hook", "other"].map(|name| format!("    {name}: {{ webhook: {{ url: '{url}' }} }}\n"));
    let yaml = format!("agents:\n  default: hook\n  targets:\n{}", targets.concat());
    Hub::start()
        .yaml(&yaml)
        .env("NEXUS_WEBHOOK_SECRET", SECRET)
        .key(MODEL, "approved: [send_message, cancel_task, answer_task, retry_task]")
}

async fn start(receiver: &Receiver) -> (Hub, Client) {
    let hub = setup(receiver).await;
    let model = hub.modern(&secret(MODEL));
    (hub, model)
}

async fn status(model: &Client, id: &str) -> Value {
    model.does("get_task", json!({ "id": id, "updates": 0 })).await
}

/// Waits for the end of a task.
async fn ends(model: &Client, id: &str) -> Value {
    let mut cursor = "0".to_owned();
    loop {
        let task = status(model, id).await;
        if task.get("completed_at").is_some() {
            return task;
        }
        let page = model.does("pull_updates", json!({ "task": id, "cursor": cursor, "wait_seconds": 20 })).await;
        cursor = page["next_cursor"].as_str().unwrap().to_owned();
    }
}

fn only<'a>(came: &[&'a Came]) -> &'a Came {
    assert_eq!(came.len(), 1, "{came:?}");
    came[0]
}

#[tokio::test]
async fn a_task_goes_out_signed_and_its_agents_words_come_back() {
    let receiver = Receiver::start().await;
    let (hub, model) = start(&receiver).await;
    let sent = model.does("send_message", json!({ "message": "tidy up", "priority": "high", "deadline": "2h" })).await;
    assert_eq!((&sent["queued"], &sent["id"]), (&json!(true), &json!("t1")), "{sent}");
    let heard = receiver.hears("the task", |heard| heard.messages.len() == 1).await;
    let task = &heard.messages[0].body;
    for (name, value) in [
        ("type", json!("task")),
        ("id", json!("t1")),
        ("target", json!("hook")),
        ("content", json!("tidy up")),
        ("priority", json!("high")),
        ("attempt", json!(1)),
        ("reply_to", json!("/agents/hook/updates")),
    ] {
        assert_eq!(task[name], value, "{task}");
    }
    assert!(task["deadline"].is_string() && task["created_at"].is_string(), "{task}");
    assert_eq!(status(&model, "t1").await["status"], "acknowledged");

    let progress = hub.posted("hook", "m1", &json!({ "task": "t1", "kind": "progress", "content": "half" })).await;
    assert_eq!(
        (&progress["task"], &progress["status"], &progress["stop"]),
        (&json!("t1"), &json!("in_progress"), &json!(false))
    );
    // Without a task the only one that runs is meant.
    hub.posted("hook", "m2", &json!({ "kind": "progress", "content": "more" })).await;
    let asked = hub.posted("hook", "m3", &json!({ "task": "t1", "kind": "question", "content": "which?" })).await;
    assert_eq!(asked["status"], "input_required", "{asked}");
    model.answers("t1", "the second").await;
    let heard = receiver.hears("the answer", |heard| !heard.of("answer").is_empty()).await;
    let answer = only(&heard.of("answer"));
    assert_eq!((&answer.body["id"], &answer.body["content"]), (&json!("t1"), &json!("the second")));
    let done =
        hub.posted("hook", "m4", &json!({ "task": "t1", "kind": "complete", "content": "done", "exit_code": 0 })).await;
    assert_eq!((&done["status"], &done["stop"]), (&json!("complete"), &json!(false)));

    let updates = model.pulls(json!({})).await;
    let kinds: Vec<String> = told(&updates).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["acknowledged", "progress", "progress", "question", "answer", "complete"]);
    let task = status(&model, "t1").await;
    assert_eq!((&task["result"], &task["exit_code"]), (&json!("done"), &json!(0)));
    assert_eq!(receiver.heard().faults, [""; 0]);
    let rows = hub
        .audit_reaches(|rows| rows.iter().filter(|row| row.transport.as_deref() == Some("webhook")).count() >= 4)
        .await;
    let theirs: Vec<_> = rows.iter().filter(|row| row.transport.as_deref() == Some("webhook")).collect();
    assert!(theirs.iter().all(|row| row.principal.as_deref() == Some("webhook:hook")), "{theirs:?}");
    let posts = rows.iter().filter(|row| row.event == "outbound").filter_map(|row| row.detail.as_deref());
    assert_eq!(posts.filter(|detail| detail.contains("204, task t1,")).count(), 1);
    assert!(!format!("{rows:?}{}", hub.said()).contains(&SECRET[6..]));
}

#[tokio::test]
async fn whoever_does_not_sign_well_is_refused_and_recorded_and_cannot_tell_targets() {
    let receiver = Receiver::start().await;
    let (hub, model) = start(&receiver).await;
    model.sends("tidy up").await;
    receiver.hears("the task", |heard| !heard.messages.is_empty()).await;
    let said = json!({ "task": "t1", "kind": "complete", "content": "x" });
    let good = || update("hook", "m1", &said);
    let stamped = |at: i64, body: &str| {
        let at = at.to_string();
        let signature = signed(SECRET, "m1", &at, body.as_bytes());
        good().header("webhook-timestamp", &at).header("webhook-signature", &signature)
    };
    let wrong =
        signed("whsec_YW5vdGhlciBzZWNyZXQgb2Ygc29tZSBsZW5ndGg=", "m1", &now().to_string(), said.to_string().as_bytes());
    let mut unknown = good();
    unknown.path = "/agents/nobody/updates".to_owned();
    let bad: [(&str, Ask); 5] = [
        ("none", good().without("webhook-signature")),
        ("wrong", good().header("webhook-signature", &wrong)),
        ("old", stamped(now() - 600, &said.to_string())),
        ("body", good().body(r#"{"task":"t1","kind":"complete","content":"y"}"#)),
        ("unknown target", unknown),
    ];
    let mut answers = Vec::new();
    for (what, ask) in &bad {
        let response = hub.ask(ask).await;
        assert_eq!(response.status(), 401, "{what}: {response:?}");
        answers.push(response.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "they can be told apart: {answers:?}");
    // Even a key does not help, and another Host is another Host.
    assert_eq!(hub.ask(&good().without("webhook-signature").key(&hub.key)).await.status(), 401);
    assert_eq!(hub.ask(&good().header("Host", "evil.example")).await.status(), 403);
    assert_eq!(status(&model, "t1").await["status"], "acknowledged");
    let refused = |row: &&crate::support::AuditRow| row.event == "key_refused";
    let rows = hub.audit_reaches(move |rows| rows.iter().filter(refused).count() == 6).await;
    let details: Vec<_> = rows.iter().filter(refused).filter_map(|row| row.detail.clone()).collect();
    assert!(details[0].starts_with("no signature of a webhook from 127.0.0.1"), "{details:?}");
    assert!(details[2].starts_with("a signature of another time of a webhook"), "{details:?}");
    // The same words, well signed, are taken.
    assert_eq!(hub.ask(&good()).await.status(), 200);
}

#[tokio::test]
async fn what_is_sent_again_is_taken_once() {
    let receiver = Receiver::start().await;
    let (hub, model) = start(&receiver).await;
    model.sends("tidy up").await;
    receiver.hears("the task", |heard| !heard.messages.is_empty()).await;
    let said = json!({ "task": "t1", "kind": "progress", "content": "half" });
    let first = hub.posted("hook", "m1", &said).await;
    assert_eq!(hub.posted("hook", "m1", &said).await, first);
    let done = json!({ "task": "t1", "kind": "complete" });
    let end = hub.posted("hook", "m2", &done).await;
    assert_eq!(hub.posted("hook", "m2", &done).await["update"], end["update"]);
    assert_eq!(told(&model.pulls(json!({})).await).len(), 3);
}

#[tokio::test]
async fn an_agent_speaks_of_its_own_tasks_and_is_told_what_is_wrong() {
    let receiver = Receiver::start().await;
    let (hub, model) = start(&receiver).await;
    model.sends("tidy up").await;
    receiver.hears("the task", |heard| !heard.messages.is_empty()).await;
    check(&hub, "other", 422, json!({ "task": "t1", "kind": "complete", "content": "x" }), "t1 is no task of `other`")
        .await;
    check(&hub, "hook", 422, json!({ "task": "t9", "kind": "progress", "content": "x" }), "there is no task t9").await;
    check(&hub, "hook", 422, json!({ "task": "x", "kind": "progress", "content": "x" }), "is not the id of a task")
        .await;
    check(&hub, "hook", 422, json!({ "task": "t1", "kind": "progress", "content": "" }), "empty").await;
    check(&hub, "hook", 422, json!({ "task": "t1", "kind": "note", "content": "x".repeat(100_001) }), "100001").await;
    check(&hub, "hook", 400, json!({ "task": "t1", "kind": "dance" }), "not an update").await;
    check(&hub, "hook", 400, json!({ "kind": "note", "content": "x", "target": "other" }), "unknown field `target`")
        .await;
    let large = update("hook", "m", &json!({ "kind": "note", "content": "x".repeat(1 << 20) }));
    assert_eq!(hub.ask(&large).await.status(), 413);
    assert_eq!(status(&model, "t1").await["status"], "acknowledged");
    // What belongs to no task is heard all the same.
    model.does("cancel_task", json!({ "id": "t1" })).await;
    let late = hub.posted("hook", "late", &json!({ "task": "t1", "kind": "complete", "content": "x" })).await;
    assert_eq!((&late["status"], &late["stop"]), (&json!("cancelled"), &json!(true)));
    let note = hub.posted("hook", "note", &json!({ "kind": "note", "content": "I am here" })).await;
    assert_eq!(note["task"], Value::Null, "{note}");

    async fn check(hub: &Hub, target: &str, status: u16, said: Value, words: &str) {
        let response = hub.ask(&update(target, &format!("m-{words}").replace(' ', "_"), &said)).await;
        assert_eq!(response.status(), status, "{response:?}");
        let error = response.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn a_target_that_fails_is_tried_again_and_its_trouble_is_seen() {
    let receiver = Receiver::start().await;
    receiver.next([Say::Status(500, "oh\u{1b}[2J no")]);
    receiver.always(Say::RetryAfter(429, 1));
    let (_hub, model) = start(&receiver).await;
    model.sends("tidy up").await;
    receiver.hears("some tries", |heard| heard.messages.len() >= 3).await;
    let target = model.does("queue_status", json!({ "target": "hook" })).await["targets"][0].clone();
    assert_eq!(
        (&target["deaf"], &target["trouble"]),
        (&json!(true), &json!("it answers HTTP 429: slowly")),
        "{target}"
    );
    assert_eq!(target["last_heard"], Value::Null, "a task was claimed for it, and nobody was heard: {target}");
    receiver.always(Say::Status(202, ""));
    let before = receiver.heard().messages.len();
    let heard = receiver.hears("another try", |heard| heard.messages.len() > before).await;
    assert!(heard.messages.iter().all(|came| came.id == heard.messages[0].id && came.body == heard.messages[0].body));
    // A second task shows that the first is settled: it is not posted again.
    model.sends("and the attic").await;
    let heard = receiver.hears("the next", |heard| heard.messages.iter().any(|came| came.body["id"] == "t2")).await;
    assert_eq!(heard.of("task").iter().filter(|came| came.body["id"] == "t1").count(), before + 1);
    assert_eq!(heard.faults, [""; 0]);
    let target = model.does("queue_status", json!({ "target": "hook" })).await["targets"][0].clone();
    assert_eq!(target["trouble"], Value::Null, "{target}");
}

#[tokio::test]
async fn a_task_that_is_refused_is_dead_with_the_reason_and_can_be_tried_again() {
    let receiver = Receiver::start().await;
    receiver.next([Say::Status(410, "gone\u{1b}[2J for\ngood")]);
    let (_hub, model) = start(&receiver).await;
    let id = model.sends("tidy up").await;
    let task = ends(&model, &id).await;
    assert_eq!(
        (&task["status"], &task["reason"]),
        (&json!("dead"), &json!("hook refused it: it answers HTTP 410: gone for good"))
    );
    // Whoever refuses has heard.
    let target = model.does("queue_status", json!({ "target": "hook" })).await["targets"][0].clone();
    assert_eq!((&target["deaf"], &target["trouble"]), (&json!(false), &Value::Null), "{target}");
    assert!(target["last_heard"].is_string(), "{target}");
    model.does("retry_task", json!({ "id": id })).await;
    let heard = receiver.hears("the second attempt", |heard| heard.messages.len() == 2).await;
    assert_ne!(heard.messages[0].id, heard.messages[1].id, "another attempt is another message");
    model.sends("and the attic").await;
    let heard = receiver.hears("the next", |heard| heard.messages.len() >= 3).await;
    assert_eq!(heard.of("cancel").len(), 0, "who refuses a task need not be told of its end: {heard:?}");
}

#[tokio::test]
async fn an_agent_is_told_once_that_its_task_is_over() {
    let receiver = Receiver::start().await;
    let (mut hub, model) = start(&receiver).await;
    model.sends("tidy up").await;
    receiver.hears("the task", |heard| heard.messages.len() == 1).await;
    model.does("cancel_task", json!({ "id": "t1", "reason": "no longer" })).await;
    let heard = receiver.hears("the cancel", |heard| !heard.of("cancel").is_empty()).await;
    let cancel = only(&heard.of("cancel")).clone();
    assert_eq!((&cancel.body["id"], &cancel.body["reason"]), (&json!("t1"), &json!("cancelled by model: no longer")));
    // A STOP ends what runs, and is itself nothing to post.
    model.sends("go on").await;
    receiver.hears("the task", |heard| heard.of("task").len() == 2).await;
    model.sends("STOP").await;
    receiver.hears("the second cancel", |heard| heard.of("cancel").len() == 2).await;
    hub.restart().await;
    let model = hub.modern(&secret(MODEL));
    model.sends("after the restart").await;
    let heard = receiver.hears("the next", |heard| heard.of("task").len() == 3).await;
    assert_eq!(heard.of("cancel").len(), 2, "{heard:?}");
    assert_eq!(heard.faults, [""; 0]);
}

#[tokio::test]
async fn a_hub_that_dies_while_it_posts_sends_the_same_message_again_and_what_arrived_not() {
    let receiver = Receiver::start().await;
    let (mut hub, model) = start(&receiver).await;
    model.sends("arrived").await;
    receiver.hears("the first", |heard| heard.messages.len() == 1).await;
    receiver.always(Say::Hang);
    model.sends("on its way").await;
    receiver.hears("the second", |heard| heard.messages.len() == 2).await;
    receiver.always(Say::Status(204, ""));
    signal(hub.pid, Signal::KILL);
    hub.restart().await;
    let heard = receiver.hears("the second again", |heard| heard.messages.len() == 3).await;
    assert_eq!((&heard.messages[2].id, &heard.messages[2].body), (&heard.messages[1].id, &heard.messages[1].body));
    hub.restart().await;
    let model = hub.modern(&secret(MODEL));
    model.sends("afterwards").await;
    let heard = receiver.hears("the third", |heard| heard.messages.iter().any(|came| came.body["id"] == "t3")).await;
    assert_eq!(heard.messages.len(), 4, "{heard:?}");
    assert_eq!(status(&model, "t2").await["attempts"], 1);
}

#[tokio::test]
async fn a_hundred_tasks_go_out_once_each() {
    let receiver = Receiver::start().await;
    let (_hub, model) = start(&receiver).await;
    for n in 0..100 {
        model.sends(&format!("task {n}")).await;
    }
    let heard = receiver.hears("all", |heard| heard.messages.len() >= 100).await;
    let mut ids: Vec<i64> =
        heard.messages.iter().map(|came| came.body["id"].as_str().unwrap()[1..].parse().unwrap()).collect();
    // Eight are on their way at once: no task overtakes those of the eight before.
    assert!(ids.iter().zip(1..).all(|(id, nth)| (id - nth).abs() <= 8), "{ids:?}");
    ids.sort_unstable();
    assert_eq!(ids, (1..=100).collect::<Vec<_>>());
    assert_eq!(heard.faults, [""; 0]);
}

#[tokio::test]
async fn a_webhook_without_a_good_secret_keeps_the_hub_from_starting() {
    let receiver = Receiver::start().await;
    check(setup(&receiver).without_env("NEXUS_WEBHOOK_SECRET"), "it has no secret to sign with").await;
    check(setup(&receiver).env("NEXUS_WEBHOOK_SECRET", "hunter2"), "its secret is too short").await;
    check(setup(&receiver).env("NEXUS_WEBHOOK_SECRET", "whsec_()"), "is not base64").await;

    async fn check(setup: Setup, words: &str) {
        let ran = setup.refused().await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("the webhook target `hook`: ") && ran.stderr.contains(words), "{ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_target_may_have_a_secret_of_its_own_in_a_file() {
    let receiver = Receiver::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let (url, path) = (receiver.url(), file.display());
    let yaml = format!("agents: {{ targets: {{ hook: {{ webhook: {{ url: '{url}', secret_file: '{path}' }} }} }} }}");
    let setup = || Hub::start().yaml(&yaml).key(MODEL, "approved: [send_message]");
    let ran = setup().refused().await;
    assert!(ran.code == Some(2) && ran.stderr.contains("No such file"), "{ran:?}");
    write(&file, &format!("{SECRET}\n"));
    let hub = setup().await;
    let checked = hub.nexus(&["check"]).await;
    assert!(checked.code == Some(0) && !format!("{checked:?}").contains(SECRET), "{checked:?}");
    let model = hub.modern(&secret(MODEL));
    model.sends("tidy up").await;
    assert_eq!(receiver.hears("the task", |heard| heard.messages.len() == 1).await.faults, [""; 0]);
    // Nobody reads it through the hub, and nobody says it.
    let read = model.call("read_file", json!({ "path": file })).await;
    assert_eq!(read["isError"], true, "{read}");
    hub.posted("hook", "m1", &json!({ "task": "t1", "kind": "complete", "content": format!("I have {SECRET}") })).await;
    let said = told(&model.pulls(json!({})).await).pop().unwrap().1;
    assert!(!said.contains(SECRET), "{said}");
}

#[tokio::test]
async fn a_hub_that_is_killed_again_and_again_loses_no_task_and_makes_no_second_message_of_one() {
    const TASKS: usize = 40;
    let receiver = Receiver::start().await;
    receiver.always(Say::RetryAfter(503, 1));
    let (mut hub, model) = start(&receiver).await;
    for n in 0..TASKS {
        model.sends(&format!("task {n}")).await;
    }
    receiver.always(Say::Status(200, ""));
    let names = |heard: &crate::support::webhook::Heard| -> BTreeSet<(String, String)> {
        let task = |came: &Came| came.body["id"].as_str().unwrap().to_owned();
        heard.messages.iter().map(|came| (task(came), came.id.clone())).collect()
    };
    for some in [12, 24] {
        receiver.hears("some of them", |heard| names(heard).len() >= some).await;
        signal(hub.pid, Signal::KILL);
        hub.restart().await;
    }
    let heard = receiver.hears("all of them", |heard| names(heard).len() >= TASKS).await;
    let tasks: BTreeSet<String> = names(&heard).into_iter().map(|(task, _)| task).collect();
    assert_eq!((tasks.len(), names(&heard).len()), (TASKS, TASKS), "a task under two names");
    assert_eq!(heard.faults, [""; 0]);
    // Each of them can be finished, once.
    let model = hub.modern(&secret(MODEL));
    for task in tasks {
        hub.posted("hook", &format!("end-{task}"), &json!({ "task": task, "kind": "complete" })).await;
    }
    let status = model.does("queue_status", json!({ "target": "hook" })).await;
    assert_eq!((&status["pending"], &status["in_progress"]), (&json!(0), &json!(0)), "{status}");
}

#[tokio::test]
async fn what_an_agent_says_while_the_store_takes_nothing_is_asked_for_again() {
    let receiver = Receiver::start().await;
    let (hub, model) = start(&receiver).await;
    model.sends("tidy up").await;
    receiver.hears("the task", |heard| !heard.messages.is_empty()).await;
    let holder = hub.hold_store().await;
    let said = json!({ "task": "t1", "kind": "complete", "content": "done" });
    let response = hub.ask(&update("hook", "m1", &said)).await;
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("5")), "{response:?}");
    let words = response.json()["error"].as_str().unwrap().to_owned();
    assert!(words.contains("send it again") && !words.contains("database"), "{words}");
    drop(holder);
    let done = hub.posted("hook", "m1", &said).await;
    assert_eq!(done["status"], "complete", "{done}");
}

#[tokio::test]
async fn slow_senders_are_sent_away_and_hold_up_nobody_for_long() {
    let receiver = Receiver::start().await;
    let (hub, _model) = start(&receiver).await;
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut wire = hub.connect().await;
        let head = "POST /agents/hook/updates HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
        wire.write(head.as_bytes()).await;
        slow.push(wire);
    }
    // Those with a place are sent away, and those behind them do not get one in time.
    for mut wire in slow {
        assert!(matches!(wire.head().await.status, 408 | 503));
    }
    let note = hub.posted("hook", "m1", &json!({ "kind": "note", "content": "I am here" })).await;
    assert_eq!(note["stop"], false, "{note}");
}

#[tokio::test]
async fn a_proxy_that_knows_no_agent_yet_ends_no_task() {
    let receiver = Receiver::start().await;
    receiver.next([Say::Status(404, "no backend"), Say::Status(403, "not yet")]);
    let (_hub, model) = start(&receiver).await;
    let id = model.sends("tidy up").await;
    let heard = receiver.hears("the third try", |heard| heard.messages.len() == 3).await;
    assert!(heard.messages.iter().all(|came| came.id == heard.messages[0].id), "{heard:?}");
    assert_eq!(status(&model, &id).await["status"], "acknowledged");
}
