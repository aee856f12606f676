//! The end of a hub, as its computers and those who drive them see it.

use serde_json::{Value, json};
use tokio::join;

use super::{failure, with_turtle};
use crate::support::computers::{Computer, hello};
use crate::support::{Hub, finish};

#[tokio::test]
async fn every_link_is_closed_with_a_word_and_the_hub_ends_cleanly() {
    let mut hub = Hub::start().await;
    let mut computers = Vec::new();
    for id in 0..20 {
        computers.push(hub.computer(hello(id, "")).await);
    }
    // One that has not said who it is holds nothing up either.
    let mut stranger = Computer::connect(hub.door().unwrap()).await.unwrap();
    hub.terminate();
    for computer in &mut computers {
        assert_eq!(computer.closed().await, 1001);
    }
    assert_eq!(stranger.closed().await, 1001);
    assert_eq!(hub.ended().await.code(), Some(0), "{}", hub.said());
    assert!(!hub.said().contains("cut off") && !hub.said().contains("did not end"), "{}", hub.said());
    let rows = hub.audit().await;
    let went = rows.iter().filter(|row| row.detail.as_deref().is_some_and(|said| said.contains("went: the hub ends")));
    assert_eq!(went.count(), 20);
    assert_eq!(rows.last().unwrap().event, "hub_stopped");
}

#[tokio::test]
async fn a_call_under_way_is_answered_before_its_computer_is_sent_away() {
    let (mut hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let arguments = json!({ "computer": 12, "code": "x" });
    let mut wire =
        robot.start(&robot.message("tools/call", json!({ "name": "run_lua", "arguments": arguments }))).await;
    let id = computer.asked("lua.run", json!({ "code": "x", "timeout": 10 })).await;
    hub.terminate();
    hub.says("ending; calls in flight have 10 s").await;
    computer.result(&id, json!({ "output": "just in time" })).await;
    let ran = finish(&mut wire).await;
    assert_eq!(ran.result()["structuredContent"]["output"], "just in time", "{ran:?}");
    assert_eq!(computer.closed().await, 1001);
    assert_eq!(hub.ended().await.code(), Some(0), "{}", hub.said());
}

#[tokio::test]
async fn a_call_whose_computer_goes_at_the_end_gets_a_clear_error() {
    let (mut hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let steps = json!({ "computer": 12, "steps": [{ "action": "forward", "times": 9 }] });
    let mut wire = robot.start(&robot.message("tools/call", json!({ "name": "turtle", "arguments": steps }))).await;
    computer.asked("turtle", json!({ "action": "forward" })).await;
    hub.terminate();
    hub.says("ending; calls in flight have 10 s").await;
    drop(computer);
    let driven = finish(&mut wire).await;
    assert!(failure(driven.result()).contains("its link was lost"), "{driven:?}");
    assert_eq!(hub.ended().await.code(), Some(0), "{}", hub.said());
}

#[tokio::test]
async fn a_computer_that_does_not_read_holds_nothing_up() {
    let (mut hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    // Not read, and not closed from this side either.
    let (_, ()) = join!(robot.call("probe-computers", json!({})), async {
        computer.asked("ping", Value::Null).await;
    });
    assert_eq!(hub.stop().await.code(), Some(0), "{}", hub.said());
    assert_eq!(computer.closed().await, 1001);
}
