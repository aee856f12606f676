//! A Bot API of our own: holds requests for updates open, gives updates until they are confirmed, looks closely at
//! every request, and fails as the real one does when the test wants it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use nexus_core::tasks::Tasks;

use super::within;

pub const TOKEN: &str = "777000:AAfake_token-of_the_tests_0123456789";
/// The operator, whose private chat has the same number.
pub const OPERATOR: i64 = 4242;
pub const STRANGER: i64 = 666;
/// A group in which the target `attic` lives.
pub const GROUP: i64 = -1_001_234_567_890;
pub const BOT_NAME: &str = "nexus_test_bot";

/// What a request is answered with, in place of what it deserves. Nothing is kept of it.
#[derive(Clone, Debug)]
pub enum Say {
    /// `ok: false`, with this code, description and parameters.
    Error(u16, &'static str, Value),
    /// The connection ends.
    Close,
    /// No word ever comes, until somebody hangs up.
    Hang,
    /// What it deserves, once this is cancelled.
    Later(CancellationToken),
    /// This status, and a body that is no word of the Bot API.
    Junk(u16),
}

/// A message that the bot has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub chat: i64,
    pub message: i64,
    pub topic: Option<i64>,
    pub text: String,
    pub reply_to: Option<i64>,
    pub markup: Value,
}

#[derive(Clone, Debug, Default)]
pub struct State {
    /// Method and body of all requests, however they were answered.
    pub requests: Vec<(String, Value)>,
    pub sent: Vec<Sent>,
    /// The last text that a message was changed to, and what buttons it then had.
    pub edited: BTreeMap<i64, (String, Value)>,
    /// What was said to those who pressed buttons.
    pub answered: Vec<String>,
    pub topics: Vec<(i64, String)>,
    /// Updates that nobody has confirmed.
    pub waiting: VecDeque<Value>,
    /// How often each update was given out.
    pub given: HashMap<i64, usize>,
    pub polls: usize,
    /// What the real one would not have taken, or what no bot should send.
    pub faults: Vec<String>,
    /// All updates that ever were.
    all: Vec<Value>,
    number: i64,
    message: i64,
}

impl State {
    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.sent.iter().filter(|sent| sent.chat == chat).map(|sent| sent.text.clone()).collect()
    }

    /// The first message with these words.
    pub fn with(&self, words: &str) -> Option<&Sent> {
        self.sent.iter().find(|sent| sent.text.contains(words))
    }
}

struct Inner {
    state: watch::Sender<State>,
    script: Mutex<HashMap<String, VecDeque<Say>>>,
    always: Mutex<HashMap<String, Say>>,
    forums: Mutex<Vec<i64>>,
    /// Messages with these words are answered so.
    poison: Mutex<Option<(String, Say)>>,
    /// What was confirmed is given out all the same.
    forgetful: AtomicBool,
    /// Polls that are being held open.
    polling: watch::Sender<usize>,
}

/// Listens until it is dropped.
pub struct Telegram {
    inner: Arc<Inner>,
    port: u16,
    over: CancellationToken,
}

impl Telegram {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            state: watch::Sender::new(State { number: 100, message: 1_000, ..State::default() }),
            script: Mutex::default(),
            always: Mutex::default(),
            forums: Mutex::default(),
            poison: Mutex::default(),
            forgetful: AtomicBool::default(),
            polling: watch::Sender::new(0),
        });
        let over = CancellationToken::new();
        let (serving, ending) = (inner.clone(), over.clone());
        Tasks::new().spawn(
            "telegram",
            over.clone().run_until_cancelled_owned(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let work = serve(stream, serving.clone());
                    Tasks::new().spawn("bot", ending.clone().run_until_cancelled_owned(work));
                }
            }),
        );
        Self { inner, port, over }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// `agents.telegram` for this one, with the operator as the one user who is believed.
    pub fn yaml(&self, targets: &str) -> String {
        let url = self.url();
        format!("agents:\n  telegram: {{ api_url: \"{url}\", allowed_users: [{OPERATOR}] }}\n  targets:\n{targets}\n")
    }

    /// Answers the next requests for this method so.
    pub fn next(&self, method: &str, answers: impl IntoIterator<Item = Say>) {
        self.inner.script.lock().entry(method.to_owned()).or_default().extend(answers);
    }

    /// Answers all requests for this method so; none: as they deserve.
    pub fn always(&self, method: &str, answer: Option<Say>) {
        let mut always = self.inner.always.lock();
        match answer {
            Some(answer) => drop(always.insert(method.to_owned(), answer)),
            None => drop(always.remove(method)),
        }
    }

    /// Answers all messages with these words so.
    pub fn poison(&self, words: &str, answer: Say) {
        *self.inner.poison.lock() = Some((words.to_owned(), answer));
    }

    /// From now on no update is ever confirmed.
    pub fn forgets_what_was_confirmed(&self) {
        self.inner.forgetful.store(true, Ordering::SeqCst);
    }

    pub fn is_forum(&self, chat: i64) {
        self.inner.forums.lock().push(chat);
    }

    pub fn state(&self) -> State {
        self.inner.state.borrow().clone()
    }

    /// Waits until it is so.
    #[track_caller]
    pub fn reaches(&self, what: &str, so: impl Fn(&State) -> bool) -> impl Future<Output = State> {
        let mut state = self.inner.state.subscribe();
        within(what, async move { state.wait_for(|state| so(state)).await.unwrap().clone() })
    }

    /// Waits for a message with these words.
    #[track_caller]
    pub fn hears(&self, words: &str) -> impl Future<Output = Sent> {
        let owned = words.to_owned();
        let heard = self.reaches(words, move |state| state.with(&owned).is_some());
        let words = words.to_owned();
        async move { heard.await.with(&words).unwrap().clone() }
    }

    /// Somebody says something in their private chat; the number of the message.
    pub fn says(&self, user: i64, text: &str) -> i64 {
        self.message(user, user, json!({ "text": text }))
    }

    pub fn replies(&self, user: i64, chat: i64, to: i64, text: &str) -> i64 {
        let replied = json!({ "message_id": to, "from": { "id": 777_000, "is_bot": true } });
        self.message(user, chat, json!({ "text": text, "reply_to_message": replied }))
    }

    /// A message with these fields.
    pub fn message(&self, user: i64, chat: i64, fields: Value) -> i64 {
        let message = self.new_message();
        self.update("message", whole_message(user, chat, message, fields));
        message
    }

    pub fn edits(&self, user: i64, chat: i64, fields: Value) {
        let message = self.new_message();
        self.update("edited_message", whole_message(user, chat, message, fields));
    }

    pub fn presses(&self, user: i64, on: &Sent, label: &str) {
        let buttons = on.markup["inline_keyboard"][0].as_array().cloned().unwrap_or_default();
        let button = buttons.iter().find(|button| button["text"].as_str().is_some_and(|text| text.contains(label)));
        let data = button.unwrap_or_else(|| panic!("no button {label} in {on:?}"))["callback_data"].clone();
        self.update("callback_query", pressed(user, on, &data));
    }

    /// Gives updates once more that were confirmed.
    pub fn give_again(&self, numbers: &[i64]) {
        self.inner.state.send_modify(|state| {
            let again = state.all.iter().filter(|update| numbers.contains(&update["update_id"].as_i64().unwrap()));
            // What was not confirmed comes again anyway.
            let again: Vec<Value> = again.filter(|update| !state.waiting.contains(update)).cloned().collect();
            state.waiting.extend(again);
        });
    }

    fn new_message(&self) -> i64 {
        let mut number = 0;
        self.inner.state.send_modify(|state| {
            state.message += 1;
            number = state.message;
        });
        number
    }

    /// Puts an update into the queue.
    pub fn update(&self, kind: &str, what: Value) {
        self.inner.state.send_modify(|state| {
            state.number += 1;
            let mut update = json!({ "update_id": state.number });
            update[kind] = what;
            state.all.push(update.clone());
            state.waiting.push_back(update);
        });
    }
}

impl Drop for Telegram {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

fn whole_message(user: i64, chat: i64, message: i64, fields: Value) -> Value {
    let kind = if chat < 0 { "supergroup" } else { "private" };
    let mut whole = json!({
        "message_id": message,
        "date": 1_790_000_000,
        "from": { "id": user, "is_bot": false, "first_name": "Somebody" },
        "chat": { "id": chat, "type": kind },
    });
    let Value::Object(fields) = fields else { panic!("not fields: {fields}") };
    whole.as_object_mut().unwrap().extend(fields);
    whole
}

fn pressed(user: i64, on: &Sent, data: &Value) -> Value {
    json!({
        "id": "99887766",
        "from": { "id": user, "is_bot": false, "first_name": "Somebody" },
        "message": { "message_id": on.message, "chat": { "id": on.chat, "type": "private" }, "text": on.text },
        "data": data,
    })
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    let mut stream = BufReader::new(stream);
    while let Some((line, body)) = request(&mut stream).await {
        let Some(method) = method(&line) else {
            let answer = error(401, "Unauthorized", &json!({}));
            if respond(&mut stream, 401, &answer).await.is_none() {
                return;
            }
            continue;
        };
        inner.state.send_modify(|state| state.requests.push((method.clone(), body.clone())));
        let scripted = inner.script.lock().get_mut(&method).and_then(VecDeque::pop_front);
        let poisoned = inner.poison.lock().clone().filter(|(words, _)| is_said(&body, words)).map(|(_, answer)| answer);
        let (status, answer) = match scripted.or(poisoned).or_else(|| inner.always.lock().get(&method).cloned()) {
            Some(Say::Close) => return,
            Some(Say::Hang) => {
                let _ = stream.fill_buf().await;
                return;
            }
            Some(Say::Later(wait)) => {
                wait.cancelled().await;
                answer(&inner, &method, &body)
            }
            Some(Say::Junk(status)) => (status, json!("junk")),
            Some(Say::Error(code, words, parameters)) => (code, error(code, words, &parameters)),
            None if method == "getUpdates" => match poll(&mut stream, &inner, &body).await {
                Some(answer) => (200, answer),
                None => return,
            },
            None => answer(&inner, &method, &body),
        };
        if respond(&mut stream, status, &answer).await.is_none() {
            return;
        }
    }
}

fn is_said(body: &Value, words: &str) -> bool {
    body["text"].as_str().is_some_and(|text| text.contains(words))
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head.swap_remove(0), serde_json::from_slice(&body).unwrap_or_default()))
}

/// None: it is not our bot's.
fn method(line: &str) -> Option<String> {
    let path = line.strip_prefix("POST /bot")?.strip_suffix(" HTTP/1.1")?;
    path.strip_prefix(TOKEN)?.strip_prefix('/').map(str::to_owned)
}

async fn respond(stream: &mut BufReader<TcpStream>, status: u16, answer: &Value) -> Option<()> {
    let body = answer.to_string();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await.ok()
}

fn error(code: u16, words: &str, parameters: &Value) -> Value {
    json!({ "ok": false, "error_code": code, "description": words, "parameters": parameters })
}

/// Counts a poll for as long as it is held open.
struct Polling<'a>(&'a Inner);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.polling.send_modify(|polls| *polls -= 1);
    }
}

/// Holds the request open until there is something. None: nobody waits any more.
async fn poll(stream: &mut BufReader<TcpStream>, inner: &Inner, asked: &Value) -> Option<Value> {
    inner.polling.send_modify(|polls| *polls += 1);
    let _polling = Polling(inner);
    let mut state = inner.state.subscribe();
    inner.state.send_modify(|state| {
        state.polls += 1;
        if *inner.polling.borrow() > 1 {
            state.faults.push("two polls at once".to_owned());
        }
        let wanted = json!(["message", "edited_message", "callback_query"]);
        if asked["allowed_updates"] != wanted
            || asked["timeout"].as_u64().is_none_or(|timeout| timeout != 0 && timeout < 30)
        {
            state.faults.push(format!("a poll that is not right: {asked}"));
        }
        if let Some(offset) = asked["offset"].as_i64().filter(|_| !inner.forgetful.load(Ordering::SeqCst)) {
            state.waiting.retain(|update| update["update_id"].as_i64() >= Some(offset));
        }
    });
    let timeout = Duration::from_secs(asked["timeout"].as_u64().unwrap_or_default());
    tokio::select! {
        _ = state.wait_for(|state| !state.waiting.is_empty()) => {}
        () = tokio::time::sleep(timeout) => {}
        // It hangs up.
        _ = stream.fill_buf() => return None,
    }
    let mut updates = Vec::new();
    inner.state.send_modify(|state| {
        updates = state.waiting.iter().take(100).cloned().collect();
        for update in &updates {
            *state.given.entry(update["update_id"].as_i64().unwrap()).or_default() += 1;
        }
    });
    Some(json!({ "ok": true, "result": updates }))
}

fn answer(inner: &Inner, method: &str, body: &Value) -> (u16, Value) {
    let mut result = json!(true);
    let mut refused = None;
    let chat = body["chat_id"].as_i64().unwrap_or_default();
    inner.state.send_modify(|state| match method {
        "getMe" => result = json!({ "id": 777_000, "is_bot": true, "first_name": "n", "username": BOT_NAME }),
        "sendMessage" | "editMessageText" => {
            let text = body["text"].as_str().unwrap_or_default().trim();
            let units = text.encode_utf16().count();
            let keyboard = body["reply_markup"]["inline_keyboard"][0].as_array().cloned().unwrap_or_default();
            let long = |button: &Value| button["callback_data"].as_str().is_none_or(|data| data.len() > 64);
            if units == 0 || units > 4096 || chat == 0 || !body["parse_mode"].is_null() || keyboard.iter().any(long) {
                state.faults.push(format!("a message that is not right, of {units} units: {body}"));
                refused = Some("Bad Request: message is too long");
                return;
            }
            if method == "editMessageText" {
                let message = body["message_id"].as_i64().unwrap_or_default();
                state.edited.insert(message, (text.to_owned(), body["reply_markup"].clone()));
                return;
            }
            state.message += 1;
            state.sent.push(Sent {
                chat,
                message: state.message,
                topic: body["message_thread_id"].as_i64(),
                text: text.to_owned(),
                reply_to: body["reply_parameters"]["message_id"].as_i64(),
                markup: body["reply_markup"].clone(),
            });
            result = json!({ "message_id": state.message, "chat": { "id": chat } });
        }
        "answerCallbackQuery" => state.answered.push(body["text"].as_str().unwrap_or_default().to_owned()),
        "getChat" => result = json!({ "id": chat, "is_forum": inner.forums.lock().contains(&chat) }),
        "createForumTopic" => {
            state.topics.push((chat, body["name"].as_str().unwrap_or_default().to_owned()));
            result = json!({ "message_thread_id": 50 + state.topics.len(), "name": body["name"] });
        }
        "deleteWebhook" => {}
        _ => state.faults.push(format!("a method that is not known: {method}")),
    });
    match refused {
        Some(words) => (400, error(400, words, &json!({}))),
        None => (200, json!({ "ok": true, "result": result })),
    }
}
