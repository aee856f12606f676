//! The processes of servers: what they are given, and that none outlives what it is for.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Hub, Stdio, command_of, hostile, is_alive, signal, test_server, until, with};

use super::look;

#[tokio::test]
async fn a_server_gets_the_named_variables_and_no_other() {
    let entry = with(
        hostile("good"),
        json!({
            "env": { "MINE": "${FROM_HUB:-nothing} ${GIVEN}", "PLAIN": "1" },
            "env_passthrough": ["PASSED", "NOT_SET_ANYWHERE"],
            "cwd": "/",
        }),
    );
    let setup = Hub::start()
        .robot()
        .env("GIVEN", "given")
        .env("PASSED", "passed")
        .env("KEPT_BACK", "secret-of-the-hub")
        .env("LANG", "C");
    let hub = setup.upstreams(&json!({ "h": entry })).await;
    hub.upstream_is("h", "ready").await;
    let seen = look(&hub.robot(), "h").await;
    let mut names: Vec<&str> = seen["env"].as_object().unwrap().keys().map(String::as_str).collect();
    // Python's own doing in a plain locale.
    names.retain(|name| *name != "LC_CTYPE");
    assert_eq!(names, ["HOME", "LANG", "MINE", "PASSED", "PATH", "PLAIN"]);
    assert_eq!((&seen["env"]["MINE"], &seen["env"]["PASSED"]), (&json!("nothing given"), &json!("passed")));
    assert_eq!(seen["cwd"], "/");
    assert_eq!(seen["pid"], seen["group"], "a group of its own");
}

#[tokio::test]
async fn ending_the_hub_ends_its_servers_and_their_children_however_stubborn() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    let mut hub = setup
        .upstreams(&json!({ "h": hostile(&format!("grandchildren {}", pids.named("pids"))), "t": test_server() }))
        .await;
    hub.upstream_is("h", "ready").await;
    hub.upstream_is("t", "ready").await;
    let all: Vec<u32> = hub.descendants().into_iter().chain(pids.numbers()).collect();
    assert!(pids.numbers().len() == 3 && all.len() >= 4, "{all:?}");
    assert!(hub.stop().await.success());
    assert!(pids.numbers().iter().all(|pid| !is_alive(*pid)), "gone before the hub is");
    // The guard itself goes when the hub has gone.
    for pid in all {
        until(&format!("process {pid} to end: {}", command_of(pid)), || !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn killing_the_hub_ends_its_servers_and_their_children_however_stubborn() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    let hub = setup.upstreams(&json!({
        "h": hostile(&format!("grandchildren {}", pids.named("pids"))),
        "i": with(hostile("good"), json!({ "isolate": true })),
        "t": test_server(),
    }));
    let mut hub = hub.await;
    for name in ["h", "i", "t"] {
        hub.upstream_is(name, "ready").await;
    }
    super::pid(&hub.legacy_robot().await, "i").await;
    let all: Vec<u32> = hub.descendants().into_iter().chain(pids.numbers()).collect();
    assert!(pids.numbers().len() == 3 && all.len() >= 5, "{all:?}");
    signal(hub.pid, Signal::KILL);
    hub.ended().await;
    for pid in all {
        until(&format!("process {pid} to end: {}", command_of(pid)), || !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn a_killed_server_takes_its_children_along() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    let hub = setup.upstreams(&json!({ "h": hostile(&format!("grandchildren {}", pids.named("pids"))) })).await;
    hub.upstream_is("h", "ready").await;
    let first = pids.numbers();
    signal(first[0], Signal::KILL);
    until("the next life", || pids.numbers().len() == 6).await;
    for pid in first {
        until("the first life to be over", || !is_alive(pid)).await;
    }
    assert!(pids.numbers()[3..].iter().all(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn a_server_that_is_taken_out_of_the_file_ends_with_its_children() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    let hub = setup
        .upstreams(&json!({ "h": hostile(&format!("grandchildren {}", pids.named("pids"))), "t": test_server() }))
        .await;
    hub.upstream_is("h", "ready").await;
    hub.configures(&json!({ "t": test_server() }));
    for pid in pids.numbers() {
        until("it to end", || !is_alive(pid)).await;
    }
    assert!(hub.upstream("h").await.is_null());
}

#[tokio::test]
async fn a_hub_on_pipes_takes_its_servers_along_when_its_client_goes() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    // A folder with the same files, and no daemon.
    let mut hub = setup.upstreams(&json!({ "h": hostile(&format!("grandchildren {}", pids.named("pids"))) })).await;
    hub.upstream_is("h", "ready").await;
    hub.stop().await;
    let before = pids.numbers().len();
    let mut pipes = Stdio::legacy(&hub.program(&["stdio"])).await;
    until("its server to start", || pids.numbers().len() > before || pids.numbers().is_empty()).await;
    let (_, code) = pipes.end().await;
    assert_eq!(code, Some(0));
    for pid in pids.numbers() {
        until("it to end", || !is_alive(pid)).await;
    }
}
