//! The operator's view of agents' tasks: `nexus tasks`, `nexus send`, at the running hub.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::support::agents::{AGENT, MODEL};
use crate::support::{Client, Hub, Program, secret, signal, until, within};

async fn tasks(hub: &Hub, args: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = ["tasks", "--json"].into_iter().chain(args.iter().copied()).collect();
    serde_json::from_str(&hub.nexus(&args).await.ok()).unwrap()
}

/// Takes the next task as its agent.
async fn claimed(agent: &Client) -> Value {
    agent.does("claim_task", json!({ "wait_seconds": 20 })).await["task"].clone()
}

/// A command that goes on, and its lines.
struct Going {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    talk: tokio::sync::watch::Receiver<String>,
}

impl Going {
    fn start(program: &Program) -> Self {
        let (mut child, talk) = program.spawn_talking();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, talk }
    }

    /// Reads on until a line holds these words.
    async fn shows(&mut self, words: &str) -> String {
        within(words, async {
            loop {
                match self.lines.next_line().await.unwrap() {
                    Some(line) if line.contains(words) => return line,
                    Some(_) => {}
                    None => panic!("it ended without `{words}`: {}", self.talk.borrow().as_str()),
                }
            }
        })
        .await
    }

    async fn ended(&mut self) -> Option<i32> {
        within("its end", self.child.wait()).await.unwrap().code()
    }
}

#[tokio::test]
async fn a_message_of_the_operator_is_a_task_like_any_other_and_stands_in_the_record() {
    let hub = Hub::with_agents().await;
    let ran = hub.nexus(&["send", "attic", "count the boxes", "--priority", "high", "--deadline", "2h"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "t1\n"), "{ran:?}");
    assert!(ran.stderr.contains("t1 is next for attic."), "{ran:?}");
    let again = hub.nexus(&["send", "attic", "count the boxes"]).await;
    assert_eq!(again.stdout, "t1\n", "{again:?}");
    assert!(again.stderr.contains("attic has been told so already: t1 is pending."), "{again:?}");
    let listed = tasks(&hub, &[]).await;
    assert_eq!(listed.len(), 1);
    for (name, value) in
        [("id", "t1"), ("status", "pending"), ("target", "attic"), ("sender", "operator"), ("priority", "high")]
    {
        assert_eq!(listed[0][name], value, "{listed:?}");
    }
    assert!(tasks(&hub, &["--target", "homelab"]).await.is_empty());
    let sent = |row: &crate::support::AuditRow| row.is("call send_message allowed ok");
    let rows = hub.audit_reaches(move |rows| rows.iter().filter(|row| sent(row)).count() == 2).await;
    let row = rows.iter().find(|row| sent(row)).unwrap();
    assert_eq!((row.principal.as_deref(), row.transport.as_deref()), (Some("operator"), Some("control")));
}

#[tokio::test]
async fn long_messages_come_from_stdin_and_too_long_ones_are_refused_in_words() {
    let hub = Hub::with_agents().await;
    let long = "\t\"é\n".repeat(19_000);
    let sent = hub.program(&["send", "attic", "-"]).run_with(&long).await;
    assert_eq!(sent.stdout, "t1\n", "{sent:?}");
    let kept = hub.modern(&secret("attic-agent")).does("claim_task", json!({})).await;
    assert_eq!(kept["task"]["content"].as_str().map(str::len), Some(long.trim().len()));
    let refused = hub.program(&["send", "attic", "-"]).run_with(&"x".repeat(100_001)).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("100001 bytes"), "{refused:?}");
    let refused = hub.program(&["send", "attic", "-"]).run_with(&"x".repeat(2_000_000)).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("stdin holds more than"), "{refused:?}");
    let refused = hub.program(&["send", "attic", "-"]).run_with("").await;
    assert!(refused.code == Some(1) && refused.stderr.contains("empty"), "{refused:?}");
    let unknown = hub.nexus(&["send", "cellar", "x"]).await;
    assert!(unknown.code == Some(1) && unknown.stderr.contains("known targets: attic, homelab"), "{unknown:?}");
}

#[tokio::test]
async fn the_table_shows_what_is_open_and_a_few_that_are_finished_without_what_a_terminal_would_obey() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    assert!(hub.nexus(&["tasks"]).await.stderr.contains("There are no tasks."));
    for n in 1..=7 {
        let id = model.sends(&format!("old {n}")).await;
        claimed(&agent).await;
        agent.does("fail_task", json!({ "task": id, "reason": "no\u{1b}[2J luck" })).await;
    }
    model.sends("evil\u{1b}]0;title\u{7} \u{202e}words\nsecond line").await;
    model.does("send_message", json!({ "message": "for nobody", "target": "attic" })).await;
    let shown = hub.nexus(&["tasks"]).await;
    let table = &shown.stdout;
    assert!(!table.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{table:?}");
    assert!(table.contains("evil words") && !table.contains("second line"), "{table}");
    assert!(table.contains("old 7") && table.contains("[no luck]") && table.contains("old 3"), "{table}");
    assert!(!table.contains("old 2"), "{table}");
    assert!(shown.stderr.contains("Nobody serves attic now; its tasks wait."), "{shown:?}");
    let all = hub.nexus(&["tasks", "--all"]).await.ok();
    assert!(all.contains("old 1") && all.lines().count() == 10, "{all}");
    assert_eq!(tasks(&hub, &["--all"]).await.len(), 9);
}

#[tokio::test]
async fn one_task_is_shown_with_all_that_is_known_of_it() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("tidy up").await;
    claimed(&agent).await;
    agent.does("post_update", json!({ "content": "first\n\u{1b}[31msecond" })).await;
    agent.does("ask_operator", json!({ "question": "which one?" })).await;
    let shown = hub.nexus(&["tasks", "show", &id]).await.ok();
    for words in [
        "t1  input_required  homelab",
        "by model",
        "tidy up",
        "claimed by   agent",
        "which one?",
        "1 of 1",
        "    second",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let whole: Value = serde_json::from_str(&hub.nexus(&["tasks", "show", "t1", "--json"]).await.ok()).unwrap();
    assert_eq!((&whole["status"], &whole["content"]), (&json!("input_required"), &json!("tidy up")));
    let none = hub.nexus(&["tasks", "show", "t99"]).await;
    assert!(none.code == Some(1) && none.stderr.contains("there is no task t99"), "{none:?}");
    let nonsense = hub.nexus(&["tasks", "show", "boxes"]).await;
    assert!(nonsense.code == Some(2) && nonsense.stderr.contains("one looks like t17"), "{nonsense:?}");
}

#[tokio::test]
async fn the_operator_answers_cancels_and_retries() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("tidy up").await;
    claimed(&agent).await;
    let early = hub.nexus(&["tasks", "answer", &id, "x"]).await;
    assert!(early.code == Some(1) && early.stderr.contains("it does not wait for an answer"), "{early:?}");
    let asked = agent.does("ask_operator", json!({ "question": "which one?" })).await;
    let answered = hub.nexus(&["tasks", "answer", &id, "-- the second"]).await;
    assert!(answered.stderr.contains("t1 is answered, and in_progress."), "{answered:?}");
    let heard =
        agent.does("ask_operator", json!({ "question": "which one?", "question_id": asked["question_id"] })).await;
    assert_eq!(heard["answer"], "-- the second", "{heard}");
    let cancelled = hub.nexus(&["tasks", "cancel", &id, "--reason", "too late"]).await;
    assert!(cancelled.stderr.contains("t1 is cancelled."), "{cancelled:?}");
    let task = model.does("get_task", json!({ "id": id })).await;
    assert_eq!(task["reason"], "cancelled by operator: too late", "{task}");
    let again = hub.nexus(&["tasks", "cancel", &id]).await;
    assert!(again.code == Some(1) && again.stderr.contains("finished already"), "{again:?}");
    let retried = hub.nexus(&["tasks", "retry", &id]).await;
    assert!(retried.stderr.contains("t1 is pending again, for homelab."), "{retried:?}");
    assert_eq!(claimed(&agent).await["id"], "t1");
}

#[tokio::test]
async fn following_shows_updates_as_they_come_also_over_a_restart_of_the_hub() {
    let mut hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    model.sends("tidy up").await;
    claimed(&agent).await;
    agent.does("post_update", json!({ "content": "before anybody looked" })).await;
    let mut going = Going::start(&hub.program(&["tasks", "--follow"]));
    let first = going.shows("t1").await;
    assert!(first.contains("in_progress") && first.contains("tidy up"), "{first}");
    agent.does("post_update", json!({ "content": "half\u{1b}[2J\nof it" })).await;
    let line = going.shows("half").await;
    assert!(
        line.contains("t1") && line.contains("homelab") && line.contains("progress") && !line.contains('\u{1b}'),
        "{line}"
    );
    assert_eq!(going.shows("of it").await, "    of it");
    hub.stop().await;
    until("a word about it", || going.talk.borrow().contains("The hub is away, and is waited for")).await;
    hub.restart().await;
    let agent = hub.modern(&secret(AGENT));
    agent.does("complete_task", json!({ "task": "t1", "result": "all done" })).await;
    let line = going.shows("all done").await;
    assert!(line.contains("complete"), "{line}");
    signal(going.child.id().unwrap(), Signal::INT);
    assert_eq!(going.ended().await, Some(0));

    let mut json = Going::start(&hub.program(&["tasks", "--follow", "--json", "--target", "attic"]));
    // It follows once it has asked the hub to wait.
    hub.audit_reaches(|rows| {
        rows.iter().any(|row| {
            row.tool.as_deref() == Some("list_tasks")
                && row.arguments.as_deref().is_some_and(|said| said.contains("attic"))
        })
    })
    .await;
    let model = hub.modern(&secret(MODEL));
    model.does("send_message", json!({ "message": "for the attic", "target": "attic" })).await;
    model.does("cancel_task", json!({ "id": "t2" })).await;
    let update: Value = serde_json::from_str(&json.shows("cancelled").await).unwrap();
    assert_eq!((&update["message_id"], &update["target"]), (&json!("t2"), &json!("attic")));
}

#[tokio::test]
async fn whoever_waits_for_a_task_sees_it_to_its_end_and_is_told_how_it_went() {
    let hub = Hub::with_agents().await;
    let (_, agent) = hub.bridge().await;
    let mut going = Going::start(&hub.program(&["send", "homelab", "tidy up", "--wait"]));
    claimed(&agent).await;
    agent.does("post_update", json!({ "content": "half" })).await;
    going.shows("half").await;
    agent.does("complete_task", json!({ "task": "t1", "result": "all done" })).await;
    going.shows("all done").await;
    assert_eq!(going.ended().await, Some(0));

    let mut going = Going::start(&hub.program(&["send", "homelab", "tidy up again", "--wait"]));
    claimed(&agent).await;
    agent.does("fail_task", json!({ "task": "t2", "reason": "no luck", "exit_code": 3 })).await;
    going.shows("no luck").await;
    assert_eq!(going.ended().await, Some(1));
    let told = going.talk.wait_for(|talk| talk.contains("t2 is error: no luck"));
    within("the reason", told).await.unwrap();
    // A bare STOP is done as soon as it is sent.
    assert_eq!(hub.nexus(&["send", "homelab", "STOP", "--wait"]).await.code, Some(0));
}

#[tokio::test]
async fn without_a_hub_the_operator_is_told_so() {
    let mut hub = Hub::with_agents().await;
    hub.stop().await;
    for args in [&["tasks"][..], &["tasks", "--follow"], &["tasks", "show", "t1"], &["send", "attic", "x"]] {
        let ran = hub.nexus(args).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("no hub is running on the data folder"), "{ran:?}");
    }
}

#[tokio::test]
async fn only_tools_about_tasks_are_called_through_the_socket() {
    use tokio::io::AsyncWriteExt;

    let hub = Hub::with_agents().await;
    for tool in ["run_command", "claim_task", "complete_task", "approve_writes"] {
        let order = json!({ "tool": { "tool": tool, "arguments": { "cmd": "id" } } });
        let mut stream = tokio::net::UnixStream::connect(hub.data.join("control.sock")).await.unwrap();
        stream.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let answer = within(tool, lines.next_line()).await.unwrap().unwrap();
        assert!(answer.contains("failed") && !answer.contains("uid="), "{tool}: {answer}");
    }
}
