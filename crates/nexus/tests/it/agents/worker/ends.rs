//! How commands end, and how workers do.

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use super::{Worker, number_in, worker};
use crate::support::agents::ATTIC;
use crate::support::{Hub, is_alive, secret, until};

#[tokio::test]
async fn a_command_that_fails_dies_or_cannot_start_is_an_error_with_its_reason() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let mut scripted = Worker::start(&hub, "eval \"$(cat)\"");

    let failed = model.sends("echo last words; exit 3").await;
    let task = model.comes_to(&failed, "error").await;
    assert_eq!((&task["exit_code"], &task["reason"]), (&json!(3), &json!("exit code 3\nlast words")));

    let died = model.sends("kill -SEGV $$").await;
    let task = model.comes_to(&died, "error").await;
    assert_eq!((&task["exit_code"], &task["reason"]), (&json!(null), &json!("killed by SIGSEGV")));

    let silent = model.sends("true").await;
    assert_eq!(model.comes_to(&silent, "complete").await["exit_code"], 0);

    scripted.signal(Signal::TERM);
    assert_eq!(scripted.ended().await, Some(0));
    let program = hub.path("program");
    std::fs::copy("/bin/true", &program).unwrap();
    let gone = Worker::running(&hub, &[], &[program.to_str().unwrap()]);
    gone.says("connected").await;
    std::fs::remove_file(&program).unwrap();
    let never = model.sends("whatever").await;
    let task = model.comes_to(&never, "error").await;
    assert!(task["reason"].as_str().unwrap().starts_with("could not be started: "), "{task}");
}

#[tokio::test]
async fn a_command_that_is_not_there_costs_no_task() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let task = model.sends("whatever").await;
    for (options, command) in [(&[][..], "no-such-program"), (&["--cwd", "/no/such/folder"][..], "/bin/true")] {
        let ran = worker(&hub, options, &[command]).run().await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(&format!("`{command}` cannot be run: ")), "{ran:?}");
    }
    assert_eq!(model.does("get_task", json!({ "id": task })).await["status"], "pending");
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let (left, strayed) = (hub.path("left"), hub.path("strayed"));
    let script = format!(
        "sleep 1000 & echo $! > {}; {} while ! [ -s {} ]; do sleep 0.05; done; echo done",
        left.display(),
        straying(&strayed),
        strayed.display()
    );
    let _worker = Worker::start(&hub, &script);
    let task = model.sends("leave something").await;
    let (left, strayed) = (number_in(&left).await, number_in(&strayed).await);
    assert_eq!(model.comes_to(&task, "complete").await["result"], "done");
    until("the end of what was left", || !is_alive(left) && !is_alive(strayed)).await;
}

/// Starts something in a session of its own, as agents start their shells, and leaves its number there.
fn straying(file: &Path) -> String {
    format!("setsid sh -c 'echo $$ > {}; sleep 1000; sleep 1000' > /dev/null 2>&1 &", file.display())
}

#[tokio::test]
async fn a_worker_that_is_told_to_end_stops_its_command_and_says_so() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let file = hub.path("pid");
    let script = format!("sleep 1000 & echo $! > {}; echo begun; wait", file.display());
    let mut worker = Worker::start(&hub, &script);
    let task = model.sends("wait").await;
    model.hears(&task, "begun").await;
    let child = number_in(&file).await;
    let next = model.sends("and then this").await;

    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await, Some(0));
    until("the end of its command", || !is_alive(child)).await;
    let ended = model.comes_to(&task, "error").await;
    assert_eq!(ended["reason"], "the worker was stopped\nbegun");
    assert_eq!(model.does("get_task", json!({ "id": next })).await["status"], "pending", "it takes no more");
}

#[tokio::test]
async fn a_second_signal_ends_a_worker_at_once_and_its_command_too() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let file = hub.path("pid");
    let script = format!("trap '' INT TERM; echo $$ > {}; while :; do sleep 1; done", file.display());
    let mut worker = Worker::with(&hub, &["--grace", "10m"], &script);
    model.sends("never end").await;
    let command = number_in(&file).await;
    worker.signal(Signal::INT);
    worker.says("a second signal ends at once").await;
    worker.signal(Signal::INT);
    assert_eq!(worker.ended().await, Some(1));
    until("the end of the command", || !is_alive(command)).await;
}

#[tokio::test]
async fn a_killed_worker_takes_its_command_with_it_and_its_task_is_dead_with_a_reason() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let file = hub.path("pid");
    let strayed = hub.path("strayed");
    let script =
        format!("trap '' INT TERM; {} sleep 1000 & echo $! > {}; wait; sleep 1000", straying(&strayed), file.display());
    let mut worker = Worker::with(&hub, &["--lease", "10s"], &script);
    let task = model.sends("work").await;
    let (child, strayed) = (number_in(&file).await, number_in(&strayed).await);
    worker.signal(Signal::KILL);
    worker.ended().await;
    until("the end of its command", || !is_alive(child) && !is_alive(strayed)).await;
    let dead = model.comes_to(&task, "dead").await;
    assert!(dead["reason"].as_str().unwrap().contains("not heard"), "{dead}");
    assert_eq!(dead["attempts"], 1);
}

#[tokio::test]
async fn several_tasks_run_at_a_time_and_no_more_than_wanted() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let folder = hub.path("rooms");
    std::fs::create_dir(&folder).unwrap();
    let here = folder.display();
    // Each says how many are there with it, and leaves when it may.
    let script =
        format!("touch {here}/$NEXUS_TASK; until [ -e {here}/go ]; do sleep 0.05; done; rm {here}/$NEXUS_TASK");
    let worker = Worker::with(&hub, &["--parallel", "3"], &script);
    worker.says("3 tasks at a time").await;
    let mut tasks = Vec::new();
    for n in 0..5 {
        tasks.push(model.sends(&format!("task {n}")).await);
    }
    let there = || std::fs::read_dir(&folder).unwrap().count();
    until("three of them", || there() == 3).await;
    let status = model.does("queue_status", json!({})).await;
    assert_eq!((&status["pending"], &status["in_progress"]), (&json!(2), &json!(3)), "{status}");
    crate::support::write(&folder.join("go"), "");
    for task in &tasks {
        model.comes_to(task, "complete").await;
    }
}

#[tokio::test]
async fn a_wrong_key_target_or_use_ends_a_worker_at_its_start() {
    let hub = Hub::with_agents().await;
    check(worker(&hub, &[], &["true"]).env("NEXUS_AGENT_KEY", "wrong"), 1, "does not take this key").await;
    check(worker(&hub, &[], &["true"]).env("NEXUS_AGENT_KEY", &secret(ATTIC)), 1, "cannot be served").await;
    let trusted = worker(&hub, &["--target", "nowhere"], &["true"]).env("NEXUS_AGENT_KEY", &hub.key);
    check(trusted, 1, "the target `nowhere` cannot be served").await;
    check(worker(&hub, &[], &["true"]).env("NEXUS_AGENT_KEY", ""), 2, "is set but empty").await;
    check(worker(&hub, &[], &[]), 2, "required").await;
    check(worker(&hub, &["--parallel", "17"], &["true"]), 2, "17").await;
    check(worker(&hub, &["--lease", "1s"], &["true"]), 2, "between 10s and 1h").await;
    check(worker(&hub, &["--url", "hub.lan"], &["true"]), 1, "is not the address of a hub").await;

    let keyless = crate::support::Program::new(&["agent", "--target", "homelab", "--", "true"]);
    check(keyless, 1, "a worker needs a key").await;
    let outside = crate::support::Program::new(&["agent", "say", "hello"]);
    check(outside, 1, "NEXUS_AGENT_SOCKET is not set").await;

    async fn check(program: crate::support::Program, code: i32, words: &str) {
        let ran = program.run().await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(words), "`{words}`: {ran:?}");
        assert!(!ran.stderr.contains("0123456789abcdef"), "a key is shown: {ran:?}");
    }
}
