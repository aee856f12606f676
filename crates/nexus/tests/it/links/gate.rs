//! Who may do what with computers, and what the record keeps of it.

use serde_json::{Value, json};
use tokio::join;

use super::{failure, text, with_turtle};
use crate::asking::{status, why};
use crate::support::computers::{Computer, hello, turtle};
use crate::support::{Hub, decided, secret};

/// Nothing about it looks like a secret.
const TOKEN: &str = "plain-words-4711";

/// Every tool that changes something, and a way to call it.
fn writes() -> Vec<(&'static str, Value)> {
    vec![
        ("run_lua", json!({ "computer": 12, "code": "os.reboot()" })),
        ("write_computer_file", json!({ "computer": 12, "path": "startup.lua", "content": "x" })),
        ("call_peripheral", json!({ "computer": 12, "name": "top", "method": "clear" })),
        ("turtle", json!({ "computer": 12, "steps": [{ "action": "inspect" }, { "action": "forward" }] })),
        ("set_redstone", json!({ "computer": 12, "side": "top", "strength": 15 })),
        ("stop_computers", json!({})),
    ]
}

/// Whether a probe is the next thing that the computer hears.
async fn has_heard_nothing(hub: &Hub, computer: &mut Computer) {
    let client = hub.modern(&hub.key);
    let (probed, ()) = join!(client.call("probe-computers", json!({})), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");
}

#[tokio::test]
async fn every_write_waits_for_a_yes_and_reaches_no_computer_before() {
    let (hub, mut computer) = with_turtle().await;
    for client in hub.both(&hub.key).await {
        for (tool, arguments) in writes() {
            let asked = client.call(tool, arguments.clone()).await;
            assert_eq!(status(&asked), "approval_required", "{tool}: {asked}");
            let action = &asked["structuredContent"]["action"];
            assert_eq!((&action["tool"], &action["arguments"]), (&json!(tool), &arguments));
        }
    }
    has_heard_nothing(&hub, &mut computer).await;
    let rows =
        hub.audit_reaches(|rows| rows.iter().filter(|row| row.outcome.as_deref() == Some("waiting")).count() == 12);
    assert!(rows.await.iter().all(|row| row.event != "begun"));
}

#[tokio::test]
async fn reads_are_free_even_for_a_guest_and_looking_around_is_one() {
    let hub = Hub::start().key("guest", "level: sandboxed").await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    let guest = hub.modern(&secret("guest"));
    let here = json!({ "computer": 12 });
    let file = json!({ "computer": 12, "path": "a" });
    let look = json!({ "computer": 12, "steps": [{ "action": "inspectUp" }, { "action": "inventory" }] });
    let (.., ()) = join!(
        async {
            guest.does("probe-computers", json!({})).await;
            guest.does("list_computers", json!({})).await;
            guest.does("list_computer_files", here.clone()).await;
            guest.does("read_computer_file", file).await;
            guest.does("list_peripherals", here.clone()).await;
            guest.does("get_redstone", here.clone()).await;
            let seen = guest.does("turtle", look).await;
            assert_eq!(seen["done"], 2, "{seen}");
        },
        async {
            computer.pongs().await;
            computer.answers("status", Value::Null, json!({})).await;
            computer.answers("files.list", json!({ "path": "/" }), json!({ "entries": {} })).await;
            let read = json!({ "path": "a", "offset": 0, "length": 60_000 });
            computer.answers("files.read", read, json!({ "data": "", "size": 0 })).await;
            computer.answers("peripherals.list", Value::Null, json!({ "peripherals": {} })).await;
            computer.answers("redstone.get", Value::Null, json!({ "sides": {} })).await;
            for action in ["inspectUp", "inventory"] {
                computer.answers("turtle", json!({ "action": action }), json!({ "ok": true })).await;
            }
        }
    );
    for (tool, arguments) in writes() {
        let refused = guest.call(tool, arguments).await;
        assert_eq!(why(&refused), "level_too_low", "{tool}: {refused}");
    }
    has_heard_nothing(&hub, &mut computer).await;
}

#[tokio::test]
async fn a_hub_that_only_reads_refuses_every_write() {
    let hub = Hub::start().robot().yaml("server: { read_only: true }").await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    let robot = hub.robot();
    for (tool, arguments) in writes() {
        let refused = robot.call(tool, arguments).await;
        assert_eq!(why(&refused), "read_only", "{tool}: {refused}");
    }
    let look = json!({ "computer": 12, "steps": [{ "action": "detect" }] });
    let seen = json!({ "ok": true, "result": true });
    join!(robot.does("turtle", look), computer.answers("turtle", json!({ "action": "detect" }), seen));
    has_heard_nothing(&hub, &mut computer).await;
}

#[tokio::test]
async fn whoever_is_asked_reads_which_computer_and_what_and_a_yes_runs_it() {
    let hub = Hub::start().await;
    let mut computer = hub.computer(turtle(12, "base-turtle")).await;
    for client in hub.both_asked(&hub.key).await {
        let arguments = json!({ "computer": 12, "code": "turtle.dig()\nreturn 1" });
        let params = json!({ "code": "turtle.dig()\nreturn 1", "timeout": 10 });
        let once = decided("once");
        let ((ran, asked), ()) = join!(
            client.call_answering("run_lua", arguments.clone(), &once),
            computer.answers("lua.run", params, json!({ "results": [1] }))
        );
        assert_eq!(ran["structuredContent"]["results"], json!([1]), "{ran}");
        let message = asked[0]["message"].as_str().unwrap();
        assert!(message.contains("run Lua on computer 12: turtle.dig()⏎return 1"), "{message}");
        assert!(message.contains("computer 12 (base-turtle), linked from 127.0.0.1"), "{message}");
        let (denied, _) = client.call_answering("run_lua", arguments, &decided("no")).await;
        assert_eq!(why(&denied), "denied", "{denied}");
    }
    has_heard_nothing(&hub, &mut computer).await;
    let rows = hub.audit_reaches(|rows| rows.iter().filter(|row| row.is("call run_lua allowed ok")).count() == 2).await;
    assert_eq!(rows.iter().filter(|row| row.is("begun run_lua allowed")).count(), 2);
    let row = rows.iter().find(|row| row.is("call run_lua allowed ok")).unwrap();
    assert_eq!(row.how.as_deref(), Some("elicited_once"));
    assert!(row.arguments.as_ref().unwrap().contains("turtle.dig()"), "{row:?}");
}

#[tokio::test]
async fn whoever_is_asked_reads_why_nothing_would_come_of_a_yes() {
    let hub = Hub::start().await;
    let _bare = hub.computer(hello(13, "only-ping")).await;
    for client in hub.both_asked(&hub.key).await {
        for (computer, why) in [
            (12, "now it would fail: no computer `12` is linked"),
            (13, "now it would fail: computer 13 (only-ping) cannot do that: its client does not offer `lua`"),
        ] {
            let arguments = json!({ "computer": computer, "code": "x" });
            let (_, asked) = client.call_answering("run_lua", arguments, &decided("no")).await;
            let message = asked[0]["message"].as_str().unwrap();
            assert!(message.contains(why), "{message}");
        }
    }
}

#[tokio::test]
async fn whoever_is_asked_is_told_how_much_they_do_not_see() {
    let hub = Hub::start().yaml("approval: { mode: operator }").await;
    let _computer = hub.computer(turtle(12, "base-turtle")).await;
    let client = hub.modern(&hub.key);
    let signs = json!(vec![json!({ "action": "place", "text": "x".repeat(400) }); 256]);
    for (tool, arguments, whole) in [
        ("run_lua", json!({ "computer": 12, "code": "x".repeat(100_000) }), 100_024),
        ("turtle", json!({ "computer": 12, "steps": signs }), 17 + 256 * 408 + 255 * 2),
        (
            "call_peripheral",
            json!({ "computer": 12, "name": "top", "method": "write", "arguments": ["x".repeat(100_000)] }),
            100_033,
        ),
    ] {
        assert_eq!(status(&client.call(tool, arguments).await), "approval_required");
        let waiting: Value = serde_json::from_str(&hub.nexus(&["pending", "--json"]).await.ok()).unwrap();
        let last = waiting.as_array().unwrap().iter().find(|waiting| waiting["tool"] == tool).unwrap();
        let summary = last["summary"].as_str().unwrap();
        let (kept, rest) = summary.split_once(" … and ").unwrap();
        let rest: usize = rest.strip_suffix(" characters more, which are not kept").unwrap().parse().unwrap();
        let background = " (computer 12 (base-turtle), linked from 127.0.0.1)".len();
        assert_eq!(kept.chars().count() + rest, whole + background, "{tool}");
    }
}

#[tokio::test]
async fn what_fits_no_frame_is_refused_before_anybody_is_asked() {
    let (hub, mut computer) = with_turtle().await;
    let client = hub.modern(&hub.key);
    let code = json!({ "computer": 12, "code": "ü".repeat(30_000) });
    let call = json!({ "computer": 12, "name": "top", "method": "write", "arguments": ["ü".repeat(30_000)] });
    for (tool, arguments) in [("run_lua", code), ("call_peripheral", call)] {
        let refused = client.call(tool, arguments).await;
        assert!(failure(&refused).contains("too long to send: 180"), "{tool}: {refused}");
    }
    has_heard_nothing(&hub, &mut computer).await;
}

#[tokio::test]
async fn comings_and_goings_are_recorded_and_can_be_asked_for() {
    let hub = Hub::start().await;
    let mut first = hub.computer(turtle(12, "base-turtle")).await;
    // A new label on the same link is no coming.
    first.say(&turtle(12, "renamed")).await;
    assert_eq!(first.heard().await, json!({ "type": "hello-ok" }));
    let second = hub.computer(turtle(12, "base-turtle")).await;
    assert_eq!(first.closed().await, 4001);
    drop(second);
    hub.has_computers(0).await;
    hub.audit_reaches(|rows| rows.iter().filter(|row| row.event == "link").count() == 3).await;
    let log = hub.modern(&hub.key).does("get_audit_log", json!({ "outcome": "link" })).await;
    let mut told: Vec<&str> =
        log["rows"].as_array().unwrap().iter().map(|row| row["detail"].as_str().unwrap()).collect();
    told.reverse();
    let expected = [
        "computer 12 (base-turtle) linked from 127.0.0.1",
        "computer 12 (base-turtle) linked anew from 127.0.0.1; its old link was closed",
        "computer 12 (base-turtle) went: the computer hung up",
    ];
    assert_eq!(told, expected);
    assert_eq!(hub.findings().await, [""; 0]);
}

#[tokio::test]
async fn computers_need_the_token_and_it_gets_out_by_no_way() {
    let hub = Hub::start().robot().env("CC_LINK_TOKEN", TOKEN).env("NEXUS_LOG", "trace").await;
    let door = hub.door().unwrap();
    for given in [None, Some("somebody-elses-token"), Some(&TOKEN[1..])] {
        let mut hello = turtle(12, "base-turtle");
        if let Some(token) = given {
            hello["token"] = token.into();
        }
        let mut stranger = Computer::connect(door).await.unwrap();
        stranger.say(&hello).await;
        let told = stranger.heard().await;
        assert_eq!(told["type"], "error", "{told}");
        assert!(told["error"].as_str().unwrap().contains("token") && !told.to_string().contains(TOKEN), "{told}");
        assert_eq!(stranger.closed().await, 4003);
    }
    let mut hello = turtle(12, "base-turtle");
    hello["token"] = TOKEN.into();
    let mut computer = Computer::dial(door, hello.clone()).await;
    let robot = hub.robot();
    let mut shown = String::new();
    // Somebody took the one for the other.
    (hello["computerLabel"], hello["world"]) = (TOKEN.into(), TOKEN.into());
    let mut mixed_up = Computer::dial(door, hello).await;
    let (probed, (), ()) = join!(robot.call("probe-computers", json!({})), computer.pongs(), mixed_up.pongs());
    shown += &probed.to_string();
    assert!(shown.contains("(Label: [redacted], World: [redacted])"), "{shown}");
    drop(mixed_up);
    hub.has_computers(1).await;
    let lua = json!({ "computer": 12, "code": format!("print('{TOKEN}')") });
    let params = json!({ "code": format!("print('{TOKEN}')"), "timeout": 10 });
    let (ran, ()) = join!(
        robot.call("run_lua", lua.clone()),
        computer.answers("lua.run", params.clone(), json!({ "output": TOKEN, "results": [TOKEN], "error": TOKEN }))
    );
    shown += &ran.to_string();
    let no = format!("no {TOKEN}");
    let (ran, ()) = join!(robot.call("run_lua", lua.clone()), computer.refuses("lua.run", params, &no));
    failure(&ran);
    shown += &ran.to_string();
    shown += &robot.call("run_lua", json!({ "computer": TOKEN, "code": "x" })).await.to_string();
    shown += &hub.modern(&hub.key).call("run_lua", lua).await["structuredContent"]["action"].to_string();
    shown += &hub.health().await.to_string();
    // A fault of the hub's reading is not a way out either.
    computer.say(&json!({ "type": TOKEN })).await;
    shown += &computer.heard().await.to_string();
    drop(computer);
    hub.has_computers(0).await;
    let rows = hub.audit_reaches(|rows| rows.iter().filter(|row| row.event == "link").count() == 7).await;
    let is_refusal = |detail: &str| detail.starts_with("a connection from 127.0.0.1 was refused");
    let refused = rows.iter().filter(|row| row.detail.as_deref().is_some_and(is_refusal)).count();
    assert_eq!((refused, &hub.health().await["links"]["refused"]), (3, &json!(3)), "{rows:#?}");
    let kept = format!("{rows:?}{}", hub.said());
    for token in [TOKEN, "somebody-elses-token", &TOKEN[1..]] {
        assert!(!shown.contains(token), "{shown}");
        assert!(!kept.contains(token), "{token} was kept: {kept}");
    }
}

#[tokio::test]
async fn secrets_on_a_computer_are_hidden_from_the_model() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let file = "db:\n  password: hunter2hunter2\n  image: postgres\n";
    let data = {
        use base64::Engine;
        base64::prelude::BASE64_STANDARD.encode(file)
    };
    let read = json!({ "path": "conf", "offset": 0, "length": 60_000 });
    let (shown, ()) = join!(
        robot.call("read_computer_file", json!({ "computer": 12, "path": "conf" })),
        computer.answers("files.read", read, json!({ "data": data, "size": file.len() }))
    );
    assert_eq!(shown["structuredContent"]["content"], file.replace("hunter2hunter2", "[redacted]"));
    let leaky = "PASSWORD=hunter2hunter2";
    let answer = json!({ "output": leaky, "results": [{ "password": "hunter2hunter2" }, leaky], "error": leaky });
    let (ran, ()) = join!(
        robot.call("run_lua", json!({ "computer": 12, "code": "x" })),
        computer.answers("lua.run", json!({ "code": "x", "timeout": 10 }), answer)
    );
    let (called, ()) = join!(
        robot.call("call_peripheral", json!({ "computer": 12, "name": "top", "method": "x" })),
        computer.refuses("peripherals.call", json!({ "name": "top", "method": "x", "arguments": [] }), leaky)
    );
    let (driven, ()) = join!(
        robot.call("turtle", json!({ "computer": 12, "steps": [{ "action": "dig" }] })),
        computer.answers(
            "turtle",
            json!({ "action": "dig" }),
            json!({ "ok": false, "reason": leaky, "result": leaky })
        )
    );
    let all = format!("{shown}{ran}{called}{driven}");
    assert!(!all.contains("hunter2") && all.contains("[redacted]"), "{all}");
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.is("call turtle allowed ok"))).await;
    assert!(!format!("{rows:?}{}", hub.said()).contains("hunter2"), "{rows:#?}");
}
