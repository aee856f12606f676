//! Lists in pages, and servers that do not come to an end.

use serde_json::{Value, json};

use super::bench::*;
use crate::upstream::client::Listed;

/// What a list comes to, when each page is made from its cursor.
async fn listed(what: Listed, page: impl Fn(Option<u64>) -> Value + Clone + Send + Sync + 'static) -> String {
    let client = connect_old(move |far, heard| {
        let cursor = heard.params()["cursor"].as_str().map(|cursor| cursor.parse().unwrap());
        answer(far, heard.id, page(cursor));
    });
    match client.await.list(what).await {
        Ok(entries) => format!("{} entries", entries.len()),
        Err(failed) => failed.to_string(),
    }
}

#[tokio::test]
async fn pages_are_put_together() {
    let pages = |cursor: Option<u64>| match cursor {
        None => json!({ "tools": [{ "name": "a" }], "nextCursor": "1" }),
        Some(1) => json!({ "tools": [{ "name": "b" }, { "name": "c" }], "nextCursor": "2" }),
        Some(_) => json!({ "tools": [] }),
    };
    assert_eq!(listed(Listed::Tools, pages).await, "3 entries");
    assert_eq!(listed(Listed::Prompts, |_| json!({ "prompts": [1] })).await, "1 entries");
    assert_eq!(listed(Listed::Resources, |_| json!({ "resources": [1], "nextCursor": null })).await, "1 entries");
    assert_eq!(listed(Listed::Templates, |_| json!({ "resourceTemplates": [], "nextCursor": "" })).await, "0 entries");
}

#[tokio::test]
async fn a_list_without_end_is_refused() {
    let nonsense = |why: &str| format!("the server's answer makes no sense: {why}");
    let same = |_| json!({ "tools": [], "nextCursor": "1" });
    assert_eq!(listed(Listed::Tools, same).await, nonsense("the same page twice"));
    let endless = |cursor: Option<u64>| json!({ "tools": [], "nextCursor": (cursor.unwrap_or(0) + 1).to_string() });
    assert_eq!(listed(Listed::Tools, endless).await, "the server lists more than 100 pages");
    let many = |_| json!({ "tools": vec![0; 1001] });
    assert_eq!(listed(Listed::Tools, many).await, "the server lists more than 1000 tools");
    let others = |_| json!({ "prompts": vec![0; 5001] });
    assert_eq!(listed(Listed::Prompts, others).await, "the server lists more than 5000 prompts");
    let huge = |cursor: Option<u64>| json!({ "tools": ["x".repeat(5_000_000)], "nextCursor": (cursor.unwrap_or(0) + 1).to_string() });
    assert_eq!(listed(Listed::Tools, huge).await, "the server lists more than 16777216 bytes");
    let long = |_| json!({ "tools": [], "nextCursor": "1".repeat(20_000) });
    assert_eq!(listed(Listed::Tools, long).await, nonsense("a cursor without end"));
    assert_eq!(listed(Listed::Tools, |_| json!({})).await, nonsense("a page without its list"));
    assert_eq!(listed(Listed::Tools, |_| json!({ "tools": {} })).await, nonsense("a page of a list does not fit"));
}

#[tokio::test]
async fn entries_stay_as_the_server_wrote_them() {
    let client = connect_old(|far, heard| {
        far.say(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":[{{"b" : 1.50,"a":"\u0041"}}]}}}}"#, heard.id));
    });
    let entries = client.await.list(Listed::Tools).await.unwrap();
    assert_eq!(entries[0].get(), r#"{"b" : 1.50,"a":"\u0041"}"#);
}
