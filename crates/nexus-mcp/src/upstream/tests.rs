//! A whole hub in front of a whole server: ours, with the fixtures of the conformance suite, in both eras.

mod bench;
mod managing;

use std::sync::Arc;

use serde_json::json;

use nexus_core::name::ServerName;
use nexus_core::principal::Level;
use nexus_core::session::Era;

use self::bench::Bench;
use super::pins::{InMemory, Memory, Pin};
use super::supervisor::Which;
use crate::server::Moved;

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

#[tokio::test]
async fn tools_are_listed_and_called_under_our_names_in_all_four_meetings_of_eras() {
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        for caller in ERAS {
            let listed = bench.ask(caller, "tools/list", json!({})).await.unwrap();
            let tools = listed["tools"].as_array().unwrap();
            let text = tools.iter().find(|tool| tool["name"] == "mcp_x_test_simple_text").unwrap();
            assert!(text["description"].as_str().is_some_and(|about| about.starts_with("[MCP:x] ")), "{text}");
            assert!(tools.iter().all(|tool| !tool["name"].as_str().unwrap().contains("__")), "errands are not listed");

            let result = bench.call(caller, "mcp_x_test_simple_text", json!({})).await;
            assert_eq!(result["content"][0]["text"], "This is a simple text response for testing.", "{result}");
            assert_eq!(result.get("resultType").is_some(), caller == Era::Modern, "{result}");
            let who = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
            assert!(caller == Era::Legacy || *who == "nexus", "{result}");
        }
    }
}

#[tokio::test]
async fn all_kinds_of_content_pass_and_resources_get_our_names() {
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        let result = bench.call(Era::Modern, "mcp_x_test_multiple_content_types", json!({})).await;
        let kinds: Vec<&str> =
            result["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["text", "image", "resource"]);
        assert_eq!(result["content"][2]["resource"]["uri"], "mcp-x+test://mixed-content-resource");
        let failed = bench.call(Era::Legacy, "mcp_x_test_error_handling", json!({})).await;
        assert_eq!(failed["isError"], true, "{failed}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_the_server() {
    let bench = Bench::new(Era::Legacy, Level::Yolo).await;
    let refused = bench.call(Era::Legacy, "mcp_x_test_sampling", json!({ "prompt": 5, "password": "hunter2" })).await;
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(refused["isError"] == true && text.contains("/prompt") && text.contains("string"), "{text}");
    assert!(text.contains("nothing was sent") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn progress_and_log_messages_reach_the_caller_with_its_own_token() {
    for server in ERAS {
        for caller in ERAS {
            let bench = Bench::new(server, Level::Yolo).await;
            bench.call(caller, "mcp_x_test_tool_with_progress", json!({})).await;
            let heard = bench.heard("notifications/progress");
            assert!(heard.len() >= 3, "{server:?} {caller:?}: {heard:?}");
            assert!(heard.iter().all(|params| params["progressToken"] == "mine"), "{heard:?}");

            bench.call(caller, "mcp_x_test_tool_with_logging", json!({})).await;
            let heard = bench.heard("notifications/message");
            assert!(heard.iter().any(|params| params["logger"] == "MCP:x"), "{server:?} {caller:?}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn a_question_of_the_new_era_goes_out_with_wrapped_state_and_comes_back_with_the_servers_own() {
    let bench = Bench::new(Era::Modern, Level::Yolo).await;
    let tool = "mcp_x_test_input_required_result_request_state";
    let asked = bench.call(Era::Modern, tool, json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let state = asked["requestState"].as_str().unwrap();
    assert!(state.starts_with("nexus-up:"), "{state}");
    let message = asked["inputRequests"]["confirm"]["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("[MCP:x] "), "{message}");

    let answers = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    let again =
        |state: &str| json!({ "name": tool, "arguments": {}, "inputResponses": answers, "requestState": state });
    let done = bench.ask(Era::Modern, "tools/call", again(state)).await.unwrap();
    assert_eq!(done["content"][0]["text"], "state-ok", "{done}");

    let tampered = bench.ask(Era::Modern, "tools/call", again(&format!("{state}-TAMPERED"))).await.unwrap_err();
    assert_eq!(tampered.code, -32602);
    let other = json!({ "name": "mcp_x_test_input_required_result_tampered_state", "arguments": {},
        "inputResponses": answers, "requestState": state });
    assert_eq!(bench.ask(Era::Modern, "tools/call", other).await.unwrap_err().code, -32602);
}

#[tokio::test]
async fn a_question_reaches_a_caller_of_the_old_era_from_servers_of_both() {
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        let answering =
            bench.answer_with(json!({ "action": "accept", "content": { "username": "ada", "email": "a@b.c" } }));
        let done = bench.call(Era::Legacy, "mcp_x_test_elicitation", json!({ "message": "Who are you?" })).await;
        let question = answering.await.unwrap().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["message"], "[MCP:x] Who are you?");
        assert!(done["content"][0]["text"].as_str().is_some_and(|text| text.contains("ada")), "{server:?}: {done}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_human_thinks_about_its_question_a_server_is_not_late() {
    let bench = Bench::new(Era::Legacy, Level::Yolo).await;
    let limit = bench.upstream.config().timeout;
    let answer = json!({ "action": "accept", "content": { "username": "ada", "email": "a@b.c" } });
    let answering = bench.answer_after(limit * 2, answer);
    let done = bench.call(Era::Legacy, "mcp_x_test_elicitation", json!({ "message": "?" })).await;
    answering.await.unwrap().unwrap();
    assert!(done["content"][0]["text"].as_str().is_some_and(|text| text.contains("ada")), "{done}");
}

#[tokio::test]
async fn a_server_of_the_old_era_cannot_ask_a_caller_of_the_new_one() {
    let bench = Bench::new(Era::Legacy, Level::Yolo).await;
    let refused = bench.call(Era::Modern, "mcp_x_test_elicitation", json!({ "message": "?" })).await;
    assert_eq!(refused["isError"], true, "{refused}");
    let log: Vec<String> = bench.upstream.log().last(50).into_iter().map(|line| line.text).collect();
    assert!(log.iter().any(|line| line.contains("elicitation/create") && line.contains("refused")), "{log:?}");
}

#[tokio::test]
async fn prompts_and_resources_are_offered_under_our_names() {
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        for caller in ERAS {
            let prompts = bench.ask(caller, "prompts/list", json!({})).await.unwrap();
            let names: Vec<&str> =
                prompts["prompts"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
            assert!(names.contains(&"mcp_x_test_prompt_with_arguments"), "{names:?}");
            let get = json!({ "name": "mcp_x_test_prompt_with_arguments", "arguments": { "arg1": "a", "arg2": "b" } });
            let got = bench.ask(caller, "prompts/get", get).await.unwrap();
            assert!(got["messages"][0]["content"]["text"].as_str().is_some_and(|text| text.contains('a')), "{got}");

            let resources = bench.ask(caller, "resources/list", json!({})).await.unwrap();
            assert_eq!(resources["resources"][0]["uri"], "mcp-x+test://static-text", "{resources}");
            assert_eq!(resources.get("ttlMs").is_some(), caller == Era::Modern);
            let templates = bench.ask(caller, "resources/templates/list", json!({})).await.unwrap();
            assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "mcp-x+test://template/{id}/data");
            let uri = "mcp-x+test://template/7/data";
            let read = bench.ask(caller, "resources/read", json!({ "uri": uri })).await.unwrap();
            assert_eq!(read["contents"][0]["uri"], uri, "{read}");
            let gone = bench.ask(caller, "resources/read", json!({ "uri": "mcp-x+test://nothing" })).await.unwrap_err();
            // The new era has no code of its own for it, so what a server of that era means cannot be told.
            let invalid = caller == Era::Modern || server == Era::Modern;
            assert_eq!(gone.code, if invalid { -32602 } else { -32002 }, "{gone:?}");
            let nobodys =
                bench.ask(caller, "resources/read", json!({ "uri": "test://static-text" })).await.unwrap_err();
            assert_eq!(nobodys.code, if caller == Era::Modern { -32602 } else { -32002 });
            let reference = json!({ "type": "ref/prompt", "name": "mcp_x_test_prompt_with_arguments" });
            let complete = json!({ "ref": reference, "argument": { "name": "arg1", "value": "x" } });
            assert!(bench.ask(caller, "completion/complete", complete).await.unwrap()["completion"].is_object());
        }
        let follow = bench.ask(Era::Legacy, "resources/subscribe", json!({ "uri": "mcp-x+test://watched-resource" }));
        assert_eq!(follow.await.unwrap(), json!({}));
        assert!(bench.peer.follows("mcp-x+test://watched-resource"));
        bench
            .ask(Era::Legacy, "resources/unsubscribe", json!({ "uri": "mcp-x+test://watched-resource" }))
            .await
            .unwrap();
        assert!(!bench.peer.follows("mcp-x+test://watched-resource"));
    }
}

#[tokio::test]
async fn a_sandboxed_key_reaches_nothing_of_a_server() {
    let bench = Bench::new(Era::Modern, Level::Sandboxed).await;
    let refused = bench.call(Era::Legacy, "mcp_x_test_simple_text", json!({})).await;
    assert_eq!(refused["structuredContent"]["error"]["why"], "level_too_low", "{refused}");
    let read = json!({ "uri": "mcp-x+test://static-text" });
    let refused = bench.ask(Era::Legacy, "resources/read", read.clone()).await.unwrap_err();
    assert!(refused.message.contains("level"), "{refused:?}");
    assert!(bench.ask(Era::Legacy, "resources/subscribe", read).await.is_err());
}

#[tokio::test]
async fn a_trusted_key_is_asked_before_a_server_is_used_for_anything() {
    let bench = Bench::new(Era::Modern, Level::Trusted).await;
    let get = json!({ "name": "mcp_x_test_simple_prompt" });
    let asked = bench.ask(Era::Modern, "prompts/get", get.clone()).await.unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert!(asked["requestState"].as_str().is_some_and(|state| state.starts_with("nexus:")), "{asked}");
    let question = asked["inputRequests"].to_string();
    assert!(question.contains("test_audio_content") && question.contains("in memory"), "{question}");

    let yes = json!({ "approval": { "action": "accept", "content": { "decision": "session" } } });
    let mut again = get;
    again["inputResponses"] = yes;
    again["requestState"] = asked["requestState"].clone();
    let got = bench.ask(Era::Modern, "prompts/get", again).await.unwrap();
    assert!(got["messages"].is_array(), "{got}");
    let free = bench.call(Era::Modern, "mcp_x_test_simple_text", json!({})).await;
    assert_eq!(free["isError"], false, "{free}");
}

#[tokio::test]
async fn a_yes_to_one_call_holds_through_the_servers_own_questions_and_no_longer() {
    let bench = Bench::new(Era::Modern, Level::Trusted).await;
    let tool = "mcp_x_test_input_required_result_request_state";
    let mut call = json!({ "name": tool, "arguments": {} });
    let gate = |decision: &str| json!({ "approval": { "action": "accept", "content": { "decision": decision } } });
    // To connect, each call to be asked about; then this call.
    for decision in ["each", "once"] {
        let asked = bench.ask(Era::Modern, "tools/call", call.clone()).await.unwrap();
        assert!(asked["requestState"].as_str().is_some_and(|state| state.starts_with("nexus:")), "{asked}");
        call["inputResponses"] = gate(decision);
        call["requestState"] = asked["requestState"].clone();
    }
    let asked = bench.ask(Era::Modern, "tools/call", call.clone()).await.unwrap();
    assert!(asked["requestState"].as_str().is_some_and(|state| state.starts_with("nexus-up:")), "{asked}");
    call["inputResponses"] = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    call["requestState"] = asked["requestState"].clone();
    let done = bench.ask(Era::Modern, "tools/call", call.clone()).await.unwrap();
    assert_eq!(done["content"][0]["text"], "state-ok", "{done}");

    let next = bench.ask(Era::Modern, "tools/call", call).await.unwrap();
    assert!(next["requestState"].as_str().is_some_and(|state| state.starts_with("nexus:")), "asked anew: {next}");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_given_up_at_the_server() {
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        let (calling, cancel) = bench.start("mcp_x_test_sleep", json!({ "seconds": 60 }));
        bench.until("a call at the server", || bench.running_at_the_server() == 1).await;
        cancel.cancel();
        calling.await.unwrap();
        bench.until("no call at the server", || bench.running_at_the_server() == 0).await;
    }
}

#[tokio::test]
async fn servers_are_managed_by_tools_of_our_own() {
    let bench = Bench::new(Era::Modern, Level::Yolo).await;
    let listed = bench.call(Era::Legacy, "list_upstreams", json!({})).await;
    let server = &listed["structuredContent"]["servers"][0];
    assert_eq!((&server["name"], &server["state"], &server["era"]), (&json!("x"), &json!("ready"), &json!("modern")));
    let one = bench.call(Era::Legacy, "list_upstreams", json!({ "name": "x" })).await;
    let tools = one["structuredContent"]["servers"][0]["list"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "mcp_x_test_simple_text" && tool["standing"] == "allowed"));
    let log = bench.call(Era::Legacy, "read_upstream_log", json!({ "name": "x" })).await;
    assert!(log["structuredContent"]["lines"].is_array(), "{log}");
    assert_eq!(bench.call(Era::Legacy, "read_upstream_log", json!({ "name": "y" })).await["isError"], true);

    let gone = bench.call(Era::Legacy, "disconnect_upstream", json!({ "name": "x" })).await;
    assert_eq!(gone["structuredContent"]["state"], "stopped", "{gone}");
    let back = bench.call(Era::Legacy, "connect_upstream", json!({ "name": "x", "visibility": "private" })).await;
    assert_eq!(back["structuredContent"]["state"], "ready", "{back}");
    assert_eq!(back["structuredContent"]["visibility"], "private to tester");
    let strange = bench.call(Era::Legacy, "connect_upstream", json!({ "name": "nobody" })).await;
    assert!(strange["content"][0]["text"].as_str().is_some_and(|text| text.contains("list_upstreams")), "{strange}");
}

#[tokio::test]
async fn connecting_asks_as_for_the_server_itself() {
    let trusted = Bench::new(Era::Modern, Level::Trusted).await;
    let asked = trusted.call(Era::Modern, "connect_upstream", json!({ "name": "x" })).await;
    let form = &asked["inputRequests"]["approval"]["params"];
    assert_eq!(form["requestedSchema"]["properties"]["decision"]["enum"], json!(["session", "each", "no"]), "{asked}");
    assert!(form["message"].as_str().is_some_and(|message| message.contains("in memory")), "{form}");
    let sandboxed = Bench::new(Era::Modern, Level::Sandboxed).await;
    let refused = sandboxed.call(Era::Modern, "connect_upstream", json!({ "name": "x" })).await;
    assert_eq!(refused["structuredContent"]["error"]["why"], "level_too_low", "{refused}");
}

#[tokio::test]
async fn a_sandboxed_key_is_not_told_where_servers_are() {
    for (level, is_told) in [(Level::Sandboxed, false), (Level::Trusted, true)] {
        let bench = Bench::new(Era::Modern, level).await;
        let listed = bench.call(Era::Legacy, "list_upstreams", json!({})).await;
        let server = &listed["structuredContent"]["servers"][0];
        assert_eq!((&server["name"], server.get("endpoint").is_some()), (&json!("x"), is_told), "{listed}");
    }
}

#[tokio::test]
async fn a_tool_that_changed_is_not_listed_and_says_no_more_than_that_when_it_is_called() {
    let memory = Arc::new(InMemory::default());
    let server = ServerName::new("x");
    let before = json!({ "name": "echo", "description": "Something else.", "inputSchema": { "type": "object" } });
    memory.allow(&server, vec![Pin::of("echo", &before)]).await.unwrap();
    let bench = Bench::remembering(Era::Legacy, Level::Yolo, memory).await;
    let listed = bench.ask(Era::Legacy, "tools/list", json!({})).await.unwrap();
    assert!(!listed.to_string().contains("mcp_x_echo"), "{listed}");
    let refused = bench.call(Era::Legacy, "mcp_x_echo", json!({ "text": "a" })).await;
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("has changed") && text.contains("`nexus mcp allow x echo`"), "{text}");
    assert!(!text.contains("Something else."), "what is not allowed yet is not for the model: {text}");

    bench.upstream.allow(&Which::Named(vec!["echo".into()])).await.unwrap();
    let is_listed = || bench.listing().contains("mcp_x_echo");
    bench.until("the tool is listed again", is_listed).await;
}

#[tokio::test]
async fn lists_that_change_at_the_server_change_here() {
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        let mut news = bench.news();
        bench.call(Era::Legacy, "mcp_x_test_trigger_prompt_change", json!({})).await;
        while news.next().await != Some(Moved::Prompts) {}
        let prompts = bench.ask(Era::Legacy, "prompts/list", json!({})).await.unwrap();
        assert_eq!(prompts["prompts"].as_array().map(Vec::len), Some(6), "{prompts}");
    }
}

#[tokio::test]
async fn changes_of_a_resource_reach_those_who_follow_it_under_our_name() {
    let uri = "mcp-x+test://watched-resource";
    for server in ERAS {
        let bench = Bench::new(server, Level::Yolo).await;
        let strange = "mcp-y+test://nobodys";
        let (listening, cancel) = bench.listen(&json!({ "resourceSubscriptions": [uri, strange] }));
        let acknowledged = "notifications/subscriptions/acknowledged";
        bench.until("the subscription", || !bench.heard(acknowledged).is_empty()).await;
        assert_eq!(bench.heard(acknowledged)[0]["notifications"], json!({ "resourceSubscriptions": [uri] }));

        let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated",
            "params": { "uri": "test://watched-resource" } });
        bench.server_says(&updated);
        bench.until("the update", || !bench.heard("notifications/resources/updated").is_empty()).await;
        let told = &bench.heard("notifications/resources/updated")[0];
        assert_eq!((&told["uri"], &told["_meta"]["io.modelcontextprotocol/subscriptionId"]), (&json!(uri), &json!(7)));
        cancel.cancel();
        listening.await.unwrap();
    }
}
