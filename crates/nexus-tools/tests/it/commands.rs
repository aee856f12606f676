//! `run_command` and `read_output`.

use std::time::Duration;

use nexus_tools::Settings;
use nexus_tools::shell::{ReadOutput, RunCommand};
use serde_json::{Value, json};

use crate::support::{Bench, DEADLINE, Listener, caller, mark, marked, until};

#[tokio::test]
async fn exit_code_stdout_and_stderr_come_back_apart() {
    let ran = run("echo out; echo err >&2; exit 3").await;
    assert_eq!((&ran["exit_code"], &ran["stdout"], &ran["stderr"]), (&json!(3), &json!("out\n"), &json!("err\n")));
    assert_eq!(ran["timed_out"], false);
    assert!(ran.get("note").is_none() && ran.get("stdout_cut").is_none());
}

#[tokio::test]
async fn a_signal_is_told_as_one() {
    let ran = run("kill -9 $$").await;
    assert_eq!((&ran["exit_code"], &ran["signal"]), (&Value::Null, &json!(9)));
}

#[tokio::test]
async fn nothing_can_be_typed_in_and_odd_lines_are_lines() {
    assert_eq!(run("cat; echo done").await["stdout"], "done\n");
    assert_eq!(run("-x; echo still").await["stdout"], "still\n");
    assert_eq!(run("printf 'a\\377b'").await["stdout"], "a\u{fffd}b");
    assert_eq!(run("printf '\\033[31mred\\033[0m'").await["stdout"], "red");
}

#[tokio::test]
async fn commands_do_not_see_the_hubs_keys() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let env = vec![pair("PATH", "/usr/bin:/bin"), pair("MCP_API_KEY", "hunter2"), pair("COLOUR", "blue")];
    let bench = Bench::with(Settings { env, ..Settings::default() });
    let ran = bench.call::<RunCommand>(json!({ "cmd": "env" })).await.unwrap();
    let said = ran["stdout"].as_str().unwrap();
    assert!(said.contains("COLOUR=blue") && said.contains("TERM=dumb"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn when_time_is_over_the_whole_group_is_killed() {
    let mark = mark();
    let line = format!("trap '' TERM; (sleep {mark} & sleep {mark}) & echo begun; sleep {mark}");
    let ran = Bench::new().call::<RunCommand>(json!({ "cmd": line, "timeout": 2 })).await.unwrap();
    assert_eq!(ran["timed_out"], true);
    assert_eq!(ran["stdout"], "begun\n");
    assert!(ran["note"].as_str().unwrap().contains("process group"), "{ran}");
    until("the group is gone", || marked(&mark) == 0).await;
}

#[tokio::test]
async fn what_is_asked_to_end_may_tidy_up() {
    let line = "trap 'echo tidied; exit 5' TERM; while :; do sleep 0.05; done";
    let ran = Bench::new().call::<RunCommand>(json!({ "cmd": line, "timeout": 2 })).await.unwrap();
    assert_eq!((&ran["timed_out"], &ran["stdout"], &ran["exit_code"]), (&json!(true), &json!("tidied\n"), &json!(5)));
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing_running() {
    let (bench, mark) = (Bench::new(), mark());
    let line = format!("sleep {mark} & trap '' TERM; sleep {mark}");
    {
        let call = bench.call::<RunCommand>(json!({ "cmd": line }));
        tokio::pin!(call);
        tokio::select! {
            reply = &mut call => panic!("it sleeps: {reply:?}"),
            () = until("both sleep", || marked(&mark) == 2) => {}
        }
    }
    until("nothing sleeps", || marked(&mark) == 0).await;
}

#[tokio::test]
async fn a_cancelled_call_ends_and_so_does_its_command() {
    let (bench, mark) = (Bench::new(), mark());
    let line = format!("sleep {mark} & sleep {mark}");
    let cancel = bench.cx.cancel.clone();
    let stop = async {
        until("both sleep", || marked(&mark) == 2).await;
        cancel.cancel();
    };
    let (reply, ()) = tokio::join!(bench.call::<RunCommand>(json!({ "cmd": line })), stop);
    assert!(reply.unwrap_err().to_string().contains("cancelled"));
    until("nothing sleeps", || marked(&mark) == 0).await;
}

#[tokio::test]
async fn a_cancelled_command_may_tidy_up_and_is_killed_when_it_does_not_end() {
    let dir = tempfile::tempdir().unwrap();
    let (tidied, mark) = (dir.path().join("tidied"), mark());
    // In the second, one holds the output open from a session of its own, and ends by itself some time later.
    check(&format!("trap 'echo x >{}; exit' TERM; sleep {mark} & wait", tidied.display()), &mark, 1).await;
    assert!(tidied.exists());
    check(&format!("trap '' TERM; setsid sh -c 'sleep 9; :' {mark} & sleep {mark} & wait"), &mark, 2).await;

    async fn check(line: &str, mark: &str, sleepers: usize) {
        let bench = Bench::new();
        let stop = async {
            until("all sleep", || marked(mark) == sleepers).await;
            bench.cx.cancel.cancel();
            tokio::time::Instant::now()
        };
        let (reply, cancelled) = tokio::join!(bench.call::<RunCommand>(json!({ "cmd": line })), stop);
        assert!(reply.unwrap_err().to_string().contains("all it started were killed"));
        // The hub waits three seconds for it.
        assert!(cancelled.elapsed() < Duration::from_secs(3), "{:?}", cancelled.elapsed());
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_already_starts_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    bench.cx.cancel.cancel();
    let line = format!("echo x >{}", dir.path().join("x").display());
    let said = bench.refusal::<RunCommand>(json!({ "cmd": line })).await;
    assert_eq!(said, "the call was cancelled before the command began");
    assert!(!dir.path().join("x").exists());
}

#[tokio::test]
async fn something_in_the_background_does_not_hold_the_reply() {
    let mark = mark();
    let ran = run(&format!("sleep {mark} & echo $!")).await;
    assert_eq!(ran["exit_code"], 0);
    assert!(ran["note"].as_str().unwrap().contains("still runs"), "{ran}");
    let pid: i32 = ran["stdout"].as_str().unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    until("it is gone", || marked(&mark) == 0).await;
}

#[tokio::test]
async fn a_flood_is_cut_in_the_middle_and_can_be_read_on_to_the_last_character() {
    let bench = Bench::new();
    let line = "i=0; while [ $i -lt 30000 ]; do echo \"line $i ä\"; i=$((i+1)); done";
    let whole: String = (0..30_000).map(|i| format!("line {i} ä\n")).collect();
    let ran = bench.call::<RunCommand>(json!({ "cmd": line })).await.unwrap();

    let shown = ran["stdout"].as_str().unwrap();
    let cut = &ran["stdout_cut"];
    let note = format!(
        "\n… {} characters left out, read them with read_output cursor={} …\n",
        cut["left_out"],
        cut["cursor"].as_str().unwrap()
    );
    let (head, tail) = shown.split_once(&note).unwrap();
    assert_eq!(head.chars().count() + tail.chars().count(), 50_000);

    let middle = read_all(&bench, cut["cursor"].clone()).await;
    assert_eq!(middle.chars().count(), cut["left_out"].as_u64().unwrap() as usize);
    assert!(format!("{head}{middle}{tail}") == whole);
}

#[tokio::test]
async fn a_flood_beyond_memory_loses_its_middle_and_says_so() {
    let bench = Bench::new();
    let line = "printf start; yes | head -c 50000000; printf end";
    let ran = bench.call::<RunCommand>(json!({ "cmd": line })).await.unwrap();
    assert_eq!(ran["exit_code"], 0);
    let shown = ran["stdout"].as_str().unwrap();
    assert!(shown.starts_with("starty\n") && shown.ends_with("y\nend"));
    assert!(shown.chars().count() < 50_200);
    let middle = read_all(&bench, ran["stdout_cut"]["cursor"].clone()).await;
    assert!(middle.len() < 9 << 20);
    let lost = 50_000_008 - (8 << 20);
    assert!(middle.contains(&format!("\n… {lost} bytes were not kept …\n")));
}

#[tokio::test]
async fn both_streams_share_the_cap() {
    let bench = Bench::with(Settings { output_cap: 100, ..Settings::default() });
    let ran = bench.call::<RunCommand>(json!({ "cmd": "yes | head -c 1000; yes | head -c 1000 >&2" })).await.unwrap();
    for (stream, cut) in [("stdout", "stdout_cut"), ("stderr", "stderr_cut")] {
        assert_eq!(ran[cut]["left_out"], 950, "{ran}");
        assert!(ran[stream].as_str().unwrap().contains("read_output cursor="));
    }
}

#[tokio::test]
async fn a_cursor_of_another_key_or_session_does_not_exist() {
    let bench = Bench::with(Settings { output_cap: 10, ..Settings::default() });
    let ran = bench.call::<RunCommand>(json!({ "cmd": "yes | head -c 1000" })).await.unwrap();
    let args = json!({ "cursor": ran["stdout_cut"]["cursor"] });
    assert!(bench.call::<ReadOutput>(args.clone()).await.is_ok());
    for other in [caller("tester"), caller("stranger")] {
        let error = bench.call_as::<ReadOutput>(&other, args.clone()).await.unwrap_err();
        assert_eq!(error.kind(), "refused");
        assert!(error.into_reply().text().contains("hint: output is kept for an hour"));
    }
}

#[tokio::test]
async fn progress_tells_the_last_line_and_grows() {
    let mut bench = Bench::new();
    let (listener, mut told) = Listener::new();
    bench.cx.client = listener;
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let line = format!("echo first; echo working; while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let heard = async {
        let first = told.recv().await.unwrap();
        let second = told.recv().await.unwrap();
        std::fs::File::create(&go).unwrap();
        (first, second)
    };
    let call = bench.call::<RunCommand>(json!({ "cmd": line }));
    let both = tokio::time::timeout(DEADLINE, async { tokio::join!(call, heard) });
    let (reply, (first, second)) = both.await.expect("two reports");
    assert_eq!(reply.unwrap()["exit_code"], 0);
    assert!(first.message.unwrap().ends_with(" s: working"));
    assert!(second.done > first.done);
}

#[tokio::test]
async fn a_shell_that_is_not_there_is_told() {
    let bench = Bench::with(Settings { shell: "/no/such/shell".into(), ..Settings::default() });
    let said = bench.refusal::<RunCommand>(json!({ "cmd": "true" })).await;
    assert!(said.starts_with("`/no/such/shell` could not be started: "), "{said}");
    let said = Bench::new().refusal::<RunCommand>(json!({ "cmd": format!(": {}", "x".repeat(300_000)) })).await;
    assert!(said.contains("hint: it is too long for a command line"), "{said}");
}

#[tokio::test]
async fn a_command_that_closes_its_output_is_still_waited_for() {
    let ran = run("exec >&- 2>&-; sleep 0.3; exit 4").await;
    assert_eq!(ran["exit_code"], 4);
}

#[tokio::test]
async fn an_unknown_node_is_refused() {
    let said = Bench::new().refusal::<RunCommand>(json!({ "cmd": "true", "node": "nas" })).await;
    assert_eq!(said, "there is no node `nas`\nhint: known nodes: local");
    assert!(Bench::new().call::<RunCommand>(json!({ "cmd": "true", "node": "localhost" })).await.is_ok());
}

#[tokio::test]
async fn many_commands_at_once_do_not_mix() {
    let bench = Bench::new();
    let calls = (0..20).map(|n| bench.call::<RunCommand>(json!({ "cmd": format!("echo {n}") })));
    let replies = tokio::time::timeout(Duration::from_secs(60), futures_util::future::join_all(calls)).await.unwrap();
    for (n, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.unwrap()["stdout"], format!("{n}\n"));
    }
}

async fn run(cmd: &str) -> Value {
    Bench::new().call::<RunCommand>(json!({ "cmd": cmd })).await.unwrap()
}

/// Reads on until there is no more.
async fn read_all(bench: &Bench, cursor: Value) -> String {
    let mut all = String::new();
    let mut next = Some(cursor);
    while let Some(cursor) = next {
        let page = bench.call::<ReadOutput>(json!({ "cursor": cursor })).await.unwrap();
        all += page["output"].as_str().unwrap();
        next = page.get("next_cursor").cloned();
        assert_eq!(next.is_none(), page["remaining"] == 0);
    }
    all
}
