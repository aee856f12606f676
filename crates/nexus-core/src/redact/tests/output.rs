//! What the model gets of a tool's output.

use super::*;
use crate::reply::Reply;

fn shown(content: &Value) -> Value {
    let shown = reply(Reply::structured(content, None).unwrap());
    let Reply::Plain { text, structured, .. } = shown else { panic!() };
    assert_eq!(text, structured.unwrap().get());
    serde_json::from_str(&text).unwrap()
}

fn verbatim(content: &Value) -> Value {
    let raw = serde_json::value::to_raw_value(content).unwrap();
    serde_json::from_str(reply(Reply::Verbatim(raw)).text()).unwrap()
}

#[test]
fn structured_content_stays_of_its_form() {
    let given = json!({
        "password": "x", "pin_token": 1234, "secrets": ["a", { "name": "n", "token": "t" }, true], "max_tokens": 5,
        "private_key": { "kind": "rsa", "bits": 2048, "of": [null, "x"] }, "token": "", "next_cursor": "c-1",
        "stdout": "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\npassword: |\n  a\n  b\n", "n": 1.5,
    });
    let expected = json!({
        "password": HIDDEN, "pin_token": 0, "secrets": [HIDDEN, { "name": "n", "token": HIDDEN }, true], "max_tokens": 5,
        "private_key": { "kind": HIDDEN, "bits": 0, "of": [null, HIDDEN] }, "token": "", "next_cursor": "c-1",
        "stdout": "[redacted]\npassword: |\n  [redacted]\n", "n": 1.5,
    });
    assert_eq!(shown(&given), expected);
    assert_eq!(shown(&expected), expected);
}

#[test]
fn what_holds_no_secret_is_the_same_to_the_byte() {
    let odd = r#"{"a": 1e2,  "token_env": "X", "b": "see https:\/\/host\u002fx"}"#;
    let raw = || serde_json::value::RawValue::from_string(odd.to_owned()).unwrap();
    assert_eq!(reply(Reply::Verbatim(raw())).text(), odd);
    let plain = Reply::Plain { text: "own words".into(), structured: Some(raw()), is_error: true };
    let Reply::Plain { text, structured, is_error: true } = reply(plain) else { panic!() };
    assert_eq!((text.as_str(), structured.unwrap().get()), ("own words", odd));
}

#[test]
fn escapes_do_not_hide_a_secret() {
    let raw = r#"{"content":[{"type":"text","text":"\u0070assword=x https:\/\/me:hunter2@host"}]}"#;
    let raw = serde_json::value::RawValue::from_string(raw.to_owned()).unwrap();
    let shown = reply(Reply::Verbatim(raw));
    assert_eq!(shown.text(), r#"{"content":[{"type":"text","text":"password=[redacted] https://[redacted]@host"}]}"#);
}

#[test]
fn of_a_foreign_result_text_is_looked_at_and_the_protocols_fields_are_not() {
    let given = json!({
        "content": [
            { "type": "text", "text": "password=x" },
            { "type": "image", "data": "AKIAAAAABBBBCCCCDDDDEEEE", "mimeType": "image/png" },
            { "type": "resource", "resource": { "uri": "file:///x", "text": "token: y", "blob": "ghp_" } },
            { "type": "resource_link", "uri": "https://me:pw@host/x", "name": "x" },
        ],
        "structuredContent": { "api_key": "z" }, "isError": true, "resultType": "input_required",
        "requestState": "eyJa.eyJb.c", "_meta": { "progressToken": "abc" }, "nextCursor": "token=1",
    });
    let mut expected = given.clone();
    expected["content"][0]["text"] = "password=[redacted]".into();
    expected["content"][2]["resource"]["text"] = "token: [redacted]".into();
    expected["content"][3]["uri"] = "https://[redacted]@host/x".into();
    expected["structuredContent"]["api_key"] = HIDDEN.into();
    assert_eq!(verbatim(&given), expected);
}

#[test]
fn a_tree_too_deep_to_look_into_is_shown_as_text() {
    let deep = format!("{}\"password=x\"{}", "[".repeat(1_000), "]".repeat(1_000));
    let raw = || serde_json::value::RawValue::from_string(deep.clone()).unwrap();
    for given in [Reply::Verbatim(raw()), Reply::Plain { text: deep.clone(), structured: Some(raw()), is_error: false }]
    {
        let Reply::Plain { text, structured: None, .. } = reply(given) else { panic!() };
        assert!(text.contains("password=[redacted]"));
    }
}

proptest! {
    #[test]
    fn a_reply_is_json_whatever_it_holds(texts in prop::collection::vec((hostile(), forms()), 1..4)) {
        let given: Map<String, Value> = texts.into_iter().map(|(name, form)| (name, form.into())).collect();
        let names = given.len();
        prop_assert!(shown(&given.into()).as_object().unwrap().len() <= names);
    }
}
