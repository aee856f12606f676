//! Two hundred servers come and go, killed or let go: nothing of them is left.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Hub, command_of, hostile, is_alive, signal, test_server, text_of, until, with};

const ROUNDS: usize = 200;
/// Rounds after which everything that is kept once is there.
const WARM: usize = 40;

#[tokio::test]
async fn two_hundred_connects_and_kills_leave_no_process_no_descriptor_and_no_memory() {
    let setup = Hub::start().robot();
    let pids = setup.notes("pids");
    let lazy = |entry: Value| with(entry, json!({ "lazy": true }));
    let servers = json!({
        "t": lazy(test_server()),
        "h": lazy(hostile("good")),
        "g": lazy(hostile(&format!("grandchildren {}", pids.named("pids")))),
    });
    let mut hub = setup.upstreams(&servers).await;
    for name in ["t", "h", "g"] {
        hub.upstream_reaches(name, |now| now["tools"].as_u64() > Some(0)).await;
    }
    let client = hub.legacy_robot().await;
    let mut was = None;
    for round in 0..ROUNDS {
        let name = ["t", "t", "h", "t", "g"][round % 5];
        client.does("connect_upstream", json!({ "name": name })).await;
        let said = client.call(&format!("mcp_{name}_echo"), json!({ "message": "hi" })).await;
        assert_eq!(text_of(&said), "hi", "round {round}: {said}");
        let children = hub.descendants();
        // One that ignores every plea is let go only now and then: that takes four seconds.
        if round % 2 == 0 || (name == "g" && round % 50 != 49) {
            let server = children.iter().find(|pid| command_of(**pid).contains("server")).unwrap();
            signal(*server, Signal::KILL);
        }
        client.does("disconnect_upstream", json!({ "name": name })).await;
        assert!(!children.is_empty());
        if round == WARM {
            until("all to be gone", || hub.descendants().len() <= 1).await;
            was = Some((hub.descriptors(), hub.threads(), hub.resident_kib()));
        }
    }
    until("all to be gone", || hub.descendants().len() <= 1).await;
    for pid in pids.numbers() {
        until("a grandchild to end", || !is_alive(pid)).await;
    }
    let (descriptors, threads, memory) = was.unwrap();
    until("descriptors to be given back", || hub.descriptors() <= descriptors + 1).await;
    assert!(hub.threads() <= threads + 2, "{} threads, there were {threads}", hub.threads());
    let grown = hub.resident_kib().saturating_sub(memory);
    assert!(grown < 6 * 1024, "{grown} KiB more than after {WARM} rounds");
    println!("{ROUNDS} rounds: {grown} KiB more, {} descriptors", hub.descriptors());
    let left = hub.descendants();
    assert!(hub.stop().await.success());
    for pid in left {
        until("the guard to end", || !is_alive(pid)).await;
    }
}
