//! Whole calls: the rounds of questions of the new era, and reading results.

use std::sync::Arc;

use serde_json::{Value, json};

use super::bench::*;
use crate::upstream::client::{Ask, CallResult, Client, Options};
use crate::upstream::error::{ProtocolError, UpstreamError};

/// A server of the new era whose answers to `tools/call` are made from the parameters.
async fn calling(options: Options, respond: fn(&Value) -> Value) -> Client {
    let serve = move |far| new_era(far, json!({}), move |far, heard| answer(far, heard.id, respond(heard.params())));
    connect(options, serve).await.unwrap()
}

fn asks(state: &str) -> Value {
    let question = json!({ "method": "elicitation/create", "params": { "message": "?" } });
    json!({ "resultType": "input_required", "inputRequests": { "who": question }, "requestState": state })
}

#[tokio::test]
async fn rounds_of_questions_are_gone_through() {
    let host = Arc::new(Diary::default());
    let client = calling(options_with(&host), |params| match params["requestState"].as_str() {
        None => asks("\"one\""),
        Some("\"one\"") => json!({ "resultType": "input_required", "requestState": "two" }),
        Some(_) => {
            let text = params.to_string();
            json!({ "content": [{ "type": "text", "text": text }], "structuredContent": params["inputResponses"] })
        }
    });
    let result = client.await.call_tool("t", &json!({ "a": 1 })).await.unwrap();
    assert_eq!(host.read(), [r#"asked elicitation/create {"message":"?"}"#]);
    let params: Value = serde_json::from_str(&result.text()).unwrap();
    assert_eq!((&params["arguments"], &params["requestState"]), (&json!({ "a": 1 }), &json!("two")));
    // Answers are for one round.
    assert_eq!(result.structured().map(|raw| raw.get().to_owned()), None);
}

#[tokio::test]
async fn answers_go_back_under_the_names_of_their_questions() {
    let listener = Arc::new(Diary::default());
    let client = calling(options(), |params| match &params["inputResponses"] {
        Value::Null => asks("s"),
        responses => json!({ "content": [], "structuredContent": responses }),
    });
    let ask = Ask::tool("t", "{}").listened_by(listener.clone());
    let result = client.await.call(ask).await.unwrap();
    assert_eq!(result.structured().unwrap().get(), r#"{"who":{"to":"elicitation/create"}}"#);
    assert_eq!(listener.read().len(), 1);
}

#[tokio::test]
async fn a_server_that_asks_what_nobody_answers_or_without_end_gets_no_further() {
    let client = calling(options(), |_| asks("s")).await;
    let failed = client.call_tool("t", &json!({})).await.unwrap_err();
    let expected = |error: &UpstreamError| matches!(error, UpstreamError::Protocol(ProtocolError::Unanswered { method, .. }) if method == "elicitation/create");
    assert!(expected(&failed.error), "{failed}");

    check(|_| asks("s"), "it asks without end").await;
    check(|_| json!({ "resultType": "input_required" }), "it asks for nothing").await;
    check(|_| json!({ "resultType": "input_required", "inputRequests": [] }), "its questions do not fit").await;
    let many = |_: &Value| {
        let questions: serde_json::Map<String, Value> =
            (0..17).map(|n| (n.to_string(), json!({ "method": "roots/list" }))).collect();
        json!({ "resultType": "input_required", "inputRequests": questions })
    };
    check(many, "it asks too much at once").await;

    async fn check(respond: fn(&Value) -> Value, expected: &str) {
        let client = calling(options_with(&Arc::new(Diary::default())), respond).await;
        let failed = client.call_tool("t", &json!({})).await.unwrap_err();
        assert_eq!(failed.to_string(), format!("the server's answer makes no sense: {expected}"));
    }
}

#[tokio::test]
async fn the_words_of_a_question_in_an_ordinary_result_are_only_words() {
    let text = json!({ "content": [{ "type": "text", "text": "input_required" }], "resultType": "complete" });
    let client = connect_old(move |far, heard| answer(far, heard.id, text.clone())).await;
    assert_eq!(client.call_tool("t", &json!({})).await.unwrap().text(), "input_required");
}

#[test]
fn a_result_can_be_read() {
    let block = |text: &str| json!({ "type": "text", "text": text });
    check(json!({ "content": [block("a\"b"), { "type": "image", "data": "x" }, block("c")] }), "a\"b\nc", false);
    check(json!({ "content": [block("no")], "isError": true }), "no", true);
    check(json!({}), "", false);
    check(json!({ "content": 5 }), "", false);

    #[track_caller]
    fn check(result: Value, text: &str, is_error: bool) {
        let result = CallResult::from(serde_json::value::to_raw_value(&result).unwrap());
        assert_eq!((result.text().as_str(), result.is_error()), (text, is_error));
    }
}
