//! A call through the hub: what passes, what is checked, and what is said in either era.

use serde_json::{Value, json};

use crate::support::{
    Ask, Hub, TestServer, decided, finish, hostile, retried, secret, test_server, text_of, until, with,
};

use super::{echo, ready};

#[tokio::test]
async fn a_servers_tools_are_listed_under_its_name_and_say_whose_they_are() {
    let hub = ready(json!({ "GitHub API": hostile("good"), "t": test_server() })).await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        let answer = client.send("tools/list", json!({})).await;
        let tools = answer.result()["tools"].as_array().unwrap();
        let of =
            |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}: {answer:?}"));
        assert_eq!(of("mcp_github_api_echo")["description"], "[MCP:GitHub API] Says it again.");
        assert_eq!(of("mcp_github_api_echo")["inputSchema"]["properties"]["message"]["type"], "string");
        for name in ["mcp_t_echo", "mcp_t_get_time", "mcp_t_add"] {
            assert!(of(name)["description"].as_str().unwrap().starts_with("[MCP:t] "), "{}", of(name));
        }
        // Whether a foreign tool writes, nobody here knows.
        assert_ne!(of("mcp_github_api_echo")["annotations"]["readOnlyHint"], true);
    }
}

#[tokio::test]
async fn two_and_three_are_five_by_every_way_and_in_every_era() {
    let web = TestServer::start("127.0.0.1:0").await;
    let mut servers = json!({});
    for era in ["legacy", "modern", "auto"] {
        servers[format!("pipe-{era}")] = with(test_server(), json!({ "era": era }));
        servers[format!("web-{era}")] = json!({ "url": web.url, "era": era });
    }
    let hub = ready(servers.clone()).await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for name in servers.as_object().unwrap().keys() {
            let result = client.call(&format!("mcp_{}_add", name.replace('-', "_")), json!({ "a": 2, "b": 3 })).await;
            assert_eq!(text_of(&result), "5", "{name}: {result}");
            assert_ne!(result["isError"], true, "{name}: {result}");
        }
    }
    for (name, era) in
        [("pipe-auto", "modern"), ("web-auto", "modern"), ("pipe-legacy", "legacy"), ("web-legacy", "legacy")]
    {
        assert_eq!(hub.upstream(name).await["era"], era, "{name}");
    }
}

#[tokio::test]
async fn arguments_are_checked_against_the_schema_before_anything_is_sent() {
    let setup = Hub::start().robot();
    let notes = setup.notes("notes");
    let hub = setup.upstreams(&json!({ "h": hostile(&format!("good {}", notes.named("state"))) })).await;
    hub.upstream_is("h", "ready").await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for wrong in [
            json!({}),
            json!({ "line": 5 }),
            json!({ "line": "secret-value-of-mine", "more": 1 }),
            json!({ "line": null }),
        ] {
            let result = client.call("mcp_h_note", wrong.clone()).await;
            assert_eq!(result["isError"], true, "{wrong}: {result}");
            assert!(!text_of(&result).contains("secret-value-of-mine"), "{result}");
        }
        let told = text_of(&client.call("mcp_h_note", json!({ "line": 5 })).await);
        assert!(told.contains("line") && told.contains("string"), "{told}");
    }
    assert_eq!(notes.count("note"), 0, "{:?}", notes.lines());
    assert_eq!(text_of(&hub.robot().call("mcp_h_note", json!({ "line": "x" })).await), "1");
}

#[tokio::test]
async fn every_kind_of_content_passes_cleaned_and_with_addresses_that_lead_back() {
    let hub = ready(json!({ "old": hostile("good"), "new": hostile("good era=new") })).await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for server in ["old", "new"] {
            let result = client.call(&format!("mcp_{server}_kinds"), json!({})).await;
            assert_ne!(result["isError"], true, "{result}");
            let content = result["content"].as_array().unwrap();
            let kinds: Vec<&str> = content.iter().map(|block| block["type"].as_str().unwrap()).collect();
            assert_eq!(kinds, ["text", "image", "audio", "resource", "resource_link"], "{result}");
            let words = content[0]["text"].as_str().unwrap();
            assert!(words.starts_with("grüße") && !words.contains(['\u{7}', '\u{202e}', '\u{202c}']), "{words:?}");
            assert_eq!(content[1]["mimeType"], "image/png");
            assert_eq!(content[3]["resource"]["uri"], format!("mcp-{server}+test://inside"));
            assert_eq!(content[4]["uri"], format!("mcp-{server}+test://linked"));
            assert_eq!(result["structuredContent"], json!({ "answer": 42 }));
        }
    }
}

#[tokio::test]
async fn progress_passes_with_the_callers_own_token() {
    let hub = ready(json!({ "old": hostile("good"), "new": hostile("good era=new") })).await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for (server, token) in [("old", json!("mine")), ("new", json!(7))] {
            let arguments = json!({ "steps": 3, "each_ms": 20 });
            let params = json!({ "name": format!("mcp_{server}_slow"), "arguments": arguments, "_meta": { "progressToken": token } });
            let answer = client.send("tools/call", params).await;
            let (last, told) = answer.messages.split_last().unwrap();
            assert_eq!(text_of(&last["result"]), "done", "{last}");
            assert_eq!(told.len(), 3, "{told:?}");
            for (message, step) in told.iter().zip([1.0, 2.0, 3.0]) {
                let params = &message["params"];
                assert_eq!(params["progressToken"], token, "{message}");
                assert!(params["progress"].as_f64() == Some(step), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn giving_up_a_call_gives_it_up_at_the_server() {
    for era in ["old", "new"] {
        let setup = Hub::start().robot();
        let notes = setup.notes("notes");
        let hub = setup.upstreams(&json!({ "h": hostile(&format!("good era={era} {}", notes.named("state"))) })).await;
        hub.upstream_is("h", "ready").await;
        let slow = json!({ "name": "mcp_h_slow", "arguments": { "steps": 1, "each_ms": 60_000 } });

        let modern = hub.robot();
        let wire = modern.start(&modern.message("tools/call", slow.clone())).await;
        until("the call to arrive", || notes.count("slow") == 1).await;
        drop(wire);
        until("the server to hear of the end", || notes.count("cancelled") == 1).await;

        let legacy = hub.legacy_robot().await;
        let message = legacy.message("tools/call", slow);
        let _wire = legacy.start(&message).await;
        until("the call to arrive", || notes.count("slow") == 2).await;
        let cancelled =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": message["id"] } });
        assert_eq!(hub.ask(&legacy.ask(&cancelled)).await.status(), 202);
        until("the server to hear of the end", || notes.count("cancelled") == 2).await;
        // It is as good as before.
        assert_eq!(text_of(&echo(&modern, "h", "still here").await), "still here");
    }
}

#[tokio::test]
async fn a_servers_question_reaches_the_person_behind_the_caller_where_the_eras_allow_it() {
    let servers = json!({ "old": with(hostile("good"), json!({ "isolate": true })), "new": hostile("good era=new") });
    let hub = ready(servers).await;
    let said = json!({ "action": "accept", "content": { "name": "Ada" } });
    let ask = json!({ "message": "who?" });

    let legacy = hub.legacy_asked(&secret("robot")).await;
    for server in ["old", "new"] {
        let (result, asked) = legacy.call_answering(&format!("mcp_{server}_ask"), ask.clone(), &said).await;
        assert!(text_of(&result).starts_with("heard ") && text_of(&result).contains("Ada"), "{server}: {result}");
        assert_eq!((asked.len(), &asked[0]["message"]), (1, &json!(format!("[MCP:{server}] who?"))), "{server}");
    }

    let modern = hub.modern_asked(&secret("robot"));
    let params = json!({ "name": "mcp_new_ask", "arguments": ask });
    let first = modern.send("tools/call", params.clone()).await.result().clone();
    assert_eq!(first["resultType"], "input_required", "{first}");
    assert_eq!(first["inputRequests"]["q"]["params"]["message"], "[MCP:new] who?");
    let state = first["requestState"].as_str().unwrap();
    let mut again = params.clone();
    again["requestState"] = json!(state);
    again["inputResponses"] = json!({ "q": said });
    let last = modern.send("tools/call", again.clone()).await.result().clone();
    assert!(text_of(&last).contains("Ada") && text_of(&last).contains("state-of-the-upstream"), "{last}");

    // Somebody else's answer, other arguments, a forged state: refused, and nothing of it reaches the server.
    again["requestState"] = json!(format!("{}x", &state[..state.len() - 1]));
    let forged = modern.send("tools/call", again).await;
    assert!(!forged.message().to_string().contains("heard"), "{forged:?}");

    // The old server asks while it works, and a caller of the new era cannot be asked then.
    let refused = modern.call("mcp_old_ask", ask.clone()).await;
    assert!(text_of(&refused).contains("heard") && !text_of(&refused).contains("Ada"), "{refused}");
    // Nor can one that does not say it can.
    let mute = hub.legacy_robot().await;
    let refused = mute.call("mcp_old_ask", ask).await;
    assert!(!text_of(&refused).contains("Ada"), "{refused}");
}

#[tokio::test]
async fn a_nine_megabyte_result_passes_whole() {
    let hub = ready(json!({ "old": hostile("good"), "new": hostile("good era=new") })).await;
    for client in [hub.robot(), hub.legacy_robot().await] {
        for server in ["old", "new"] {
            let result = client.call(&format!("mcp_{server}_big"), json!({ "bytes": 9_000_000 })).await;
            assert_eq!(text_of(&result).len(), 9_000_000);
        }
    }
}

#[tokio::test]
async fn a_prefix_replaces_the_servers_name_and_our_own_tools_win_a_clash() {
    let servers = json!({
        "a": with(test_server(), json!({ "prefix": "gh_" })),
        "b": with(hostile("names"), json!({ "prefix": "" })),
    });
    let hub = ready(servers).await;
    let client = hub.robot();
    let tools = client.tools().await;
    for name in ["gh_add", "echo", "list_repos"] {
        assert!(tools.contains(&name.to_owned()), "{name}: {tools:?}");
    }
    assert_eq!(tools.iter().filter(|name| *name == "read_file").count(), 1);
    assert!(tools.iter().any(|name| name.starts_with("read_file_")), "the server's has another name: {tools:?}");
    let file = hub.path("own");
    crate::support::write(&file, "read by the hub itself");
    let read = client.call("read_file", json!({ "path": file })).await;
    assert!(text_of(&read).contains("read by the hub itself"), "{read}");
    assert_eq!(text_of(&client.call("gh_add", json!({ "a": 2, "b": 3 })).await), "5");
}

#[tokio::test]
async fn only_the_tools_that_an_entry_allows_are_offered_and_can_be_called() {
    let picky = with(hostile("good"), json!({ "tools": { "allow": ["e*", "note"], "deny": ["note"] } }));
    let hub = ready(json!({ "h": picky })).await;
    let client = hub.robot();
    let tools: Vec<String> = client.tools().await.into_iter().filter(|name| name.starts_with("mcp_h_")).collect();
    assert_eq!(tools, ["mcp_h_echo"]);
    let answer = client.send("tools/call", json!({ "name": "mcp_h_note", "arguments": { "line": "x" } })).await;
    assert_eq!(answer.code(), -32602);
}

#[tokio::test]
async fn a_call_of_a_server_is_a_row_of_the_record_like_any_other() {
    let hub = ready(json!({ "t": test_server() })).await;
    hub.robot().call("mcp_t_echo", json!({ "message": "hi", "password": "hunter2hunter2" })).await;
    hub.robot().call("mcp_t_echo", json!({ "message": "hi" })).await;
    let row = hub.audit_has("call mcp_t_echo allowed ok").await;
    assert_eq!(row.access.as_deref(), Some("write"));
    assert!(row.origin.as_deref().is_some_and(|origin| origin.contains('t')), "{row:?}");
    let kept = format!("{:?}", hub.audit().await);
    assert!(!kept.contains("hunter2"), "{kept}");
}

#[tokio::test]
async fn many_sessions_share_one_child_unless_each_is_to_have_its_own() {
    let hub = ready(json!({ "s": hostile("good"), "i": with(hostile("good"), json!({ "isolate": true })) })).await;
    let (one, two) = (hub.legacy_robot().await, hub.legacy_robot().await);
    assert_eq!(super::pid(&one, "s").await, super::pid(&two, "s").await);
    let (mine, yours) = (super::pid(&one, "i").await, super::pid(&two, "i").await);
    assert_ne!(mine, yours);
    assert_eq!(super::pid(&one, "i").await, mine, "a session keeps its own");
    let session = one.session.clone().unwrap();
    let end = Ask::new("DELETE", "/mcp").key(&secret("robot")).header("Mcp-Session-Id", &session);
    assert!(hub.ask(&end).await.status() < 300);
    until("the ended session's process to end", || !crate::support::is_alive(mine)).await;
    assert_eq!(super::pid(&two, "i").await, yours);
}

#[tokio::test]
async fn a_gates_question_and_a_servers_question_of_one_call_are_both_put() {
    let hub = Hub::start().upstreams(&json!({ "new": hostile("good era=new") })).await;
    hub.upstream_is("new", "ready").await;
    let client = hub.modern_asked(&hub.key);
    let params = json!({ "name": "mcp_new_ask", "arguments": { "message": "who?" } });
    let first = client.send("tools/call", params.clone()).await.result().clone();
    assert!(first["inputRequests"]["approval"].is_object(), "{first}");
    let second = client.send("tools/call", retried(&params, &first, &decided("session"))).await.result().clone();
    assert_eq!(second["inputRequests"]["q"]["params"]["message"], "[MCP:new] who?", "{second}");
    let mut again = params.clone();
    again["requestState"] = second["requestState"].clone();
    again["inputResponses"] = json!({ "q": { "action": "decline" } });
    let last = client.send("tools/call", again).await.result().clone();
    assert!(text_of(&last).contains("decline"), "{last}");
}

#[tokio::test]
async fn what_a_server_logs_reaches_callers_that_want_it() {
    let hub = ready(json!({ "h": hostile("flood kind=log count=3") })).await;
    let modern = hub.robot();
    let mut message = modern.message("tools/call", json!({ "name": "mcp_h_echo", "arguments": { "message": "x" } }));
    message["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info");
    let mut wire = modern.start(&message).await;
    let answer = finish(&mut wire).await;
    let logged: Vec<&Value> = answer.messages.iter().filter(|told| told["method"] == "notifications/message").collect();
    assert_eq!(logged.len(), 3, "{answer:?}");
    let quiet = modern.send("tools/call", json!({ "name": "mcp_h_echo", "arguments": { "message": "x" } })).await;
    assert_eq!(quiet.messages.len(), 1, "{quiet:?}");
}
