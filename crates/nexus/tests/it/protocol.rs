//! What each version of the protocol promises, on the one address.

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Ask, Client, Hub, rpc};

#[tokio::test]
async fn every_old_version_gets_itself_and_works() {
    let hub = Hub::start().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = Client::initialized(&hub, &hub.key, version).await;
        assert_eq!(client.version, version);
        assert!(client.tools().await.contains(&"read_file".to_owned()), "{version}");
        assert_eq!(client.send("ping", json!({})).await.result(), &json!({}), "{version}");
        assert_eq!(client.call("get_session_info", json!({})).await["isError"], false, "{version}");
    }
}

#[tokio::test]
async fn a_version_nobody_knows_is_offered_the_newest_old_one() {
    let hub = Hub::start().await;
    assert_eq!(Client::initialized(&hub, &hub.key, "1999-01-01").await.version, "2025-11-25");
    assert_eq!(Client::initialized(&hub, &hub.key, "2026-07-28").await.version, "2025-11-25");
}

#[tokio::test]
async fn initialize_introduces_the_hub() {
    let hub = Hub::start().await;
    let mut hello = hub.ask(&Client::hello("2025-11-25").key(&hub.key)).await.json()["result"].clone();
    assert!(hello["instructions"].as_str().unwrap().contains("approval_required"));
    hello["instructions"].take();
    hello["serverInfo"]["version"] = "[version]".into();
    assert_json_snapshot!(hello, @r#"
    {
      "protocolVersion": "2025-11-25",
      "capabilities": {
        "tools": {
          "listChanged": true
        },
        "prompts": {
          "listChanged": true
        },
        "resources": {
          "subscribe": true,
          "listChanged": true
        },
        "completions": {},
        "logging": {}
      },
      "serverInfo": {
        "name": "nexus",
        "title": "Nexus",
        "version": "[version]"
      },
      "instructions": null
    }
    "#);
}

#[tokio::test]
async fn discover_introduces_the_hub() {
    let hub = Hub::start().await;
    let found = hub.modern(&hub.key).send("server/discover", json!({})).await;
    let mut found = found.result().clone();
    assert!(found["instructions"].as_str().unwrap().contains("approval_required"));
    found["instructions"].take();
    found["_meta"]["io.modelcontextprotocol/serverInfo"]["version"] = "[version]".into();
    assert_json_snapshot!(found, @r#"
    {
      "resultType": "complete",
      "supportedVersions": [
        "2026-07-28",
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05"
      ],
      "capabilities": {
        "tools": {
          "listChanged": true
        },
        "prompts": {
          "listChanged": true
        },
        "resources": {
          "subscribe": true,
          "listChanged": true
        },
        "completions": {},
        "logging": {}
      },
      "instructions": null,
      "ttlMs": 60000,
      "cacheScope": "private",
      "_meta": {
        "io.modelcontextprotocol/serverInfo": {
          "name": "nexus",
          "title": "Nexus",
          "version": "[version]"
        }
      }
    }
    "#);
}

#[tokio::test]
async fn modern_results_carry_their_type_and_who_made_them_and_old_ones_do_not() {
    let hub = Hub::start().await;
    let [legacy, modern] = hub.both(&hub.key).await;
    for (method, params) in [("tools/list", json!({})), ("tools/call", json!({ "name": "get_session_info" }))] {
        let answer = modern.send(method, params.clone()).await;
        assert_eq!(answer.result()["resultType"], "complete", "{method}");
        assert_eq!(answer.result()["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "nexus", "{method}");
        assert!(answer.head.header("mcp-session-id").is_none());
        let answer = legacy.send(method, params).await;
        assert!(answer.result().get("resultType").is_none() && answer.result().get("_meta").is_none(), "{method}");
    }
    let listed = modern.send("tools/list", json!({})).await;
    assert_eq!(listed.result()["cacheScope"], "private");
    assert!(listed.result()["ttlMs"].is_u64());
}

#[tokio::test]
async fn ping_is_of_the_old_era_only() {
    let hub = Hub::start().await;
    let [legacy, modern] = hub.both(&hub.key).await;
    assert_eq!(legacy.send("ping", json!({})).await.result(), &json!({}));
    let refused = modern.send("ping", json!({})).await;
    assert_eq!((refused.status(), refused.code()), (404, -32601));
}

#[tokio::test]
async fn what_belongs_to_one_era_is_unknown_in_the_other() {
    let hub = Hub::start().await;
    let [legacy, modern] = hub.both(&hub.key).await;
    for method in ["server/discover", "subscriptions/listen"] {
        assert_eq!(legacy.send(method, json!({})).await.code(), -32601, "{method}");
    }
    for method in ["initialize", "logging/setLevel", "resources/subscribe"] {
        let refused = modern.send(method, json!({})).await;
        assert_eq!((refused.status(), refused.code()), (404, -32601), "{method}");
    }
}

#[tokio::test]
async fn the_modern_era_has_no_get_and_no_delete_and_ignores_session_ids() {
    let hub = Hub::start().await;
    let modern = hub.modern(&hub.key);
    for method in ["GET", "DELETE"] {
        let ask = Ask::new(method, "/mcp").key(&hub.key).header("MCP-Protocol-Version", "2026-07-28");
        assert_eq!(hub.ask(&ask).await.status(), 405, "{method}");
    }
    assert_eq!(hub.ask(&Ask::new("PUT", "/mcp").key(&hub.key)).await.status(), 405);
    let ask = modern.ask(&modern.message("tools/list", json!({}))).header("Mcp-Session-Id", "no-such-session");
    assert_eq!(modern.exchange(&ask.header("Last-Event-ID", "7")).await.status(), 200);
}

#[tokio::test]
async fn a_hub_of_the_old_era_tells_modern_clients_what_it_speaks() {
    let hub = Hub::start().yaml("server: { protocol: legacy }").await;
    let refused = hub.modern(&hub.key).send("server/discover", json!({})).await;
    assert_eq!((refused.status(), refused.code()), (400, -32022));
    assert_json_snapshot!(refused.message()["error"]["data"], @r#"
    {
      "supported": [
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05"
      ],
      "requested": "2026-07-28"
    }
    "#);
    assert!(!hub.legacy(&hub.key).await.tools().await.is_empty());
    assert!(hub.sse(&hub.key).await.request("tools/list", json!({})).await["result"].is_object());
    // `nexus tools` takes the way that is open.
    assert!(hub.nexus(&["tools"]).await.ok().contains("read_file"));
}

#[tokio::test]
async fn a_hub_of_the_modern_era_has_no_sessions_at_all() {
    let hub = Hub::start().yaml("server: { protocol: modern }").await;
    let refused = hub.ask(&Client::hello("2025-11-25").key(&hub.key)).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json()["error"]["code"], -32022);
    assert_eq!(refused.json()["error"]["data"]["supported"], json!(["2026-07-28"]));
    assert_eq!(hub.ask(&Ask::get("/mcp").key(&hub.key)).await.status(), 405);
    assert_eq!(hub.ask(&Ask::new("DELETE", "/mcp").key(&hub.key)).await.status(), 405);
    assert_eq!(hub.ask(&Ask::get("/sse").key(&hub.key)).await.status(), 404);
    assert!(!hub.modern(&hub.key).tools().await.is_empty());
}

#[tokio::test]
async fn batches_are_taken_up_to_2025_03_26_and_not_after() {
    let hub = Hub::start().await;
    let batch = json!([
        rpc(1, "tools/list", &json!({})),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        rpc(2, "tools/call", &json!({ "name": "get_session_info" })),
        rpc(3, "no/such", &json!({})),
    ]);
    for version in ["2024-11-05", "2025-03-26"] {
        let client = Client::initialized(&hub, &hub.key, version).await;
        let answers = hub.ask(&client.ask(&batch)).await;
        assert_eq!(answers.status(), 200, "{answers:?}");
        let answers = answers.json();
        let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [1, 2, 3], "{version}");
        assert_eq!(answers[2]["error"]["code"], -32601);
    }
    for version in ["2025-06-18", "2025-11-25"] {
        let client = Client::initialized(&hub, &hub.key, version).await;
        let refused = hub.ask(&client.ask(&batch)).await;
        assert_eq!((refused.status(), &refused.json()["error"]["code"]), (400, &json!(-32600)), "{version}");
        assert!(!client.tools().await.is_empty());
    }
}

#[tokio::test]
async fn a_cursor_nobody_gave_is_refused() {
    let hub = Hub::start().await;
    for client in hub.both(&hub.key).await {
        assert_eq!(client.send("tools/list", json!({ "cursor": "x" })).await.code(), -32602);
    }
}
