//! Turtles: chains of steps, and where they end.

use serde_json::{Value, json};
use tokio::join;

use super::{failure, with_turtle};

fn steps(steps: &Value) -> Value {
    json!({ "computer": 12, "steps": steps })
}

#[tokio::test]
async fn every_step_is_told_with_fuel_position_and_result() {
    let (hub, mut turtle) = with_turtle().await;
    let robot = hub.robot();
    let given = steps(&json!([
        { "action": "turnLeft", "times": 2 },
        { "action": "forward" },
        { "action": "drop", "count": 3 },
        { "action": "place", "text": "hällo" },
        { "action": "inspect" },
        { "action": "inventory" },
    ]));
    let block = json!({ "name": "minecraft:stone", "state": {}, "tags": { "a": true } });
    let slots = json!({ "slots": [{ "slot": 1.0, "name": "minecraft:coal", "count": 3 }], "selected": 1 });
    let (driven, ()) = join!(robot.does("turtle", given), async {
        let turned = json!({ "ok": true, "fuel": 80.0, "selected": 1, "facing": "west" });
        turtle.answers("turtle", json!({ "action": "turnLeft" }), turned.clone()).await;
        turtle.answers("turtle", json!({ "action": "turnLeft" }), turned).await;
        let moved = json!({ "ok": true, "fuel": 79, "position": { "x": 1.0, "y": 64, "z": -3.0 }, "facing": "south" });
        turtle.answers("turtle", json!({ "action": "forward" }), moved).await;
        turtle.answers("turtle", json!({ "action": "drop", "count": 3 }), json!({ "ok": true })).await;
        let odd = json!({ "ok": true, "fuel": {}, "position": {}, "facing": "inside", "reason": 7 });
        turtle.answers("turtle", json!({ "action": "place", "text": "hällo" }), odd).await;
        turtle.answers("turtle", json!({ "action": "inspect" }), json!({ "ok": true, "result": block })).await;
        let last =
            json!({ "ok": true, "result": slots, "fuel": "unlimited", "position": { "x": 1, "y": 64, "z": -3 } });
        turtle.answers("turtle", json!({ "action": "inventory" }), last).await;
    });
    let here = json!({ "x": 1, "y": 64, "z": -3 });
    let expected = json!({
        "computer": "12 (base-turtle)",
        "steps": [
            { "action": "turnLeft", "ok": true, "fuel": 80 },
            { "action": "turnLeft", "ok": true, "fuel": 80 },
            { "action": "forward", "ok": true, "fuel": 79, "position": here },
            { "action": "drop", "ok": true },
            { "action": "place", "ok": true },
            { "action": "inspect", "ok": true, "result": block },
            { "action": "inventory", "ok": true, "result": slots, "fuel": "unlimited", "position": here },
        ],
        "done": 7,
        "fuel": "unlimited",
        "position": here,
    });
    assert_eq!(driven, expected);
}

#[tokio::test]
async fn the_first_failure_ends_the_chain_unless_it_is_to_go_on() {
    let (hub, mut turtle) = with_turtle().await;
    let robot = hub.robot();
    let failed = json!({ "ok": false, "reason": "Movement obstructed", "fuel": 5 });
    let mut given = steps(&json!([{ "action": "inspect" }, { "action": "forward", "times": 3 }, { "action": "dig" }]));
    let (driven, ()) = join!(robot.does("turtle", given.clone()), async {
        // A look that finds nothing ends nothing.
        let nothing = json!({ "ok": false, "reason": "No block to inspect" });
        turtle.answers("turtle", json!({ "action": "inspect" }), nothing).await;
        turtle.answers("turtle", json!({ "action": "forward" }), json!({ "ok": true, "fuel": 5 })).await;
        turtle.answers("turtle", json!({ "action": "forward" }), failed.clone()).await;
    });
    assert_eq!((&driven["done"], &driven["stopped_at"]), (&json!(1), &json!(3)), "{driven}");
    assert_eq!(driven["steps"][2]["reason"], "Movement obstructed");

    given["keep_going"] = true.into();
    let (driven, ()) = join!(robot.does("turtle", given), async {
        for action in ["inspect", "forward", "forward", "forward", "dig"] {
            turtle.answers("turtle", json!({ "action": action }), failed.clone()).await;
        }
    });
    assert_eq!((&driven["done"], driven.get("stopped_at")), (&json!(0), None), "{driven}");
    assert_eq!(driven["steps"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_link_that_is_lost_in_the_middle_is_told_with_what_was_done() {
    let (hub, mut turtle) = with_turtle().await;
    let robot = hub.robot();
    let given = steps(&json!([{ "action": "up", "times": 5 }]));
    let (refused, ()) =
        join!(robot.call("turtle", given.clone()), turtle.refuses("turtle", json!({ "action": "up" }), "stopped"));
    assert!(failure(&refused).contains("the computer said: stopped"), "{refused}");
    let (driven, ()) = join!(robot.does("turtle", given), async {
        turtle.answers("turtle", json!({ "action": "up" }), json!({ "ok": true, "fuel": 9 })).await;
        turtle.asked("turtle", json!({ "action": "up" })).await;
        drop(turtle);
    });
    assert_eq!(
        (&driven["done"], &driven["stopped_at"], &driven["fuel"]),
        (&json!(1), &json!(2), &json!(9)),
        "{driven}"
    );
    assert!(driven["error"].as_str().unwrap().contains("its link was lost"), "{driven}");
}

#[tokio::test]
async fn whoever_asks_hears_of_every_step() {
    let (hub, mut turtle) = with_turtle().await;
    let robot = hub.robot();
    let given = steps(&json!([{ "action": "up", "times": 2 }, { "action": "dig" }]));
    let params = json!({ "name": "turtle", "arguments": given, "_meta": { "progressToken": 7 } });
    let (answer, ()) = join!(robot.send("tools/call", params), async {
        for action in ["up", "up", "dig"] {
            turtle.answers("turtle", json!({ "action": action }), json!({ "ok": true })).await;
        }
    });
    let (last, reports) = answer.messages.split_last().unwrap();
    assert_eq!(last["result"]["structuredContent"]["done"], 3, "{last}");
    let told: Vec<&str> = reports.iter().map(|report| report["params"]["message"].as_str().unwrap()).collect();
    assert_eq!(told, ["step 1 of 3: up", "step 2 of 3: up", "step 3 of 3: dig"]);
}
