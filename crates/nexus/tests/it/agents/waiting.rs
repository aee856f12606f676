//! Calls that wait: they come back when something happens, when the hub ends, and lose nothing when their caller goes.

use serde_json::{Value, json};

use crate::support::agents::{AGENT, MODEL, told};
use crate::support::{Client, Hub, Stdio, Wire, finish, secret};

/// Longer than a test may take: a call that comes back was woken.
const LONG: u64 = 60;

/// A call that waits, and has said so.
async fn waiting(client: &Client, tool: &str, mut arguments: Value) -> Wire {
    arguments["wait_seconds"] = LONG.into();
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "w" } });
    let mut wire = client.start(&client.message("tools/call", params)).await;
    assert!(wire.head().await.is_stream());
    let word = wire.next().await;
    assert!(word["params"]["message"].as_str().unwrap().starts_with("waiting for "), "{word}");
    wire
}

/// What it comes back with.
async fn came(wire: &mut Wire) -> Value {
    loop {
        let heard = wire.next().await;
        if heard.get("result").is_some() {
            assert_eq!(heard["result"]["isError"], false, "{heard}");
            return heard["result"]["structuredContent"].clone();
        }
        assert_eq!(heard["method"], "notifications/progress", "{heard}");
    }
}

#[tokio::test]
async fn each_wait_ends_with_what_it_waits_for() {
    let hub = Hub::with_agents().await;
    for (model, agent) in [
        (hub.legacy(&secret(MODEL)).await, hub.modern(&secret(AGENT))),
        (hub.modern(&secret(MODEL)), hub.legacy(&secret(AGENT)).await),
    ] {
        let mut claim = waiting(&agent, "claim_task", json!({})).await;
        let id = model.sends("Work").await;
        let task = came(&mut claim).await["task"].clone();
        assert_eq!(task["id"], json!(id));
        let mut peek = waiting(&agent, "peek_tasks", json!({})).await;
        let later = model.sends("Later").await;
        let peeked = came(&mut peek).await;
        assert_eq!((&peeked["waiting"], &peeked["next"][0]["id"]), (&json!(1), &json!(later)));
        model.does("cancel_task", json!({ "id": later })).await;

        model.pulls(json!({})).await;
        let mut pull = waiting(&model, "pull_updates", json!({})).await;
        agent.does("post_update", json!({ "content": "on it" })).await;
        let pulled = came(&mut pull).await;
        assert_eq!(told(pulled["updates"].as_array().unwrap()), [("progress".to_owned(), "on it".to_owned())]);

        let mut ask = waiting(&agent, "ask_operator", json!({ "question": "Sure?" })).await;
        model.answers(&id, "yes").await;
        let answered = came(&mut ask).await;
        assert_eq!((&answered["answer"], &answered["status"]), (&json!("yes"), &json!("in_progress")));

        let mut beat = waiting(&agent, "peek_tasks", json!({ "claims": [task["claim"]] })).await;
        let mut ask = waiting(&agent, "ask_operator", json!({ "question": "Really?" })).await;
        model.does("cancel_task", json!({ "id": id, "reason": "no longer" })).await;
        let running = came(&mut beat).await["running"][0].clone();
        assert_eq!(
            (&running["id"], &running["holds"], &running["status"]),
            (&json!(id), &json!(false), &json!("cancelled"))
        );
        assert!(running["reason"].as_str().unwrap().contains("no longer"), "{running}");
        let stopped = came(&mut ask).await;
        assert_eq!((&stopped["answered"], &stopped["stop"]), (&json!(false), &json!(true)));
        model.pulls(json!({})).await;
    }
}

#[tokio::test]
async fn an_update_of_another_task_wakes_nobody_who_waits_for_one() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let (first, second) = (model.sends("One").await, model.sends("Two").await);
    for _ in 0..2 {
        agent.does("claim_task", json!({})).await;
    }
    model.pulls(json!({ "task": second })).await;
    let mut pull = waiting(&model, "pull_updates", json!({ "task": second })).await;
    agent.does("post_update", json!({ "task": first, "content": "of one" })).await;
    agent.does("post_update", json!({ "task": second, "content": "of two" })).await;
    let pulled = came(&mut pull).await;
    assert_eq!(told(pulled["updates"].as_array().unwrap()), [("progress".to_owned(), "of two".to_owned())]);
}

#[tokio::test]
async fn an_unknown_claim_ends_the_wait_at_once() {
    let hub = Hub::with_agents().await;
    let agent = hub.modern(&secret(AGENT));
    let peeked = agent.does("peek_tasks", json!({ "claims": ["nobody's"], "wait_seconds": LONG })).await;
    assert_eq!(peeked, json!({ "waiting": 0, "next": [], "running": [] }));
}

#[tokio::test]
async fn a_hub_that_ends_lets_no_call_wait() {
    let mut hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let id = model.sends("Work").await;
    let claim = agent.does("claim_task", json!({})).await["task"]["claim"].clone();
    let asked = agent.does("ask_operator", json!({ "question": "Sure?" })).await;
    model.pulls(json!({})).await;
    let mut wires = [
        waiting(&model, "pull_updates", json!({})).await,
        waiting(&agent, "claim_task", json!({})).await,
        waiting(&agent, "peek_tasks", json!({ "claims": [claim] })).await,
        waiting(&agent, "ask_operator", json!({ "task": id, "question_id": asked["question_id"] })).await,
    ];
    hub.terminate();
    let [pulled, claimed, peeked, asked] = {
        let mut came_back = Vec::new();
        for wire in &mut wires {
            came_back.push(came(wire).await);
        }
        <[Value; 4]>::try_from(came_back).unwrap()
    };
    assert_eq!((&pulled["updates"], &claimed["task"]), (&json!([]), &Value::Null));
    assert_eq!((&peeked["running"][0]["holds"], &asked["answered"]), (&json!(true), &json!(false)));
    assert!(hub.ended().await.success());
}

#[tokio::test]
async fn a_caller_that_goes_away_loses_nothing() {
    let hub = Hub::with_agents().await;
    let (model, agent) = (hub.modern(&secret(MODEL)), hub.modern(&secret(AGENT)));
    let gone = [
        waiting(&agent, "claim_task", json!({ "claim": "mine" })).await,
        waiting(&model, "pull_updates", json!({})).await,
    ];
    drop(gone);
    hub.audit_has("call claim_task allowed cancelled").await;
    hub.audit_has("call pull_updates allowed cancelled").await;
    let id = model.sends("Work").await;
    for _ in 0..2 {
        // The same name, the same task, also when an answer was lost on its way.
        let task = agent.does("claim_task", json!({ "claim": "mine" })).await["task"].clone();
        assert_eq!((&task["id"], &task["attempt"], &task["claim"]), (&json!(id), &json!(1), &json!("mine")));
    }
    assert_eq!(told(&model.pulls(json!({})).await).len(), 1);
    assert_eq!(agent.does("claim_task", json!({})).await["task"], Value::Null);

    // What is reported twice under a name is said once.
    let said = json!({ "content": "half done", "claim": "mine", "source": "1" });
    let first = agent.does("post_update", said.clone()).await;
    assert_eq!(agent.does("post_update", said).await, first);
    let done = json!({ "task": id, "result": "done", "claim": "mine", "source": "2" });
    let first = agent.does("complete_task", done.clone()).await;
    assert_eq!(agent.does("complete_task", done).await, first);
    let heard = told(&model.pulls(json!({})).await);
    assert_eq!(heard, [("progress".to_owned(), "half done".to_owned()), ("complete".to_owned(), "done".to_owned())]);

    // When that task is finished, the name is free for another.
    let next = model.sends("More work").await;
    assert_eq!(agent.does("claim_task", json!({ "claim": "mine" })).await["task"]["id"], json!(next));
    assert_eq!(agent.does("post_update", json!({ "content": "on it", "claim": "mine" })).await["task"], json!(next));
}

#[tokio::test]
async fn a_door_beside_the_hub_shares_its_queue_and_is_woken() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let program = hub.program(&["stdio"]);
    let mut door = Stdio::modern(&program);
    // Its key is the operator's own: it may serve any target.
    let beside = async {
        let claimed = door.call("claim_task", json!({ "target": "attic", "wait_seconds": LONG })).await;
        let id = claimed["structuredContent"]["task"]["id"].as_str().unwrap().to_owned();
        door.call("post_update", json!({ "task": id, "content": "from beside" })).await;
        id
    };
    let here = async {
        let sent = model.does("send_message", json!({ "message": "Sweep", "target": "attic" })).await;
        let mut heard = Vec::new();
        while !heard.iter().any(|(_, content)| content == "from beside") {
            heard.extend(told(&model.pulls(json!({ "wait_seconds": LONG })).await));
        }
        sent["id"].as_str().unwrap().to_owned()
    };
    let (there, here) = tokio::join!(beside, here);
    assert_eq!(there, here);
    // And the other way round.
    let id = model.sends("Work").await;
    agent.does("claim_task", json!({})).await;
    let mut ask = waiting(&agent, "ask_operator", json!({ "question": "Sure?" })).await;
    let pulled = door.call("pull_updates", json!({ "task": id })).await;
    assert_eq!(pulled["structuredContent"]["updates"][1]["content"], "Sure?");
    door.call("cancel_task", json!({ "id": id })).await;
    let code = door.call("list_tasks", json!({ "status": ["input_required"] })).await;
    assert_eq!(code["structuredContent"]["tasks"][0]["id"], json!(id), "a door asks before it writes, too");
    model.answers(&id, "yes").await;
    assert_eq!(came(&mut ask).await["answer"], "yes");
    assert_eq!(door.end().await.1, Some(0));
}

#[tokio::test]
async fn a_wait_that_is_over_ends_with_what_there_is() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let params = json!({ "name": "pull_updates", "arguments": { "wait_seconds": 1 }, "_meta": { "progressToken": 1 } });
    let mut wire = model.start(&model.message("tools/call", params)).await;
    let answer = finish(&mut wire).await;
    let result = &answer.result()["structuredContent"];
    assert_eq!(*result, json!({ "updates": [], "next_cursor": "0", "from_cursor": "0", "more": false }));
    assert_eq!(agent.does("claim_task", json!({ "wait_seconds": 1 })).await["task"], Value::Null);
}

#[tokio::test]
async fn a_key_that_is_revoked_while_it_waits_gets_nothing_more() {
    let hub = Hub::with_agents().await;
    let (model, agent) = hub.bridge().await;
    let key = hub.nexus(&["key", "new", "leaving", "--target", "homelab"]).await.ok();
    let mut claim = waiting(&hub.modern(key.trim()), "claim_task", json!({})).await;
    hub.nexus(&["key", "revoke", "leaving"]).await.ok();
    let id = model.sends("Work").await;
    // It ends without a task, or is cut off; either way the task is for the next.
    let task = agent.does("claim_task", json!({ "wait_seconds": LONG })).await["task"].clone();
    assert_eq!((&task["id"], &task["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(came(&mut claim).await["task"], Value::Null);
}
