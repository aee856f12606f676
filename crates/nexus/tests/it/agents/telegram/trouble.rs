//! What goes wrong with Telegram, and how it goes on.

use serde_json::{Value, json};

use super::{TARGETS, faultless, send, stands, started, updates, with};
use crate::support::agents::MODEL;
use crate::support::telegram::{GROUP, OPERATOR, STRANGER, Say, Telegram};
use crate::support::{Client, Hub, secret, within};

/// Waits until the bot's channel is so.
pub async fn channel(model: &Client, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let status = model.does("queue_status", json!({})).await;
            let channels = status["channels"].as_array().cloned().unwrap_or_default();
            if let Some(channel) =
                channels.iter().find(|channel| channel["name"] == "telegram bot").filter(|one| so(one))
            {
                return channel.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(what, look).await
}

/// Waits until a target is so.
pub async fn target(model: &Client, name: &str, so: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let target = model.does("queue_status", json!({ "target": name })).await["targets"][0].clone();
            if so(&target) {
                return target;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(name, look).await
}

#[tokio::test]
async fn too_many_requests_silence_the_whole_bot_and_keep_the_order() {
    let (telegram, _hub, model) = started().await;
    channel(&model, "the bot to hear", |channel| channel["deaf"] == false).await;
    let wait = |seconds: u64| Say::Error(429, "Too Many Requests: retry later", json!({ "retry_after": seconds }));
    telegram.next("sendMessage", [wait(1), wait(2)]);
    let tasks = ["one", "two", "three", "four"];
    for task in tasks {
        send(&model, "desk", &format!("task {task}")).await;
    }
    telegram.hears("task four").await;
    let state = telegram.state();
    let order: Vec<_> = state.texts(OPERATOR).iter().map(|text| text.lines().last().unwrap().to_owned()).collect();
    assert_eq!(order, ["task one", "task two", "task three", "task four"]);
    // The refused one was tried again, and nothing else in between.
    let tried: Vec<_> = state.requests.iter().filter(|(method, _)| method == "sendMessage").collect();
    assert_eq!(tried.len(), 6);
    assert!(tried[..3].iter().all(|(_, body)| body["text"].as_str().unwrap().ends_with("task one")), "{tried:?}");
    faultless(&telegram);
}

#[tokio::test]
async fn another_poller_makes_the_bot_deaf_until_it_is_gone() {
    let telegram = Telegram::start().await;
    let conflict = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
    telegram.always("getUpdates", Some(Say::Error(409, conflict, json!({}))));
    let hub = with(&telegram).await;
    let model = hub.legacy(&secret(MODEL)).await;
    let deaf =
        channel(&model, "the bot to be deaf", |channel| channel["deaf"] == true && !channel["trouble"].is_null());
    let deaf = deaf.await;
    assert!(deaf["trouble"].as_str().unwrap().contains("another program asks Telegram"), "{deaf}");
    telegram
        .reaches("it to go on trying", |state| {
            state.requests.iter().filter(|(method, _)| method == "getUpdates").count() >= 3
        })
        .await;
    telegram.always("getUpdates", None);
    telegram.says(OPERATOR, "/status");
    telegram.hears("0 waiting").await;
    channel(&model, "the bot to hear again", |channel| channel["deaf"] == false && channel["trouble"].is_null()).await;
    hub.says("the Telegram bot hears again").await;
    assert!(!telegram.state().requests.iter().any(|(method, _)| method == "deleteWebhook"));
    faultless(&telegram);
}

#[tokio::test]
async fn a_webhook_is_taken_away_once() {
    let telegram = Telegram::start().await;
    let conflict =
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete it first";
    telegram.next("getUpdates", [Say::Error(409, conflict, json!({}))]);
    let _hub = with(&telegram).await;
    telegram.says(OPERATOR, "/status");
    telegram.hears("0 waiting").await;
    let deleted = telegram.state().requests.iter().filter(|(method, _)| method == "deleteWebhook").count();
    assert_eq!(deleted, 1);
    faultless(&telegram);
}

#[tokio::test]
async fn a_token_that_is_not_valid_is_told_and_nothing_is_lost() {
    let telegram = Telegram::start().await;
    let yaml = telegram.yaml(TARGETS);
    let wrong = "777001:AAwrong_token-of_the_tests_0123456789";
    let hub = Hub::start().yaml(&yaml).agent_keys().env("TELEGRAM_BOT_TOKEN", wrong).await;
    let model = hub.legacy(&secret(MODEL)).await;
    let deaf = channel(&model, "the bot to be deaf", |channel| !channel["trouble"].is_null()).await;
    assert_eq!(deaf["trouble"], "the token is not valid");
    let id = send(&model, "desk", "wait for it").await;
    stands(&model, &id, "pending").await;
    assert!(!hub.said().contains(wrong));

    let bad = Hub::start().yaml(&yaml).agent_keys().env("TELEGRAM_BOT_TOKEN", "not a token").await;
    bad.says("the Telegram bot is off: TELEGRAM_BOT_TOKEN is not right").await;
    assert!(!bad.said().contains("not a token"));
}

#[tokio::test]
async fn broken_connections_are_tried_again_and_nothing_is_sent_twice_that_was_answered() {
    let (telegram, _hub, model) = started().await;
    telegram.next("sendMessage", [Say::Close, Say::Error(502, "Bad Gateway", json!({})), Say::Close]);
    telegram.next("getUpdates", [Say::Close, Say::Error(500, "Internal", json!({})), Say::Close]);
    let id = send(&model, "desk", "through thick and thin").await;
    let posted = telegram.hears("through thick and thin").await;
    telegram.replies(OPERATOR, OPERATOR, posted.message, "it came");
    updates(&model, json!({ "task": id }), "it came").await;
    assert_eq!(telegram.state().sent.len(), 1);
    channel(&model, "the bot to be well", |channel| channel["deaf"] == false && channel["trouble"].is_null()).await;
    faultless(&telegram);
}

#[tokio::test]
async fn what_telegram_never_takes_is_dead_and_holds_up_nothing() {
    let (telegram, _hub, model) = started().await;
    telegram.next("sendMessage", [Say::Error(400, "Bad Request: message is too long", json!({}))]);
    let first = send(&model, "desk", "not like this").await;
    let dead = stands(&model, &first, "dead").await;
    assert_eq!(dead["reason"], "Telegram does not take it: Bad Request: message is too long");
    send(&model, "desk", "like that").await;
    telegram.hears("like that").await;
}

#[tokio::test]
async fn a_chat_that_shuts_the_bot_out_keeps_its_tasks_waiting_and_the_others_get_theirs() {
    let (telegram, _hub, model) = started().await;
    telegram.next("sendMessage", [Say::Error(403, "Forbidden: bot was kicked from the supergroup chat", json!({}))]);
    let shut = send(&model, "attic", "behind the door").await;
    let so = |attic: &Value| attic["trouble"].as_str().is_some_and(|words| words.contains("kicked"));
    let target = target(&model, "attic", |attic| so(attic) && attic["pending"] == 1).await;
    assert_eq!(target["deaf"], true, "{target}");
    stands(&model, &shut, "pending").await;
    send(&model, "desk", "this way").await;
    telegram.hears("this way").await;
}

#[tokio::test]
async fn a_group_that_has_moved_is_found_again() {
    const NEW: i64 = -1_009_999_999_999;
    let (telegram, mut hub, model) = started().await;
    let moved = json!({ "migrate_to_chat_id": NEW });
    telegram.next("sendMessage", [Say::Error(400, "Bad Request: group chat was upgraded to a supergroup", moved)]);
    let id = send(&model, "attic", "where are you").await;
    let posted = telegram.hears("where are you").await;
    assert_eq!(posted.chat, NEW);
    hub.says(&format!("the Telegram group {GROUP} is {NEW} now")).await;
    telegram.replies(OPERATOR, NEW, posted.message, "over here");
    updates(&model, json!({ "task": id }), "over here").await;
    hub.restart().await;
    let model = hub.legacy(&secret(MODEL)).await;
    send(&model, "attic", "still there?").await;
    assert_eq!(telegram.hears("still there?").await.chat, NEW);
    target(&model, "attic", |attic| attic["trouble"].as_str().is_some_and(|words| words.contains("nexus.yaml"))).await;
}

#[tokio::test]
async fn whoever_moves_a_group_is_believed_since_telegram_says_so() {
    const NEW: i64 = -1_009_999_999_999;
    let (telegram, mut hub, model) = started().await;
    channel(&model, "the bot to hear", |channel| channel["deaf"] == false).await;
    // Words are no word of Telegram's, and a chat that nobody wrote down is nobody's business.
    let words = json!({ "text": "we have moved", "migrate_to_chat_id": -66 });
    telegram.message(STRANGER, GROUP, words);
    telegram.message(STRANGER, -55, json!({ "migrate_to_chat_id": -66 }));
    telegram.reaches("both to be confirmed", |state| state.waiting.is_empty()).await;

    let holder = hub.hold_store().await;
    telegram.message(STRANGER, GROUP, json!({ "migrate_to_chat_id": NEW }));
    hub.says("the Telegram bot hears nothing: what was said is not kept").await;
    assert!(!telegram.state().waiting.is_empty(), "it is not confirmed before it is kept");
    drop(holder);
    telegram.reaches("it to be confirmed", |state| state.waiting.is_empty()).await;
    assert!(!hub.said().contains("-66"), "{}", hub.said());
    crate::support::signal(hub.pid, rustix::process::Signal::KILL);
    hub.ended().await;
    hub.restart().await;
    let model = hub.legacy(&secret(MODEL)).await;
    let id = send(&model, "attic", "where are you").await;
    assert_eq!(telegram.hears("where are you").await.chat, NEW);
    telegram.message(OPERATOR, NEW, json!({ "text": "over here" }));
    updates(&model, json!({ "task": id }), "over here").await;
    faultless(&telegram);
}

#[tokio::test]
async fn a_kill_while_a_long_task_is_posted_goes_on_with_the_next_part() {
    let (telegram, mut hub, model) = started().await;
    let long: Vec<String> = (1..=25).map(|nth| format!("Part {nth}. {}", "word ".repeat(700))).collect();
    let id = send(&model, "desk", &long.join("\n\n")).await;
    telegram.reaches("some parts", |state| state.sent.len() >= 3).await;
    // A later one is on its way, and is never answered.
    telegram.always("sendMessage", Some(Say::Hang));
    telegram
        .reaches("one that hangs", |state| {
            state.requests.iter().filter(|(method, _)| method == "sendMessage").count() > state.sent.len()
        })
        .await;
    crate::support::signal(hub.pid, rustix::process::Signal::KILL);
    hub.ended().await;
    telegram.always("sendMessage", None);
    hub.restart().await;
    let model = hub.legacy(&secret(MODEL)).await;
    let head = telegram.state().sent[1].text.lines().next().unwrap().to_owned();
    let total: usize = head.rsplit(' ').next().unwrap().parse().unwrap();
    telegram.hears(&format!("part {total} of {total}")).await;
    stands(&model, &id, "acknowledged").await;
    let texts = telegram.state().texts(OPERATOR);
    // None but those that Telegram took is there, and none of them twice: nobody had taken the one that hung.
    assert_eq!(texts.len(), total);
    for part in 2..=total {
        assert!(texts.iter().any(|text| text.contains(&format!("part {part} of {total}"))), "{part}");
    }
}

#[tokio::test]
async fn what_is_said_while_the_store_takes_nothing_is_kept_when_it_does_again() {
    let (telegram, hub, model) = started().await;
    let id = send(&model, "desk", "Count with me").await;
    let posted = telegram.hears("Count with me").await;
    stands(&model, &id, "acknowledged").await;
    channel(&model, "the bot to hear", |channel| channel["deaf"] == false).await;

    let holder = hub.hold_store().await;
    telegram.replies(OPERATOR, OPERATOR, posted.message, "number 1");
    telegram.says(OPERATOR, "/send homelab later on");
    hub.says("the Telegram bot hears nothing: what was said is not kept").await;
    assert_eq!(telegram.state().waiting.len(), 2, "neither is confirmed");
    drop(holder);

    telegram.hears("for homelab, next in the queue").await;
    let all = updates(&model, json!({ "task": id }), "number 1").await;
    assert_eq!(all.iter().filter(|(_, content)| content == "number 1").count(), 1, "{all:?}");
    telegram.reaches("both to be confirmed", |state| state.waiting.is_empty()).await;
    channel(&model, "the bot to be well", |channel| channel["deaf"] == false && channel["trouble"].is_null()).await;
    assert!(telegram.state().with("not kept").is_none(), "nobody is told of what is over");
    faultless(&telegram);
}

#[tokio::test]
async fn a_target_may_be_called_telegram_and_is_not_taken_for_the_bot() {
    let telegram = Telegram::start().await;
    telegram.always("getUpdates", Some(Say::Error(409, "Conflict: terminated by other getUpdates", json!({}))));
    let targets = format!("{TARGETS}\n    telegram: {{ worker: {{}} }}");
    let setup = Hub::start().yaml(&telegram.yaml(&targets)).agent_keys().key("robot", "target: telegram");
    let hub = setup.env("TELEGRAM_BOT_TOKEN", crate::support::telegram::TOKEN).await;
    let model = hub.legacy(&secret(MODEL)).await;
    channel(&model, "the bot to be deaf", |channel| !channel["trouble"].is_null()).await;
    hub.modern(&secret("robot")).does("claim_task", json!({})).await;
    let own = target(&model, "telegram", |target| !target["last_heard"].is_null()).await;
    assert_eq!((&own["deaf"], &own["trouble"]), (&json!(false), &Value::Null), "{own}");
    channel(&model, "the bot to be deaf still", |channel| channel["deaf"] == true).await;
}
