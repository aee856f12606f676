//! Questions of agents: an answer is to one of them, and nothing is decided by words that were meant otherwise.

use serde_json::json;

use super::{TARGETS, faultless, send, stands, started, updates, with};
use crate::record::postgres::Database;
use crate::support::agents::MODEL;
use crate::support::telegram::{GROUP, OPERATOR, TOKEN, Telegram};
use crate::support::{Client, Hub, secret, write};

/// A task that was sent from the private chat, which the agent has claimed: its id.
async fn begun(telegram: &Telegram, agent: &Client, words: &str) -> String {
    telegram.says(OPERATOR, &format!("/send homelab {words}"));
    let task = agent.does("claim_task", json!({ "wait_seconds": 10 })).await["task"].clone();
    assert!(task["content"].as_str().unwrap().contains(words), "{task}");
    task["id"].as_str().unwrap().to_owned()
}

/// The message with its question.
async fn asks(telegram: &Telegram, agent: &Client, task: &str, question: &str) -> i64 {
    agent.does("ask_operator", json!({ "task": task, "question": question })).await;
    telegram.hears(&format!("homelab asks (reply to this to answer)\n\n{question}")).await.message
}

fn count(telegram: &Telegram, words: &str) -> usize {
    telegram.state().sent.iter().filter(|sent| sent.text.contains(words)).count()
}

#[tokio::test]
async fn a_reply_answers_the_question_that_it_replies_to_and_no_later_one() {
    let (telegram, hub, model) = started().await;
    answers_the_right_one(&telegram, &hub, &model).await;
}

#[tokio::test]
async fn the_right_question_is_answered_on_postgresql_too() {
    let (telegram, database) = (Telegram::start().await, Database::new().await);
    let hub = with(&telegram).env("NEXUS_STORE", &database.url()).await;
    let model = hub.legacy(&secret(MODEL)).await;
    answers_the_right_one(&telegram, &hub, &model).await;
}

async fn answers_the_right_one(telegram: &Telegram, hub: &Hub, model: &Client) {
    let agent = hub.modern(&secret("agent"));
    let id = begun(telegram, &agent, "clear the old disks").await;
    let first = asks(telegram, &agent, &id, "shall I look at them first?").await;
    // Somebody else is faster.
    model.answers(&id, "of course").await;
    let told = telegram.hears("that was answered elsewhere\n\nof course").await;
    assert_eq!((told.chat, told.reply_to), (OPERATOR, Some(first)));
    asks(telegram, &agent, &id, "erase everything now?").await;

    telegram.replies(OPERATOR, OPERATOR, first, "yes");
    let another = telegram.hears("that question was answered already").await;
    assert!(another.text.contains("erase everything now?"), "{another:?}");
    telegram.replies(OPERATOR, OPERATOR, told.message, "yes");
    telegram.replies(OPERATOR, OPERATOR, first, &format!("/answer {id} yes"));
    telegram
        .reaches("all to be refused", |state| {
            state.sent.iter().filter(|sent| sent.text.contains("that question was answered already")).count() == 3
        })
        .await;
    assert_eq!(stands(model, &id, "input_required").await["question"], "erase everything now?");

    // What they were told asks the later question.
    telegram.replies(OPERATOR, OPERATOR, another.message, "no, only the second");
    telegram.hears(&format!("#{id} has your answer")).await;
    let all = updates(model, json!({ "task": id }), "only the second").await;
    let answers: Vec<_> = all.iter().filter(|(kind, _)| kind == "answer").map(|(_, words)| words.as_str()).collect();
    assert_eq!(answers, ["of course", "no, only the second"]);
    agent.does("complete_task", json!({ "task": id, "result": "cleared" })).await;
    telegram.hears("cleared").await;
    assert_eq!(count(telegram, "answered elsewhere"), 1, "their own answer is no news");
    telegram.replies(OPERATOR, OPERATOR, first, "and now?");
    telegram.hears(&format!("#{id} is complete and does not wait for an answer")).await;
    faultless(telegram);
}

#[tokio::test]
async fn what_is_edited_answers_nothing_and_what_is_unchanged_is_no_edit() {
    let (telegram, hub, model) = started().await;
    let agent = hub.modern(&secret("agent"));
    let command = telegram.says(OPERATOR, "/send homelab see https://example.org");
    let id = agent.does("claim_task", json!({ "wait_seconds": 10 })).await["task"]["id"].as_str().unwrap().to_owned();
    // The link has got its preview.
    let unchanged = json!({ "message_id": command, "text": "/send homelab see https://example.org" });
    telegram.edits(OPERATOR, OPERATOR, unchanged);
    let first = asks(&telegram, &agent, &id, "this one?").await;
    let answer = telegram.replies(OPERATOR, OPERATOR, first, "yes");
    telegram.hears("has your answer").await;
    let second = asks(&telegram, &agent, &id, "and that one?").await;
    for (to, text) in [(first, "yes"), (first, "yes!"), (second, "yes!!")] {
        let edit = json!({ "message_id": answer, "text": text, "reply_to_message": { "message_id": to } });
        telegram.edits(OPERATOR, OPERATOR, edit);
    }
    telegram.edits(OPERATOR, OPERATOR, json!({ "text": format!("/answer {id} yes") }));
    telegram.hears("a command that is edited is not run").await;
    telegram
        .reaches("both to be refused", |state| {
            state.sent.iter().filter(|sent| sent.text.contains("what is edited answers nothing")).count() == 2
        })
        .await;
    assert_eq!(stands(&model, &id, "input_required").await["question"], "and that one?");
    telegram.replies(OPERATOR, OPERATOR, second, "that one, too");
    updates(&model, json!({ "task": id }), "that one, too").await;
    assert_eq!((count(&telegram, "edited answers"), count(&telegram, "edited is not run")), (2, 1));
    faultless(&telegram);
}

#[tokio::test]
async fn what_another_bot_offered_is_no_command() {
    let (telegram, _hub, model) = started().await;
    let id = send(&model, "desk", "Water the plants").await;
    telegram.hears("Water the plants").await;
    stands(&model, &id, "acknowledged").await;
    let offered = |text: &str| json!({ "text": text, "via_bot": { "id": 5, "is_bot": true, "first_name": "gifs" } });
    telegram.message(OPERATOR, OPERATOR, offered(&format!("/cancel {id}")));
    let all = updates(&model, json!({ "task": id }), "/cancel").await;
    assert_eq!(all.last().unwrap().1, format!("(through another bot) /cancel {id}"));
    stands(&model, &id, "in_progress").await;
}

#[tokio::test]
async fn a_number_in_the_reply_to_a_question_is_no_task() {
    let (telegram, hub, model) = started().await;
    let agent = hub.modern(&secret("agent"));
    let other = send(&model, "desk", "Something else").await;
    let id = begun(&telegram, &agent, "change the disks").await;
    assert_eq!((other.as_str(), id.as_str()), ("t1", "t2"));
    let question = asks(&telegram, &agent, &id, "how many?").await;
    telegram.replies(OPERATOR, OPERATOR, question, "/answer 1 of them");
    telegram.hears(&format!("#{id} has your answer")).await;
    updates(&model, json!({ "task": id }), "1 of them").await;
}

#[tokio::test]
async fn people_are_not_told_of_tools() {
    let (telegram, _hub, model) = started().await;
    let id = send(&model, "homelab", "Once").await;
    model.does("cancel_task", json!({ "id": id })).await;
    telegram.says(OPERATOR, "/cancel t999");
    telegram.hears("there is no task t999\n/tasks shows those there are").await;
    telegram.says(OPERATOR, &format!("/cancel {id}"));
    telegram.hears("it is finished already\n/tasks shows where it stands").await;
    telegram.says(OPERATOR, "/send nowhere x");
    telegram.hears("there is no target `nowhere`\nknown targets: ").await;
    assert_eq!(count(&telegram, "hint"), 0);
}

#[tokio::test]
async fn a_chat_that_was_taken_off_the_list_hears_no_more_of_its_tasks() {
    const LISTED: i64 = -77;
    let telegram = Telegram::start().await;
    let yaml = telegram.yaml(TARGETS).replace("allowed_users", &format!("allowed_chats: [{LISTED}], allowed_users"));
    let mut hub = Hub::start().yaml(&yaml).agent_keys().env("TELEGRAM_BOT_TOKEN", TOKEN).await;
    for chat in [LISTED, GROUP, OPERATOR] {
        telegram.message(OPERATOR, chat, json!({ "text": format!("/send homelab for {chat}") }));
        telegram.reaches("the confirmation", move |state| state.sent.iter().any(|sent| sent.chat == chat)).await;
    }
    let file = hub.path("hub.yaml");
    let changed = std::fs::read_to_string(&file).unwrap().replace(&format!("allowed_chats: [{LISTED}],"), "");
    write(&file, &changed);
    hub.restart().await;
    let (model, agent) = (hub.legacy(&secret(MODEL)).await, hub.modern(&secret("agent")));
    for result in ["one", "two", "three"] {
        let task = agent.does("claim_task", json!({ "wait_seconds": 10 })).await["task"].clone();
        agent.does("complete_task", json!({ "task": task["id"], "result": result })).await;
        stands(&model, task["id"].as_str().unwrap(), "complete").await;
    }
    // They are told in order.
    assert_eq!(telegram.hears("is done\n\nthree").await.chat, OPERATOR);
    assert_eq!(telegram.hears("is done\n\ntwo").await.chat, GROUP);
    assert_eq!((telegram.state().texts(LISTED).len(), count(&telegram, "is done\n\none")), (1, 0));
    faultless(&telegram);
}
