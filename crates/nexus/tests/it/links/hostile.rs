//! A computer is somebody else's: what its answers cannot do to the hub, nor to whoever reads them.

use serde_json::{Value, json};
use tokio::join;

use super::{failure, text, with_turtle};
use crate::support::Stdio;

/// An escape sequence, a word turned round, and a line that is hidden in tags.
const DECEIT: &str = "a\u{1b}[2Jb\u{202e}c\u{2066}d\u{0}e\u{e0041}\u{e0042}f";

/// Whether a text, or a name in it, would deceive its reader.
fn deceives(value: &Value) -> bool {
    let odd =
        |c: char| c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202e}' | '\u{2066}' | '\u{e0041}');
    match value {
        Value::String(words) => words.contains(odd),
        Value::Array(items) => items.iter().any(deceives),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains(odd) || deceives(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[tokio::test]
async fn words_of_a_computer_deceive_nobody() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let here = json!({ "computer": 12 });
    let dig = json!({ "computer": 12, "steps": [{ "action": "dig" }] });
    let lua = json!({ "computer": 12, "code": "x" });
    let run = json!({ "code": "x", "timeout": 10 });
    let results = json!([DECEIT, { DECEIT: [{ DECEIT: DECEIT }] }]);
    let entries = json!([{ "name": DECEIT, "kind": "file" }]);
    let peripherals = json!([{ "name": DECEIT, "types": [DECEIT], "methods": [DECEIT] }]);
    let step = json!({ "ok": false, "reason": DECEIT, "result": { DECEIT: DECEIT } });
    let status = json!({ "version": DECEIT });
    for (tool, arguments, method, params, answer) in [
        ("run_lua", &lua, "lua.run", &run, json!({ "output": DECEIT, "results": results, "error": DECEIT })),
        ("list_computer_files", &here, "files.list", &json!({ "path": "/" }), json!({ "entries": entries })),
        ("list_peripherals", &here, "peripherals.list", &Value::Null, json!({ "peripherals": peripherals })),
        ("turtle", &dig, "turtle", &json!({ "action": "dig" }), step),
        ("list_computers", &json!({}), "status", &Value::Null, status),
    ] {
        let (told, ()) = join!(robot.call(tool, arguments.clone()), computer.answers(method, params.clone(), answer));
        assert_eq!(told["isError"], false, "{told}");
        let told = format!("{told}");
        assert!(told.contains("abcdef"), "{tool}: {told}");
        assert!(!deceives(&serde_json::from_str(&told).unwrap()), "{tool}: {told:?}");
    }
    let words = format!("{DECEIT}{}", "long ".repeat(10_000));
    let (told, ()) = join!(robot.call("run_lua", lua), computer.refuses("lua.run", run, &words));
    assert!(failure(&told).contains("abcdef") && !deceives(&told), "{told}");
    assert!(told.to_string().len() < 4_000, "{told}");
    let row = hub.audit_has("call run_lua allowed failed").await;
    assert!(row.detail.is_some_and(|detail| !deceives(&detail.into())));
}

#[tokio::test]
async fn an_answer_that_nobody_can_read_is_an_error_at_every_door() {
    let (hub, mut computer) = with_turtle().await;
    let robot = hub.robot();
    let mut door = Stdio::legacy(&hub.program(&["stdio"])).await;
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let wide = format!("[{}1]", "[],".repeat(30_000));
    for answer in [deep.as_str(), wide.as_str(), "1e999", "\"\\ud800\"", "{\"peripherals\":1}", "null"] {
        // Written by hand: no library would.
        let arguments = json!({ "computer": 12 });
        let (told, ()) = join!(robot.call("list_peripherals", arguments.clone()), computer.answers_raw(answer));
        let (beside, ()) = join!(door.call("list_peripherals", arguments), computer.answers_raw(answer));
        for told in [told, beside] {
            let words = failure(&told);
            assert!(words.contains("answered with something else"), "{words}");
            assert!(words.len() < 1_000, "{words}");
        }
    }
    let (probed, ()) = join!(robot.call("probe-computers", json!({})), computer.pongs());
    assert_eq!(text(&probed), "pong from 12 (Label: base-turtle)");
    assert_eq!(door.end().await.1, Some(0));
}
