//! The Telegram bot, against a Bot API of our own that looks closely: tasks out, replies back, and who is believed.

use serde_json::{Value, json};

use crate::record::postgres::Database;
use crate::support::agents::{MODEL, told};
use crate::support::telegram::{GROUP, OPERATOR, STRANGER, Say, TOKEN, Telegram};
use crate::support::{AuditRow, Client, Hub, Setup, secret, within, write};

mod answers;
mod approvals;
mod kills;
mod trouble;
mod waiting;

/// `desk` is the operator's private chat, `attic` a group; `homelab` has a worker.
pub const TARGETS: &str = "    desk: { telegram: { chat_id: 4242 } }
    attic: { telegram: { chat_id: -1001234567890 } }
    homelab: { worker: {} }";

pub fn with(telegram: &Telegram) -> Setup {
    Hub::start().yaml(&telegram.yaml(TARGETS)).agent_keys().env("TELEGRAM_BOT_TOKEN", TOKEN)
}

/// A model that sends without being asked.
pub async fn started() -> (Telegram, Hub, Client) {
    let telegram = Telegram::start().await;
    let hub = with(&telegram).await;
    let model = hub.legacy(&secret(MODEL)).await;
    (telegram, hub, model)
}

/// Sends to a target; the id.
pub async fn send(model: &Client, target: &str, message: &str) -> String {
    let sent = model.does("send_message", json!({ "target": target, "message": message })).await;
    assert_eq!(sent["queued"], true, "{sent}");
    sent["id"].as_str().unwrap().to_owned()
}

/// Waits until a task stands so, and gives it.
pub async fn stands(model: &Client, id: &str, status: &str) -> Value {
    let look = async {
        loop {
            let task = model.does("get_task", json!({ "id": id })).await;
            if task["status"] == status {
                return task;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(&format!("{id} to be {status}"), look).await
}

/// Waits for an update with these words, and gives all of its task or target.
pub async fn updates(model: &Client, choice: Value, words: &str) -> Vec<(String, String)> {
    let look = async {
        loop {
            let mut asked = choice.clone();
            asked["cursor"] = json!("0");
            let all = told(&model.pulls(asked).await);
            if all.iter().any(|(_, content)| content.contains(words)) {
                return all;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(words, look).await
}

fn faultless(telegram: &Telegram) {
    assert_eq!(telegram.state().faults, Vec::<String>::new());
}

#[tokio::test]
async fn a_task_is_posted_and_a_reply_to_it_is_its_update() {
    let (telegram, hub, model) = started().await;
    posts_and_hears(&telegram, &model).await;
    let rows = hub.audit_reaches(|rows| rows.iter().any(|row| row.tool.as_deref() == Some("fail_task"))).await;
    let row = rows.iter().find(|row| row.tool.as_deref() == Some("fail_task")).unwrap();
    assert_eq!(row.principal.as_deref(), Some("telegram:4242"));
    assert_eq!(row.transport.as_deref(), Some("telegram"));
}

async fn posts_and_hears(telegram: &Telegram, model: &Client) {
    let first = send(model, "desk", "Replace the *third* disk_of the tray").await;
    let second = send(model, "desk", "Label the cables").await;
    let posted = telegram.hears("Replace the *third* disk_of").await;
    assert_eq!(posted.chat, OPERATOR);
    assert!(posted.text.starts_with(&format!("#{first} for desk\n")), "{}", posted.text);
    telegram.hears("Label the cables").await;
    stands(model, &second, "acknowledged").await;

    telegram.replies(OPERATOR, OPERATOR, posted.message, "on my way");
    let all = updates(model, json!({ "task": first }), "on my way").await;
    assert_eq!(all.last().unwrap(), &("progress".to_owned(), "on my way".to_owned()));
    assert_eq!(stands(model, &first, "in_progress").await["target"], "desk");

    // Words without a reply are about what is in progress, not about the newer task.
    telegram.says(OPERATOR, "it is out");
    updates(model, json!({ "task": first }), "it is out").await;

    telegram.says(OPERATOR, &format!("/done {first} the new one runs"));
    let done = stands(model, &first, "complete").await;
    assert_eq!(done["result"], "the new one runs");
    telegram.replies(OPERATOR, OPERATOR, telegram.state().with("Label").unwrap().message, "/fail no labels left");
    assert_eq!(stands(model, &second, "error").await["reason"], "no labels left");

    // Nothing runs: it is a note.
    telegram.says(OPERATOR, "going home");
    let all = updates(model, json!({ "target": "desk" }), "going home").await;
    assert_eq!(all.last().unwrap().0, "note");
    faultless(telegram);
}

#[tokio::test]
async fn a_long_task_is_posted_in_parts_in_order() {
    let (telegram, _hub, model) = started().await;
    let paragraphs: Vec<String> = (1..=120).map(|nth| format!("Step {nth}: look at 🦀 number {nth}, twice.")).collect();
    let id = send(&model, "desk", &paragraphs.join("\n\n")).await;
    let last = telegram.hears("Step 120:").await;
    let posted = telegram.state().texts(OPERATOR);
    assert!(posted.len() > 1 && posted[1].starts_with(&format!("#{id}, part 2 of {}", posted.len())), "{posted:?}");
    let whole = posted.concat();
    let places: Vec<_> = (1..=120).map(|nth| whole.find(&format!("Step {nth}:")).unwrap()).collect();
    assert!(places.is_sorted());
    // Every part belongs to the task.
    telegram.replies(OPERATOR, OPERATOR, last.message, "done with the last part");
    updates(&model, json!({ "task": id }), "done with the last part").await;
    faultless(&telegram);
}

#[tokio::test]
async fn the_operator_looks_sends_follows_answers_and_cancels_by_phone() {
    let (telegram, hub, model) = started().await;
    operates(&telegram, &hub, &model).await;
}

#[tokio::test]
async fn all_of_it_is_the_same_on_postgresql() {
    let (telegram, database) = (Telegram::start().await, Database::new().await);
    let hub = with(&telegram).env("NEXUS_STORE", &database.url()).await;
    let model = hub.legacy(&secret(MODEL)).await;
    operates(&telegram, &hub, &model).await;
    posts_and_hears(&telegram, &model).await;
}

async fn operates(telegram: &Telegram, hub: &Hub, model: &Client) {
    let agent = hub.modern(&secret("agent"));
    let command = telegram.says(OPERATOR, "/send homelab check the pool");
    let confirmed = telegram.hears("for homelab, next in the queue").await;
    assert_eq!(confirmed.reply_to, Some(command));
    let id = confirmed.text.split(' ').next().unwrap().trim_start_matches('#').to_owned();

    let task = agent.does("claim_task", json!({ "wait_seconds": 10 })).await["task"].clone();
    assert_eq!((task["id"].as_str(), task["sender"].as_str()), (Some(id.as_str()), Some("telegram:4242")));
    agent.does("post_update", json!({ "content": "looking" })).await;
    agent.does("ask_operator", json!({ "question": "scrub it, too?" })).await;
    let question = telegram.hears("scrub it, too?").await;
    assert_eq!(question.markup["force_reply"], true);
    telegram.replies(OPERATOR, OPERATOR, question.message, "yes, tonight");
    telegram.hears("has your answer").await;
    stands(model, &id, "in_progress").await;
    agent.does("complete_task", json!({ "task": id, "result": "clean" })).await;
    let done = telegram.hears("homelab is done").await;
    assert!(done.text.contains("clean") && done.reply_to == Some(command), "{done:?}");
    assert!(telegram.state().with("looking").is_none(), "progress is not mirrored");

    telegram.says(OPERATOR, "/status@nexus_test_bot");
    telegram.hears("0 waiting, 0 in progress").await;
    telegram.says(OPERATOR, "/status@another_bot");
    let other = send(model, "homelab", "something else").await;
    telegram.says(OPERATOR, "/tasks homelab");
    telegram.hears(&format!("#{other} homelab, pending: something else")).await;
    telegram.says(OPERATOR, &format!("/cancel {other} not today"));
    telegram.hears(&format!("#{other} is cancelled")).await;
    assert_eq!(stands(model, &other, "cancelled").await["reason"], "cancelled by telegram:4242: not today");
    telegram.says(OPERATOR, &format!("/retry {other}"));
    stands(model, &other, "pending").await;
    telegram.says(OPERATOR, "/cancel t999");
    telegram.hears("there is no task t999").await;
    telegram.says(OPERATOR, "/send nowhere x");
    telegram.hears("there is no target `nowhere`").await;
    telegram.says(OPERATOR, "/reboot");
    telegram.hears("there is no such command").await;
    telegram.says(OPERATOR, "/help");
    telegram.hears("Reply to a task").await;
    // It was said that there is somebody else; nobody answered for them.
    assert_eq!(telegram.state().sent.iter().filter(|sent| sent.text.contains("in progress, 0 dead")).count(), 1);
    faultless(telegram);
}

#[tokio::test]
async fn a_posted_task_that_is_stopped_is_called_off_in_its_chat() {
    let (telegram, _hub, model) = started().await;
    let id = send(&model, "attic", "Bring the boxes down").await;
    let posted = telegram.hears("Bring the boxes down").await;
    assert_eq!(posted.chat, GROUP);
    stands(&model, &id, "acknowledged").await;
    model.does("send_message", json!({ "target": "attic", "message": "STOP" })).await;
    let called_off = telegram.hears(&format!("#{id} is cancelled")).await;
    assert_eq!((called_off.chat, called_off.reply_to), (GROUP, Some(posted.message)));
    stands(&model, &id, "cancelled").await;
    // What is said of it is kept, and they are told that nobody wants it any more.
    telegram.replies(OPERATOR, GROUP, posted.message, "too late, they are down");
    telegram.hears(&format!("kept, but #{id} is cancelled")).await;
    updates(&model, json!({ "task": id }), "they are down").await;
    faultless(&telegram);
}

#[tokio::test]
async fn nobody_is_believed_who_is_not_listed_and_nobody_else_s_words_are_commands() {
    let (telegram, hub, model) = started().await;
    let id = send(&model, "desk", "Water the plants").await;
    let posted = telegram.hears("Water the plants").await;

    telegram.says(STRANGER, "/send homelab rm -rf everything");
    telegram.says(STRANGER, "/status");
    telegram.replies(STRANGER, OPERATOR, posted.message, "the stranger was here");
    // Known, but in a chat that nobody listed.
    telegram.message(OPERATOR, -55, json!({ "text": "/status" }));
    let bot = json!({ "text": "/status", "from": { "id": OPERATOR, "is_bot": true, "first_name": "b" } });
    telegram.message(OPERATOR, OPERATOR, bot);
    let forwarded = json!({ "text": "/cancel t1", "forward_origin": { "type": "user" } });
    telegram.message(OPERATOR, OPERATOR, forwarded);
    telegram.edits(OPERATOR, OPERATOR, json!({ "text": "/cancel t1" }));
    telegram.hears("a command that is edited is not run").await;
    telegram.edits(OPERATOR, OPERATOR, json!({ "text": "all of them" }));
    telegram.message(OPERATOR, OPERATOR, json!({ "photo": [], "caption": "before" }));

    let all = updates(&model, json!({ "task": id }), "before").await;
    let said: Vec<&str> = all.iter().map(|(_, content)| content.as_str()).collect();
    assert_eq!(said[1..], ["(forwarded) /cancel t1", "(edited) all of them", said[3]], "{said:?}");
    assert!(said[3].starts_with("before\n(a photo was with it"), "{said:?}");
    assert_eq!(stands(&model, &id, "in_progress").await["sender"], MODEL);
    let rows = hub.audit_reaches(|rows| rows.iter().filter(|row| row.event == "key_refused").count() >= 3).await;
    let refused = rows.iter().filter(|row| row.event == "key_refused").map(|row| row.detail.clone().unwrap());
    let refused: Vec<String> = refused.collect();
    assert_eq!(
        refused,
        [
            "Telegram user 666 who is not in allowed_users, in chat 666",
            "Telegram user 666 who is not in allowed_users, in chat 4242",
            "Telegram user 4242 in chat -55, which is not listened to",
        ]
    );
    // Nobody got an answer who is not believed: one about the edited command, and the task itself.
    assert!(telegram.state().sent.iter().all(|sent| sent.chat == OPERATOR));
    assert_eq!(telegram.state().sent.len(), 2, "{:?}", telegram.state().sent);
    faultless(&telegram);
}

#[tokio::test]
async fn without_allowed_users_nobody_is_believed() {
    let telegram = Telegram::start().await;
    let yaml = telegram.yaml(TARGETS).replace("allowed_users: [4242]", "allowed_users: []");
    let hub = Hub::start().yaml(&yaml).agent_keys().env("TELEGRAM_BOT_TOKEN", TOKEN).await;
    hub.says("the Telegram bot believes nobody").await;
    telegram.says(OPERATOR, "/status");
    hub.audit_reaches(|rows| rows.iter().any(|row| row.event == "key_refused")).await;
    assert!(telegram.state().sent.is_empty());
}

#[tokio::test]
async fn a_forum_has_a_topic_for_each_target() {
    let telegram = Telegram::start().await;
    telegram.is_forum(GROUP);
    let home = |name: &str, more: &str| format!("    {name}: {{ telegram: {{ chat_id: {GROUP}{more} }} }}\n");
    let targets = home("attic", "") + &home("cellar", "") + &home("shed", ", topic: 7") + "    homelab: { worker: {} }";
    let setup = Hub::start().yaml(&telegram.yaml(&targets)).agent_keys().env("TELEGRAM_BOT_TOKEN", TOKEN);
    let mut hub = setup.await;
    let model = hub.legacy(&secret(MODEL)).await;
    let attic = send(&model, "attic", "up there").await;
    let made = telegram.hears("up there").await.topic.unwrap();
    let cellar = send(&model, "cellar", "down there").await;
    assert_ne!(telegram.hears("down there").await.topic, Some(made));
    send(&model, "shed", "out there").await;
    assert_eq!(telegram.hears("out there").await.topic, Some(7));
    assert_eq!(telegram.state().topics, [(GROUP, "attic".to_owned()), (GROUP, "cellar".to_owned())]);

    // Words in a topic are about its own target, although another's task is newer.
    stands(&model, &cellar, "acknowledged").await;
    let words = json!({ "text": "I am up", "message_thread_id": made, "is_topic_message": true });
    telegram.message(OPERATOR, GROUP, words);
    updates(&model, json!({ "task": attic }), "I am up").await;

    hub.restart().await;
    let model = hub.legacy(&secret(MODEL)).await;
    send(&model, "attic", "again up there").await;
    assert_eq!(telegram.hears("again up there").await.topic, Some(made), "it is remembered");

    // Somebody has deleted it: the task goes into the chat, and the next one gets a new topic.
    telegram.next("sendMessage", [Say::Error(400, "Bad Request: message thread not found", json!({}))]);
    send(&model, "attic", "once more").await;
    assert_eq!(telegram.hears("once more").await.topic, None);
    send(&model, "attic", "and more").await;
    let anew = telegram.hears("and more").await.topic;
    assert!(anew.is_some() && anew != Some(made), "{anew:?}");
    faultless(&telegram);
}

#[tokio::test]
async fn the_credentials_may_stand_in_a_file_which_names_the_chat() {
    let telegram = Telegram::start().await;
    let setup = Hub::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("telegram");
    write(&file, &format!("token={TOKEN}\nchat_id={GROUP}\n"));
    let yaml = telegram.yaml("    desk: { telegram: {} }\n    homelab: { worker: {} }\n    attic: { worker: {} }");
    let yaml = yaml.replace("allowed_users", &format!("credentials_file: \"{}\", allowed_users", file.display()));
    let hub = setup.yaml(&yaml).agent_keys().await;
    let model = hub.legacy(&secret(MODEL)).await;
    let id = send(&model, "desk", "from the file").await;
    assert_eq!(telegram.hears("from the file").await.chat, GROUP);
    telegram.message(OPERATOR, GROUP, json!({ "text": "seen" }));
    updates(&model, json!({ "task": id }), "seen").await;
}

#[tokio::test]
async fn the_token_is_nowhere_to_be_seen() {
    let (telegram, mut hub, model) = started().await;
    send(&model, "desk", "say nothing of it").await;
    telegram.hears("say nothing of it").await;
    telegram.always("getUpdates", Some(Say::Error(401, "Unauthorized: bot777000:x", json!({}))));
    telegram.says(OPERATOR, "/status");
    hub.says("the token is not valid").await;
    telegram.always("getUpdates", Some(Say::Close));
    let said = hub.said();
    let polled = |row: &AuditRow| row.detail.as_ref().is_some_and(|detail| detail.contains("/bot…/getUpdates 401"));
    let rows = hub.audit_reaches(|rows| rows.iter().any(polled)).await;
    assert!(!said.contains(TOKEN) && !format!("{rows:?}").contains(&TOKEN[7..]));
    hub.stop().await;
    assert!(!hub.said().contains(&TOKEN[7..]));
    let mut kept = std::fs::read(hub.data.join("nexus.db")).unwrap();
    kept.extend(std::fs::read(hub.data.join("nexus.db-wal")).unwrap_or_default());
    let secret = &TOKEN.as_bytes()[7..];
    assert!(!kept.windows(secret.len()).any(|part| part == secret), "the token is in the store");
}
