//! The tools about servers: what they reply, and what they refuse before anybody is asked.

use serde_json::{Value, json};

use nexus_core::name::ServerName;
use nexus_core::principal::{Level, PrincipalId};
use nexus_core::session::Era;

use super::bench::Bench;
use crate::upstream::registry::{Faulty, Visibility};

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn what_the_tools_about_servers_reply_fits_the_schemas_they_list() {
    for level in [Level::Yolo, Level::Sandboxed] {
        let bench = Bench::new(Era::Modern, level).await;
        let listed = bench.ask(Era::Legacy, "tools/list", json!({})).await.unwrap();
        let calls = [
            ("list_upstreams", json!({})),
            ("list_upstreams", json!({ "name": "x" })),
            ("list_upstreams", json!({ "name": "nobody" })),
            ("read_upstream_log", json!({ "name": "x" })),
            ("disconnect_upstream", json!({ "name": "x" })),
            ("list_upstreams", json!({})),
            ("connect_upstream", json!({ "name": "x" })),
            ("connect_upstream", json!({ "name": "nobody" })),
        ];
        for (tool, arguments) in calls {
            let spec = listed["tools"].as_array().unwrap().iter().find(|spec| spec["name"] == tool).unwrap();
            let schema = jsonschema::validator_for(&spec["outputSchema"]).unwrap();
            let result = bench.call(Era::Legacy, tool, arguments.clone()).await;
            let reply = &result["structuredContent"];
            let misfits: Vec<String> = schema.iter_errors(reply).map(|error| error.to_string()).collect();
            assert!(misfits.is_empty(), "{tool} {arguments}: {misfits:?} in {reply}");
        }
    }
}

#[tokio::test]
async fn nobody_is_asked_about_a_server_that_cannot_be_connected() {
    let bench = Bench::new(Era::Modern, Level::Trusted).await;
    let refused = bench.call(Era::Modern, "connect_upstream", json!({ "name": "nobody" })).await;
    assert!(refused.get("inputRequests").is_none(), "{refused}");
    assert!(text(&refused).contains("no server `nobody` is configured"), "{refused}");
    let faulty = Faulty { name: "bad".into(), why: "a comma is missing".into(), source: "mcp.json:3".into() };
    bench.registry.note_faulty(vec![faulty]);
    let refused = bench.call(Era::Modern, "connect_upstream", json!({ "name": "bad" })).await;
    assert!(text(&refused).contains("the entry of `bad` is faulty: a comma is missing"), "{refused}");
    let refused = bench.call(Era::Modern, "connect_upstream", json!({ "name": "x", "visibility": "private" })).await;
    assert!(refused.get("inputRequests").is_none(), "{refused}");
    assert!(text(&refused).contains("for everybody; disconnect it first"), "{refused}");
    assert!(text(&refused).contains("disconnect_upstream") && !text(&refused).contains("mcp.json"), "{refused}");
}

#[tokio::test]
async fn a_server_that_another_key_has_for_itself_is_called_that_by_all_tools() {
    let bench = Bench::new(Era::Modern, Level::Yolo).await;
    let (name, other) = (ServerName::new("x"), PrincipalId::new("other"));
    bench.registry.disconnect(&name, &other).await.unwrap();
    let private = Visibility::Private(other);
    bench.registry.connect_known(&name, private, Some(Level::Trusted)).await.unwrap().ready().await.unwrap();

    let words = "connected privately by another key";
    let listed = bench.call(Era::Legacy, "list_upstreams", json!({})).await;
    let server = &listed["structuredContent"]["servers"][0];
    assert!(server["state"] == "stopped" && server["why"].as_str().unwrap().contains(words), "{listed}");
    for tool in ["connect_upstream", "disconnect_upstream", "read_upstream_log"] {
        let refused = bench.call(Era::Legacy, tool, json!({ "name": "x" })).await;
        assert!(refused["isError"] == true && text(&refused).contains(words), "{tool}: {refused}");
    }
    let mine = bench.call(Era::Legacy, "connect_upstream", json!({ "name": "x", "visibility": "private" })).await;
    assert_eq!(mine["structuredContent"]["visibility"], "private to tester", "{mine}");
}
