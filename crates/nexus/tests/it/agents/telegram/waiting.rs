//! What Telegram does not take now waits, is told, and holds up nothing else.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::trouble::{channel, target};
use super::{faultless, send, stands, started, updates, with};
use crate::support::agents::MODEL;
use crate::support::telegram::{GROUP, OPERATOR, STRANGER, Say, State, Telegram};
use crate::support::{Client, Hub, secret};

fn silence(seconds: u64) -> Say {
    Say::Error(429, "Too Many Requests: retry later", json!({ "retry_after": seconds }))
}

fn asked(state: &State, method: &str) -> usize {
    state.requests.iter().filter(|(asked, _)| asked == method).count()
}

fn tells(words: &str) -> impl Fn(&Value) -> bool {
    move |one| one["trouble"].as_str().is_some_and(|trouble| trouble.contains(words))
}

async fn hears(model: &Client) {
    channel(model, "the bot to hear", |channel| channel["deaf"] == false && channel["trouble"].is_null()).await;
}

/// Waits until the bot has asked for updates some times more.
async fn polled(telegram: &Telegram) {
    for _ in 0..3 {
        let polls = telegram.state().polls;
        telegram.says(STRANGER, "hello");
        telegram.reaches("another poll", move |state| state.polls > polls && state.waiting.is_empty()).await;
    }
}

#[tokio::test]
async fn a_chat_that_is_not_there_yet_keeps_its_tasks_waiting() {
    check("sendMessage", "desk", Say::Error(400, "Bad Request: chat not found", json!({}))).await;
    let muted = "Bad Request: not enough rights to send text messages to the chat";
    check("sendMessage", "attic", Say::Error(400, muted, json!({}))).await;
    // A group is looked at before anything is posted there.
    check("getChat", "attic", Say::Error(400, "Bad Request: chat not found", json!({}))).await;
    check("getChat", "attic", Say::Error(403, "Forbidden: bot is not a member of the chat", json!({}))).await;

    async fn check(method: &str, name: &str, refusal: Say) {
        let (telegram, mut hub, model) = started().await;
        telegram.always(method, Some(refusal.clone()));
        let id = send(&model, name, "are you there?").await;
        let Say::Error(_, words, _) = refusal else { return };
        let shut = target(&model, name, |one| tells(words)(one) && one["pending"] == 1).await;
        assert_eq!(shut["deaf"], true, "{shut}");
        let task = stands(&model, &id, "pending").await;
        assert_eq!(task["attempts"], 0, "{task}");
        telegram.always(method, None);
        hub.restart().await;
        telegram.hears("are you there?").await;
        let model = hub.legacy(&secret(MODEL)).await;
        stands(&model, &id, "acknowledged").await;
        target(&model, name, |one| one["trouble"].is_null()).await;
    }
}

#[tokio::test]
async fn a_webhook_that_stays_is_taken_away_again() {
    let telegram = Telegram::start().await;
    let hooked = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete it first";
    let hooked = || Say::Error(409, hooked, json!({}));
    telegram.next("getUpdates", [hooked(), hooked()]);
    telegram.next("deleteWebhook", [Say::Error(500, "Internal Server Error", json!({}))]);
    let hub = with(&telegram).await;
    telegram.says(OPERATOR, "/status");
    telegram.hears("0 waiting").await;
    assert_eq!(asked(&telegram.state(), "deleteWebhook"), 2);
    let said = hub.said();
    assert!(said.contains("could not be taken away") && !said.contains("another program"), "{said}");
}

#[tokio::test]
async fn a_long_silence_is_told_and_what_comes_meanwhile_stays_in_the_queue() {
    let (telegram, hub, model) = started().await;
    hears(&model).await;
    telegram.next("sendMessage", [silence(3_000)]);
    send(&model, "desk", "first").await;
    let told = channel(&model, "the silence to be told", tells("wants 3000 s of silence")).await;
    assert_eq!(told["deaf"], true, "{told}");
    hub.says("the Telegram bot may not send: Telegram wants 3000 s of silence").await;
    let second = send(&model, "attic", "second").await;
    // It still listens, and that hides nothing.
    polled(&telegram).await;
    channel(&model, "the silence to be told still", tells("silence")).await;
    target(&model, "attic", tells("silence")).await;
    stands(&model, &second, "pending").await;
    assert_eq!(asked(&telegram.state(), "sendMessage"), 1);
    assert_eq!(hub.said().matches("s of silence").count(), 1);
}

#[tokio::test]
async fn a_silence_of_the_poller_is_told() {
    let telegram = Telegram::start().await;
    telegram.next("getUpdates", [silence(3_000)]);
    let hub = with(&telegram).await;
    let model = hub.legacy(&secret(MODEL)).await;
    channel(&model, "the silence to be told", tells("wants 3000 s of silence")).await;
    hub.says("the Telegram bot hears nothing: Telegram wants 3000 s of silence").await;
}

async fn forum() -> (Telegram, Hub, Client) {
    let telegram = Telegram::start().await;
    telegram.is_forum(GROUP);
    let hub = with(&telegram).await;
    let model = hub.legacy(&secret(MODEL)).await;
    hears(&model).await;
    (telegram, hub, model)
}

#[tokio::test]
async fn a_silence_is_for_all_requests_and_a_task_waits_for_its_topic() {
    let (telegram, _hub, model) = forum().await;
    telegram.next("getChat", [silence(6)]);
    send(&model, "attic", "up there").await;
    channel(&model, "the silence to be told", tells("s of silence")).await;
    send(&model, "desk", "down here").await;
    telegram.hears("down here").await;
    assert!(telegram.hears("up there").await.topic.is_some());
    let state = telegram.state();
    assert_eq!((asked(&state, "getChat"), asked(&state, "sendMessage")), (2, 2), "{:?}", state.requests);
    hears(&model).await;
    faultless(&telegram);
}

#[tokio::test]
async fn a_task_waits_until_its_topic_can_be_made() {
    let (telegram, _hub, model) = forum().await;
    telegram.next("getChat", [Say::Close, Say::Error(502, "Bad Gateway", json!({}))]);
    telegram.next("createForumTopic", [Say::Close, silence(1)]);
    send(&model, "attic", "up there").await;
    assert!(telegram.hears("up there").await.topic.is_some());
    target(&model, "attic", |attic| attic["trouble"].is_null()).await;

    // Who may not make one posts into the chat.
    let (telegram, _hub, model) = forum().await;
    telegram.always("createForumTopic", Some(Say::Error(400, "Bad Request: not enough rights", json!({}))));
    send(&model, "attic", "no ladder").await;
    assert_eq!(telegram.hears("no ladder").await.topic, None);
}

#[tokio::test]
async fn updates_that_come_do_not_hide_that_nothing_leaves() {
    let (telegram, hub, model) = started().await;
    hears(&model).await;
    telegram.always("sendMessage", Some(Say::Error(500, "Internal Server Error", json!({}))));
    send(&model, "desk", "out").await;
    channel(&model, "the trouble to be told", tells("Internal")).await;
    let waits = send(&model, "attic", "out, too").await;
    polled(&telegram).await;
    let status = model.does("queue_status", json!({})).await;
    let bot = status["channels"].as_array().unwrap().iter().find(|channel| channel["name"] == "telegram bot").unwrap();
    assert!(tells("Internal")(bot) && bot["deaf"] == true, "{bot}");
    assert_eq!(hub.said().matches("the Telegram bot cannot send").count(), 1);
    stands(&model, &waits, "pending").await;
    telegram.always("sendMessage", None);
    telegram.hears("out, too").await;
    hears(&model).await;
    hub.says("the Telegram bot sends again").await;
}

#[tokio::test]
async fn one_message_that_never_leaves_does_not_hold_up_the_others() {
    check(Say::Error(500, "Internal Server Error", json!({})), 6).await;
    // It may have been taken each time.
    check(Say::Junk(200), 2).await;

    async fn check(answer: Say, tries: usize) {
        let (telegram, _hub, model) = started().await;
        hears(&model).await;
        telegram.poison("poison", answer);
        let stuck = send(&model, "desk", "poison").await;
        telegram.reaches("a try", |state| asked(state, "sendMessage") > 0).await;
        telegram.says(OPERATOR, "/help");
        telegram.hears("Reply to a task").await;
        assert_eq!(asked(&telegram.state(), "sendMessage"), tries + 1);
        target(&model, "desk", |desk| tells("again and again")(desk) && desk["pending"] == 1).await;
        stands(&model, &stuck, "pending").await;
        send(&model, "attic", "something else").await;
        telegram.hears("something else").await;
    }
}

#[tokio::test]
async fn a_task_that_is_cancelled_while_telegram_takes_it_is_called_off_there() {
    let (telegram, _hub, model) = started().await;
    let taken = CancellationToken::new();
    telegram.next("sendMessage", [Say::Later(taken.clone())]);
    let id = send(&model, "desk", "Bring the boxes down").await;
    telegram.reaches("it to be taken", |state| asked(state, "sendMessage") > 0).await;
    model.does("cancel_task", json!({ "id": id })).await;
    stands(&model, &id, "cancelled").await;
    taken.cancel();
    let posted = telegram.hears("Bring the boxes down").await;
    assert_eq!(telegram.hears(&format!("#{id} is cancelled")).await.reply_to, Some(posted.message));
    telegram.replies(OPERATOR, OPERATOR, posted.message, "too late, they are down");
    telegram.hears(&format!("kept, but #{id} is cancelled")).await;
    updates(&model, json!({ "task": id }), "they are down").await;
    faultless(&telegram);
}

#[tokio::test]
async fn a_task_that_is_cancelled_before_telegram_takes_it_is_not_posted() {
    let (telegram, _hub, model) = started().await;
    telegram.next("sendMessage", [silence(2)]);
    let id = send(&model, "desk", "Bring the boxes down").await;
    telegram.reaches("it to be refused", |state| asked(state, "sendMessage") > 0).await;
    stands(&model, &id, "acknowledged").await;
    model.does("cancel_task", json!({ "id": id })).await;
    stands(&model, &id, "cancelled").await;
    send(&model, "desk", "Leave them").await;
    telegram.hears("Leave them").await;
    assert_eq!(telegram.state().sent.len(), 1, "{:?}", telegram.state().sent);
}

#[tokio::test]
async fn who_gives_the_same_updates_again_and_again_is_not_asked_without_end() {
    let (telegram, _hub, model) = started().await;
    hears(&model).await;
    telegram.forgets_what_was_confirmed();
    telegram.says(OPERATOR, "/status");
    telegram.hears("0 waiting").await;
    let before = telegram.state().polls;
    model.pulls(json!({ "wait_seconds": 2 })).await;
    let polls = telegram.state().polls - before;
    assert!(polls < 100, "{polls} polls in some seconds");
    telegram.says(OPERATOR, "/tasks");
    telegram.hears("no tasks").await;
    assert_eq!(telegram.state().sent.len(), 2, "{:?}", telegram.state().sent);
}
