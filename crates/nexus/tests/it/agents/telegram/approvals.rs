//! The operator's yes and no, by buttons.

use serde_json::json;

use super::{TARGETS, faultless};
use crate::support::telegram::{GROUP, OPERATOR, STRANGER, Say, TOKEN, Telegram};
use crate::support::{Client, Hub, secret, write};

async fn operated(telegram: &Telegram) -> Hub {
    let yaml = format!("{}\napproval: {{ mode: operator }}\n", telegram.yaml(TARGETS));
    Hub::start().yaml(&yaml).key("robot", "").env("TELEGRAM_BOT_TOKEN", TOKEN).await
}

/// A write that waits; its code.
async fn asks(model: &Client, message: &str) -> String {
    let waiting = model.call("send_message", json!({ "target": "homelab", "message": message })).await;
    assert_eq!(waiting["isError"], true, "{waiting}");
    let code = waiting["structuredContent"]["code"].as_str();
    code.unwrap_or_else(|| panic!("{waiting}")).to_owned()
}

#[tokio::test]
async fn a_waiting_call_is_shown_with_buttons_that_give_way_to_the_outcome() {
    let telegram = Telegram::start().await;
    let hub = operated(&telegram).await;
    let model = hub.legacy(&secret("robot")).await;
    let code = asks(&model, "first").await;
    let prompt = telegram.hears(&code).await;
    assert_eq!(prompt.chat, OPERATOR);
    assert!(prompt.text.contains("send_message") && prompt.text.contains("first"), "{}", prompt.text);
    assert!(prompt.text.contains("robot"), "{}", prompt.text);

    // A stranger's finger changes nothing, nor does one in another chat.
    telegram.presses(STRANGER, &prompt, "once");
    let elsewhere = crate::support::telegram::Sent { chat: GROUP, ..prompt.clone() };
    telegram.presses(OPERATOR, &elsewhere, "once");
    telegram.reaches("an answer", |state| state.answered.iter().any(|words| words.contains("does nothing here"))).await;
    assert_eq!(asks(&model, "first").await, code);

    telegram.presses(OPERATOR, &prompt, "once");
    let message = prompt.message;
    let state = telegram.reaches("the outcome", move |state| state.edited.contains_key(&message)).await;
    let (text, markup) = &state.edited[&prompt.message];
    assert!(text.contains("allowed once by Somebody (4242)") && text.contains("first"), "{text}");
    assert!(markup.is_null(), "the buttons are gone");
    let sent = model.does("send_message", json!({ "target": "homelab", "message": "first" })).await;
    assert_eq!(sent["queued"], true);

    // A second press of the same button allows nothing more.
    telegram.presses(OPERATOR, &prompt, "once");
    telegram.reaches("its answer", |state| state.answered.iter().any(|words| words.contains("waits no longer"))).await;
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "approved")).await;
    let approved: Vec<_> =
        rows.iter().filter(|row| row.event == "approved").filter_map(|row| row.detail.clone()).collect();
    assert_eq!(approved, [format!("{code} send_message once, by Telegram user 4242")]);
    let row = rows.iter().find(|row| {
        row.tool.as_deref() == Some("send_message") && row.how.is_some() && row.decision.as_deref() == Some("allowed")
    });
    assert_eq!(row.and_then(|row| row.how.clone()).as_deref(), Some("telegram_once"));
    faultless(&telegram);
}

#[tokio::test]
async fn no_is_no_and_a_session_covers_what_follows() {
    let telegram = Telegram::start().await;
    let hub = operated(&telegram).await;
    let model = hub.legacy(&secret("robot")).await;
    let code = asks(&model, "never").await;
    let prompt = telegram.hears(&code).await;
    telegram.presses(OPERATOR, &prompt, "no");
    let message = prompt.message;
    let state = telegram.reaches("the outcome", move |state| state.edited.contains_key(&message)).await;
    assert!(state.edited[&message].0.contains("no, said Somebody (4242)"), "{:?}", state.edited);
    let refused = model.call("send_message", json!({ "target": "homelab", "message": "never" })).await;
    assert_eq!(refused["isError"], true);
    hub.audit_reaches(|rows| {
        rows.iter().any(|row| {
            row.event == "denied" && row.detail.as_ref().is_some_and(|detail| detail.ends_with("by Telegram user 4242"))
        })
    })
    .await;

    let code = asks(&model, "then").await;
    let prompt = telegram.hears(&code).await;
    telegram.presses(OPERATOR, &prompt, "session");
    let message = prompt.message;
    let state = telegram.reaches("the outcome", move |state| state.edited.contains_key(&message)).await;
    assert!(state.edited[&message].0.contains("allowed for the session"), "{:?}", state.edited);
    for message in ["then", "and then"] {
        let sent = model.does("send_message", json!({ "target": "homelab", "message": message })).await;
        assert_eq!(sent["queued"], true);
    }
    faultless(&telegram);
}

#[tokio::test]
async fn what_is_answered_at_the_command_line_loses_its_buttons() {
    let telegram = Telegram::start().await;
    let hub = operated(&telegram).await;
    let model = hub.legacy(&secret("robot")).await;
    let code = asks(&model, "elsewhere").await;
    let prompt = telegram.hears(&code).await;
    let ran = hub.nexus(&["approve", &code]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let message = prompt.message;
    let state = telegram.reaches("the outcome", move |state| state.edited.contains_key(&message)).await;
    let (text, markup) = &state.edited[&message];
    assert!(text.contains("waits no longer: answered elsewhere") && markup.is_null(), "{text}");
}

#[tokio::test]
async fn nothing_is_asked_in_telegram_where_the_client_asks() {
    let telegram = Telegram::start().await;
    let hub = Hub::start().yaml(&telegram.yaml(TARGETS)).key("robot", "").env("TELEGRAM_BOT_TOKEN", TOKEN).await;
    let model = hub.legacy(&secret("robot")).await;
    let code = asks(&model, "in chat").await;
    telegram.says(OPERATOR, "/status");
    telegram.hears("0 waiting").await;
    assert!(telegram.state().with(&code).is_none());
}

#[tokio::test]
async fn the_buttons_work_where_the_operators_group_has_moved() {
    const NEW: i64 = -1_009_999_999_999;
    let telegram = Telegram::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("telegram");
    write(&file, &format!("token={TOKEN}\nchat_id={GROUP}\n"));
    let yaml = telegram.yaml("    homelab: { worker: {} }") + "approval: { mode: operator }\n";
    let yaml = yaml.replace("allowed_users", &format!("credentials_file: \"{}\", allowed_users", file.display()));
    let hub = Hub::start().yaml(&yaml).key("robot", "").await;
    let moved = json!({ "migrate_to_chat_id": NEW });
    telegram.next("sendMessage", [Say::Error(400, "Bad Request: group chat was upgraded to a supergroup", moved)]);
    let model = hub.legacy(&secret("robot")).await;
    let code = asks(&model, "first").await;
    let prompt = telegram.hears(&code).await;
    assert_eq!(prompt.chat, NEW);
    telegram.presses(OPERATOR, &prompt, "once");
    let message = prompt.message;
    let state = telegram.reaches("the outcome", move |state| state.edited.contains_key(&message)).await;
    assert!(state.edited[&message].0.contains("allowed once"), "{:?}", state.edited);
    faultless(&telegram);
}
