//! What a command says, and how it reaches the model.

use serde_json::json;

use super::{Worker, memory, output};
use crate::support::{Hub, write};

#[tokio::test]
async fn lines_arrive_while_the_command_runs_and_its_end_has_the_exit_code_and_all_it_said() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let gate = hub.path("gate");
    let worker = Worker::start(
        &hub,
        &format!("cat; echo first; echo oops >&2; until [ -e {} ]; do sleep 0.05; done; echo last", gate.display()),
    );
    worker.says("connected to http://").await;

    let task = model.sends("do it").await;
    let so_far = model.hears(&task, "oops").await;
    assert_eq!(so_far[0].0, "acknowledged");
    assert!(output(&so_far).starts_with("do it\nfirst"), "{so_far:?}");
    assert!(!output(&so_far).contains("last"), "it still runs: {so_far:?}");
    assert_eq!(model.does("get_task", json!({ "id": task })).await["status"], "in_progress");

    write(&gate, "");
    let done = model.comes_to(&task, "complete").await;
    assert_eq!(done["exit_code"], 0);
    assert_eq!(done["result"], "do it\nfirst\noops\nlast");
    let (kind, words) = model.all_about(&task).await.pop().unwrap();
    assert_eq!((kind.as_str(), words.as_str()), ("complete", "do it\nfirst\noops\nlast"));
    worker.says(&format!("{task} ended: exit code 0")).await;
    assert!(!worker.said().contains("agent-0123"), "no key in the log: {}", worker.said());
}

#[tokio::test]
async fn the_words_stand_in_an_argument_or_come_by_stdin_and_the_key_does_not_reach_the_command() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let script = r#"echo "arg=$1 task=$NEXUS_TASK target=$NEXUS_TARGET key=$NEXUS_AGENT_KEY stdin=$(cat)"; ls -l "$NEXUS_AGENT_SOCKET" | cut -c1-10"#;
    let mut worker = Worker::running(&hub, &[], &["/bin/sh", "-c", script, "sh", "<{}>"]);
    let task = model.sends("words of the task").await;
    let done = model.comes_to(&task, "complete").await;
    assert_eq!(done["result"], format!("arg=<words of the task> task={task} target=homelab key= stdin=\nsrw-------"));
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended().await, Some(0));

    let _worker = Worker::running(&hub, &["--stdin"], &["/bin/sh", "-c", script, "sh", "<{}>"]);
    let task = model.sends("more words").await;
    let done = model.comes_to(&task, "complete").await;
    assert!(done["result"].as_str().unwrap().starts_with("arg=<{}> "), "{done}");
    assert!(done["result"].as_str().unwrap().contains("stdin=more words"), "{done}");
}

#[tokio::test]
async fn a_million_lines_become_few_updates_and_neither_side_grows() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let worker = Worker::start(&hub, "seq 1 1000000");
    worker.says("connected").await;
    let before = memory(hub.pid);
    let task = model.sends("count to a million").await;
    let done = model.comes_to(&task, "complete").await;
    let result = done["result"].as_str().unwrap();
    assert!(result.starts_with("…\n") && result.ends_with("999999\n1000000") && result.len() < 5000, "{result}");

    let told = model.all_about(&task).await;
    assert!(told.len() < 2000, "{} updates", told.len());
    let said = output(&told);
    let whole: String = (1..=1_000_000).map(|n| format!("{n}\n")).collect();
    assert!(said == whole.trim_end(), "in order, and nothing missing");
    let (worker_kib, hub_kib) = (memory(worker.pid()), memory(hub.pid) - before);
    assert!(worker_kib < 120 * 1024, "the worker took {worker_kib} KiB");
    assert!(hub_kib < 150 * 1024, "the hub grew by {hub_kib} KiB");
}

#[tokio::test]
async fn what_is_more_than_a_task_may_say_is_left_out_and_told() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    // 24 MB.
    let _worker = Worker::start(&hub, "yes this line says nothing | head -n 1000000; echo the end");
    let task = model.sends("talk").await;
    let done = model.comes_to(&task, "complete").await;
    assert!(done["result"].as_str().unwrap().ends_with("nothing\nthe end"), "{done}");
    let told = model.all_about(&task).await;
    let note = &told[told.len() - 2].1;
    let left_out: u64 = note.split_once(" lines were left out").unwrap_or_else(|| panic!("{note}")).0.parse().unwrap();
    let said = output(&told).lines().filter(|line| line.starts_with("this line")).count() as u64;
    assert_eq!(said + left_out, 1_000_001, "every line was sent or counted");
}

#[tokio::test]
async fn a_huge_line_bad_bytes_and_escapes_are_text_when_they_arrive() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let script = r"head -c 1000000 /dev/zero | tr '\0' 'x'; printf '\nbad \377\376 bytes \033[31mred\033[0m\n10%%\r20%%\r30%%\nno end'";
    let _worker = Worker::start(&hub, script);
    let task = model.sends("write badly").await;
    let done = model.comes_to(&task, "complete").await;
    let end = "bad \u{fffd}\u{fffd} bytes red\n30%\nno end";
    assert!(done["result"].as_str().unwrap().ends_with(end), "{done}");
    let told = model.all_about(&task).await;
    assert_eq!(output(&told).matches('x').count(), 1_000_000);
    assert!(told.iter().all(|(_, words)| words.len() <= 16 * 1024 + 100));
    assert!(output(&told).ends_with(end));
}
