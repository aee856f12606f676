//! `stop_computers`: one call, and everything ends.

use serde_json::{Value, json};
use tokio::join;

use super::{failure, text};
use crate::support::Hub;
use crate::support::computers::{hello, turtle};

#[tokio::test]
async fn stopping_ends_chains_and_code_on_all_computers_at_once() {
    let hub = Hub::start().robot().await;
    let mut moving = hub.computer(turtle(12, "base-turtle")).await;
    let mut running = hub.computer(turtle(14, "farm-turtle")).await;
    let mut silent = hub.computer(turtle(15, "")).await;
    let mut bare = hub.computer(hello(16, "only-ping")).await;
    let robot = hub.robot();
    let forward = json!({ "action": "forward" });
    let steps = json!({ "computer": 12, "steps": [{ "action": "forward", "times": 60 }] });
    let code = json!({ "code": "while true do end", "timeout": 300 });
    let lua = json!({ "computer": 14, "code": "while true do end", "timeout": 300 });
    let under_way = async { join!(robot.call("turtle", steps), robot.call("run_lua", lua)) };
    let ((driven, ran), stopped) = join!(under_way, async {
        moving.answers("turtle", forward.clone(), json!({ "ok": true, "fuel": 9 })).await;
        let step = moving.asked("turtle", forward.clone()).await;
        running.asked("lua.run", code).await;
        let (stopped, (), (), _) = join!(
            robot.call("stop_computers", json!({})),
            moving.answers("stop", Value::Null, json!({ "stopped": 1.0 })),
            running.answers("stop", Value::Null, json!({})),
            silent.asked("stop", Value::Null)
        );
        // Work that ended says so, too late for anyone.
        moving.say(&json!({ "type": "response", "id": step, "ok": false, "error": "stopped" })).await;
        stopped
    });
    assert_eq!(
        (&driven["structuredContent"]["done"], &driven["structuredContent"]["stopped_at"]),
        (&json!(1), &json!(2))
    );
    assert!(driven.to_string().contains("all computers were stopped"), "{driven}");
    assert!(failure(&ran).contains("all computers were stopped"), "{ran}");
    assert_eq!(
        text(&stopped),
        "stopped 12 (Label: base-turtle): ended 1\nstopped 14 (Label: farm-turtle)\ntimeout from 15 (Label: null)"
    );
    let computers = json!([
        { "id": 12, "label": "base-turtle", "world": null, "outcome": "stopped", "ended": 1 },
        { "id": 14, "label": "farm-turtle", "world": null, "outcome": "stopped" },
        { "id": 15, "label": null, "world": null, "outcome": "timeout" },
    ]);
    assert_eq!(stopped["structuredContent"], json!({ "computers": computers }));
    // No further step was sent, and what comes after the stop runs.
    let one = json!({ "computer": 12, "steps": [{ "action": "up" }] });
    let (driven, ()) =
        join!(robot.does("turtle", one), moving.answers("turtle", json!({ "action": "up" }), json!({ "ok": true })));
    assert_eq!(driven["done"], 1);
    // A stop is not taken back: 15 hears of nothing but the next ping.
    let (_, (), (), (), ()) =
        join!(robot.call("probe-computers", json!({})), moving.pongs(), running.pongs(), silent.pongs(), bare.pongs());
}

#[tokio::test]
async fn where_nothing_can_run_nothing_is_stopped() {
    let hub = Hub::start().robot().await;
    let _bare = hub.computer(hello(16, "only-ping")).await;
    let mut simple = hello(17, "no-stop");
    simple["capabilities"] = json!(["lua"]);
    let mut simple = hub.computer(simple).await;
    let robot = hub.robot();
    let (ran, stopped) = join!(robot.call("run_lua", json!({ "computer": 17, "code": "x" })), async {
        simple.asked("lua.run", json!({ "code": "x", "timeout": 10 })).await;
        robot.call("stop_computers", json!({})).await
    });
    assert_eq!(text(&stopped), "No linked computer can be told to stop; work under way was cancelled.");
    assert_eq!(stopped["structuredContent"], json!({ "computers": [] }));
    assert!(failure(&ran).contains("all computers were stopped"), "{ran}");
}

#[tokio::test]
async fn reading_is_not_stopped() {
    let hub = Hub::start().robot().await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    let robot = hub.robot();
    let (listed, ()) = join!(robot.does("list_peripherals", json!({ "computer": 12 })), async {
        let id = computer.asked("peripherals.list", Value::Null).await;
        let none = json!({ "stopped": 0 });
        let stop = robot.call("stop_computers", json!({}));
        let (stopped, ()) = join!(stop, computer.answers("stop", Value::Null, none));
        assert_eq!(text(&stopped), "stopped 12 (Label: base-turtle): ended 0");
        computer.result(&id, json!({ "peripherals": [{ "name": "top" }] })).await;
    });
    assert_eq!(listed["peripherals"][0]["name"], "top");
}
