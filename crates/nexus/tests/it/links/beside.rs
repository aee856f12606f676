//! `nexus stdio` and computers: as the holder of the data folder, beside one, and when one comes.

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::join;

use super::{failure, text};
use crate::support::computers::{Computer, free_address, hello, turtle};
use crate::support::{Hub, Program, Stdio, decided, rpc, signal};

/// A door alone that listens for computers there.
fn alone(folder: &TempDir, address: std::net::SocketAddr) -> Program {
    let program = Program::bare(&["stdio"]).data(&folder.path().join("data")).current_dir(folder.path());
    program.env("CC_LINK_HOST", &address.ip().to_string()).env("CC_LINK_PORT", &address.port().to_string())
}

async fn probe(door: &mut Stdio) -> Value {
    door.call("probe-computers", json!({})).await
}

#[tokio::test]
async fn a_door_alone_lets_computers_in() {
    let (folder, address) = (TempDir::new().unwrap(), free_address());
    let mut door = Stdio::legacy(&alone(&folder, address)).await;
    let mut computer = Computer::dial(address, hello(12, "base-turtle")).await;
    let (probed, ()) = join!(probe(&mut door), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");
    let ((_, code), closed) = join!(door.end(), computer.closed());
    assert_eq!((code, closed), (Some(0), 1001), "{}", door.said());
}

#[tokio::test]
async fn a_door_beside_a_hub_reaches_the_computers_of_the_hub() {
    let hub = Hub::start().await;
    let mut base = hub.computer(turtle(12, "base-turtle")).await;
    let mut farm = hub.computer(hello(14, "farm-turtle")).await;
    let mut door = Stdio::legacy_answering(&hub.program(&["stdio"]), Some(decided("once"))).await;
    let (probed, ..) = join!(probe(&mut door), base.pongs(), farm.asked("ping", Value::Null));
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)\ntimeout from 14 (Label: farm-turtle)");

    let lua = json!({ "computer": "base-turtle", "code": "return 1" });
    let params = json!({ "code": "return 1", "timeout": 10 });
    let odd = "{\"output\": \"a\",\n \"results\": [1.0]}";
    let (ran, ()) = join!(door.call("run_lua", lua), async {
        let id = base.asked("lua.run", params).await;
        base.result(&id, serde_json::from_str(odd).unwrap()).await;
    });
    assert_eq!(ran["structuredContent"]["output"], "a", "{ran}");
    let asked = door.heard.iter().find(|heard| heard["method"] == "elicitation/create").unwrap();
    assert!(asked["params"]["message"].as_str().unwrap().contains("computer 12 (base-turtle)"), "{asked}");
    let wrong = door.call("list_peripherals", json!({ "computer": 99 })).await;
    assert!(failure(&wrong).contains("no computer `99` is linked"), "{wrong}");
    let cannot = door.call("list_peripherals", json!({ "computer": 14 })).await;
    assert!(failure(&cannot).contains("its client does not offer `peripherals`"), "{cannot}");
    let (refused, ()) = join!(
        door.call("list_peripherals", json!({ "computer": 12 })),
        base.refuses("peripherals.list", Value::Null, "not now")
    );
    assert!(failure(&refused).contains("the computer said: not now"), "{refused}");
    let (stopped, ()) =
        join!(door.call("stop_computers", json!({})), base.answers("stop", Value::Null, json!({ "stopped": 2 })));
    assert_eq!(text(&stopped), "stopped 12 (Label: base-turtle): ended 2");
    assert_eq!(door.end().await.1, Some(0));
    // The computers are the hub's, and stay.
    let client = hub.modern(&hub.key);
    let (probed, ..) = join!(client.call("probe-computers", json!({})), base.pongs(), farm.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)\npong from 14 (Label: farm-turtle)");
}

/// A door beside a hub, with a call under way: its id at the computer. The call's own is 900.
async fn under_way(hub: &Hub, computer: &mut Computer) -> (Stdio, String) {
    let mut door = Stdio::legacy_answering(&hub.program(&["stdio"]), Some(decided("session"))).await;
    let lua = json!({ "computer": 12, "code": "sleep(300)", "timeout": 300 });
    let params = json!({ "code": "sleep(300)", "timeout": 300 });
    join!(door.call("run_lua", lua.clone()), computer.answers("lua.run", params.clone(), json!({})));
    door.send(&rpc(900, "tools/call", &json!({ "name": "run_lua", "arguments": lua }))).await;
    let id = computer.asked("lua.run", params).await;
    (door, id)
}

#[tokio::test]
async fn a_call_through_a_door_beside_is_cancelled_at_the_computer_too() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    let (mut door, id) = under_way(&hub, &mut computer).await;
    let params = json!({ "requestId": 900 });
    door.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
    computer.cancelled(&id).await;
    let (probed, ()) = join!(probe(&mut door), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");
    assert_eq!(door.end().await.1, Some(0));

    // And a door that is killed waits for nothing any more.
    let (door, id) = under_way(&hub, &mut computer).await;
    signal(door.pid(), Signal::KILL);
    computer.cancelled(&id).await;
}

#[tokio::test]
async fn whoever_stops_all_stops_what_others_started_through_their_own_doors() {
    let hub = Hub::start().robot().await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    let (mut door, _) = under_way(&hub, &mut computer).await;
    let robot = hub.robot();
    join!(robot.does("stop_computers", json!({})), computer.answers("stop", Value::Null, json!({ "stopped": 1 })));
    let ended = door.next().await.unwrap();
    assert_eq!(ended["id"], 900, "{ended}");
    assert!(failure(&ended["result"]).contains("all computers were stopped"), "{ended}");
}

#[tokio::test]
async fn a_door_outlives_the_hub_and_finds_the_computers_with_the_next() {
    let address = free_address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut hub = Hub::start().env("CC_LINK_HOST", &host).env("CC_LINK_PORT", &port).await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    let mut door = Stdio::legacy(&hub.program(&["stdio"])).await;
    let (lost, ()) = join!(door.call("list_peripherals", json!({ "computer": 12 })), async {
        computer.asked("peripherals.list", Value::Null).await;
        signal(hub.pid, Signal::KILL);
    });
    let lost = failure(&lost);
    assert!(lost.contains("it hung up before it answered"), "{lost}");
    hub.ended().await; // until then it may still be asked, and hang up
    let gone = failure(&probe(&mut door).await);
    assert!(gone.contains("`nexus serve` starts one that stays"), "{gone}");
    hub.restart().await;
    let mut computer = Computer::redial(address, turtle(12, "base-turtle")).await;
    let (probed, ()) = join!(probe(&mut door), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");
}

#[tokio::test]
async fn a_door_that_gives_way_hands_its_computers_over_and_still_reaches_them() {
    let (folder, address) = (TempDir::new().unwrap(), free_address());
    let mut door = Stdio::legacy(&alone(&folder, address)).await;
    let mut computer = Computer::dial(address, turtle(12, "base-turtle")).await;
    let (probed, ()) = join!(probe(&mut door), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");

    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let setup = Hub::start().data(&folder.path().join("data")).env("CC_LINK_HOST", &host).env("CC_LINK_PORT", &port);
    let look = json!({ "name": "list_peripherals", "arguments": { "computer": 12 } });
    door.send(&rpc(900, "tools/call", &look)).await;
    computer.asked("peripherals.list", Value::Null).await;
    let (mut hub, mut computer) = join!(setup.into_future(), async {
        assert_eq!(computer.closed().await, 1001);
        Computer::redial(address, turtle(12, "base-turtle")).await
    });
    let lost = door.next().await.unwrap();
    assert_eq!(lost["id"], 900, "{lost}");
    assert!(failure(&lost["result"]).contains("its link was lost"), "{lost}");
    assert_eq!(hub.door(), Some(address), "{}", hub.said());
    hub.has_computers(1).await;
    let (probed, ()) = join!(probe(&mut door), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");
    let client = hub.modern(&hub.key);
    let (probed, ()) = join!(client.call("probe-computers", json!({})), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");

    let (status, closed) = join!(hub.stop(), computer.closed());
    assert_eq!((status.code(), closed), (Some(0), 1001), "{}", hub.said());
    let gone = failure(&probe(&mut door).await);
    assert!(gone.contains("`nexus serve` starts one that stays"), "{gone}");
    assert_eq!(door.end().await.1, Some(0));
}
