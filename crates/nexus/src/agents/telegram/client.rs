//! The few methods of the Bot API that are used, and what their answers mean.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::{Instant, timeout};

use nexus_core::audit::Sink;
use nexus_core::{redact, text};
use nexus_system::outbound::{BadUrl, Calling, OutboundError, Outlet, Reach, Redirects, SafeUrl};

use super::credentials::Token;
use super::incoming::User;
use crate::wire::VERSION;

/// How long Telegram holds a request for updates open where there are none.
const HOLDS: Duration = Duration::from_secs(50);
/// Beyond that: for the way there and back.
const PATIENCE: Duration = Duration::from_secs(15);
/// Updates in one answer. Each may be some ten kilobytes.
const MOST_UPDATES: usize = 50;
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;
const LONGEST_REASON: usize = 200;
/// Nobody is silent for longer without asking whether that is still wanted.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(3_600);
/// The one method that keeps no silence but its own: a bot that may not speak can still listen.
const LISTENS: &str = "getUpdates";
/// Left out, it would be what it was at the last request of anybody.
const WANTED: [&str; 3] = ["message", "edited_message", "callback_query"];

/// Why a request did not do what it should.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Trouble {
    #[error("Telegram cannot be reached: {0}")]
    Unreachable(String),
    /// It may have done what was asked.
    #[error("Telegram cannot be understood: {0}")]
    Garbled(String),
    /// For the whole bot.
    #[error("Telegram wants {} s of silence", .0.as_secs())]
    TooMany(Duration),
    /// 409: somebody else gets the updates.
    #[error("{0}")]
    Conflict(String),
    /// 401 and 404: that is what Telegram says to an unknown token.
    #[error("the token is not valid")]
    BadToken,
    /// 403.
    #[error("{0}")]
    Forbidden(String),
    /// 400 and whatever else will not be better the next time.
    #[error("{reason}")]
    Refused { reason: String, moved_to: Option<i64> },
}

/// Whether Telegram holds a request for updates open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Long,
    /// It tells at once whether it works.
    No,
}

/// Speaks for one bot. The token stands in the path of every request, and nowhere else.
#[derive(Debug)]
pub struct Client {
    outlet: Outlet,
    /// `https://api.telegram.org/bot…/`
    base: SafeUrl,
    /// Until when Telegram wants to hear nothing of this bot, whichever of its requests was told so.
    silent_until: Mutex<Option<Instant>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Envelope<T> {
    #[serde(default)]
    ok: bool,
    result: Option<T>,
    error_code: Option<i64>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
    migrate_to_chat_id: Option<i64>,
}

/// What is looked at of a message that was sent.
#[derive(Debug, Deserialize)]
struct SentMessage {
    message_id: i64,
}

#[derive(Debug, Deserialize)]
struct ChatInfo {
    #[serde(default)]
    is_forum: bool,
}

#[derive(Debug, Deserialize)]
struct TopicInfo {
    message_thread_id: i64,
}

impl Client {
    pub fn new(api: &str, token: &Token, audit: Arc<dyn Sink>) -> Result<Self, BadUrl> {
        let base = format!("{}/bot{}/", api.trim_end_matches('/'), token.expose());
        let base = SafeUrl::parse(&base)?.hiding(token.expose());
        // The address is the operator's own: a Bot API server of their own may stand anywhere.
        let reach = Reach::new(true, ["localhost"]);
        let outlet = Outlet::new(&format!("nexus/{VERSION}"), reach, audit);
        Ok(Self { outlet, base, silent_until: Mutex::default() })
    }

    pub async fn me(&self) -> Result<User, Trouble> {
        self.call("getMe", &json!({}), "who am I", PATIENCE).await
    }

    /// Waits for updates from this number on; those before it are gone for good. An update that cannot be read is
    /// given as it is.
    pub async fn updates(&self, from: Option<i64>, wait: Wait) -> Result<Vec<Value>, Trouble> {
        let holds = match wait {
            Wait::Long => HOLDS,
            Wait::No => Duration::ZERO,
        };
        let mut asked = json!({ "limit": MOST_UPDATES, "timeout": holds.as_secs(), "allowed_updates": WANTED });
        if let Some(from) = from {
            asked["offset"] = from.into();
        }
        self.call(LISTENS, &asked, "wait for updates", holds + PATIENCE).await
    }

    /// Updates go to whoever asks for them, from now on.
    pub async fn delete_webhook(&self) -> Result<(), Trouble> {
        self.call::<Value>("deleteWebhook", &json!({}), "take the webhook away", PATIENCE).await.map(drop)
    }

    /// The number of the new message.
    pub async fn send(&self, message: &Value) -> Result<i64, Trouble> {
        let sent: SentMessage = self.call("sendMessage", message, "send a message", PATIENCE).await?;
        Ok(sent.message_id)
    }

    pub async fn edit(&self, message: &Value) -> Result<(), Trouble> {
        let edited = self.call::<Value>("editMessageText", message, "change a message", PATIENCE).await;
        match edited {
            Err(Trouble::Refused { reason, .. }) if reason.contains("message is not modified") => Ok(()),
            edited => edited.map(drop),
        }
    }

    /// The button stops waiting; `words` are shown for a moment. That is not worth waiting for a silence to end.
    pub async fn answer_press(&self, press: &str, words: &str) -> Result<(), Trouble> {
        let answer = json!({ "callback_query_id": press, "text": words });
        self.call::<Value>("answerCallbackQuery", &answer, "answer a button", PATIENCE).await.map(drop)
    }

    pub async fn is_forum(&self, chat: i64) -> Result<bool, Trouble> {
        let info: ChatInfo = self.call("getChat", &json!({ "chat_id": chat }), "look at a chat", PATIENCE).await?;
        Ok(info.is_forum)
    }

    pub async fn create_topic(&self, chat: i64, name: &str) -> Result<i64, Trouble> {
        let asked = json!({ "chat_id": chat, "name": text::cut(name, 100) });
        let made: TopicInfo = self.call("createForumTopic", &asked, "make a topic", PATIENCE).await?;
        Ok(made.message_thread_id)
    }

    /// Asks, unless Telegram wants silence: whoever gets that for an answer waits as if Telegram had said it again.
    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &Value,
        what: &str,
        patience: Duration,
    ) -> Result<T, Trouble> {
        let left = self.silent_until.lock().and_then(|until| until.checked_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| method != LISTENS && !left.is_zero()) {
            return Err(Trouble::TooMany(left));
        }
        let answer = self.ask(method, body, what, patience).await;
        if let Err(Trouble::TooMany(silence)) = &answer {
            let until = Instant::now() + (*silence).min(LONGEST_SILENCE);
            let mut known = self.silent_until.lock();
            *known = (*known).max(Some(until));
        }
        answer
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &Value,
        what: &str,
        patience: Duration,
    ) -> Result<T, Trouble> {
        let url = self.base.join(method).map_err(|_| Trouble::Unreachable("its address is none".to_owned()))?;
        let calling = Calling {
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into(),
            redirects: Redirects::SameOrigin,
            ..Calling::new("POST", url, what)
        };
        let asked = async {
            let answer = self.outlet.send(calling).await?;
            let status = answer.status;
            Ok((status, answer.whole(LARGEST_ANSWER).await?))
        };
        let unreachable = |error: OutboundError| Trouble::Unreachable(shown(&error.reason()));
        match timeout(patience, asked).await {
            Ok(Ok((status, body))) => understood(status, &body),
            Ok(Err(error)) => Err(unreachable(error)),
            Err(_) => Err(Trouble::Unreachable(format!("no answer within {} s", patience.as_secs()))),
        }
    }
}

/// What an answer says.
fn understood<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, Trouble> {
    let envelope: Option<Envelope<T>> = serde_json::from_slice(body).ok();
    let Some(envelope) = envelope else {
        // A page of some proxy, or not the Bot API at all.
        return Err(trouble(status, format!("HTTP {status} without a word of the Bot API"), &Parameters::default()));
    };
    let Envelope { ok, result, error_code, description, parameters } = envelope;
    match (ok, result) {
        (true, Some(result)) => Ok(result),
        // Null is the answer where there is nothing to say.
        (true, None) => {
            serde_json::from_value(Value::Null).map_err(|_| Trouble::Garbled("its answer has nothing in it".to_owned()))
        }
        (false, _) => {
            let status = error_code.and_then(|code| u16::try_from(code).ok()).unwrap_or(status);
            Err(trouble(status, shown(&description), &parameters))
        }
    }
}

fn trouble(status: u16, reason: String, parameters: &Parameters) -> Trouble {
    match status {
        429 => Trouble::TooMany(Duration::from_secs(parameters.retry_after.unwrap_or(5).max(1))),
        200..=299 => Trouble::Garbled(reason),
        401 | 404 => Trouble::BadToken,
        403 => Trouble::Forbidden(reason),
        409 => Trouble::Conflict(reason),
        400..=499 => Trouble::Refused { reason, moved_to: parameters.migrate_to_chat_id },
        _ => Trouble::Unreachable(match reason.as_str() {
            "" => format!("HTTP {status}"),
            reason => reason.to_owned(),
        }),
    }
}

/// Somebody else's words, in an error: short, clean, and without the token.
fn shown(words: &str) -> String {
    let words = redact::text(words);
    text::cut(&text::clean(&words), LONGEST_REASON).into_owned()
}

#[cfg(test)]
mod tests {
    use nexus_core::audit::Nowhere;

    use super::*;

    #[test]
    fn answers_are_understood() {
        assert_eq!(understood::<i64>(200, br#"{"ok":true,"result":5}"#), Ok(5));
        assert_eq!(understood::<Value>(200, br#"{"ok":true,"result":null}"#), Ok(Value::Null));
        check(429, r#"{"ok":false,"error_code":429,"parameters":{"retry_after":7}}"#, "Telegram wants 7 s of silence");
        check(401, r#"{"ok":false,"error_code":401,"description":"Unauthorized"}"#, "the token is not valid");
        check(404, "<html>", "the token is not valid");
        check(409, r#"{"ok":false,"error_code":409,"description":"Conflict: x"}"#, "Conflict: x");
        check(502, "<html>", "Telegram cannot be reached: HTTP 502 without a word of the Bot API");
        check(200, "junk", "Telegram cannot be understood: HTTP 200 without a word of the Bot API");
        check(200, r#"{"ok":true}"#, "Telegram cannot be understood: its answer has nothing in it");
        let moved = br#"{"ok":false,"error_code":400,"description":"d","parameters":{"migrate_to_chat_id":-100}}"#;
        let expected = Trouble::Refused { reason: "d".to_owned(), moved_to: Some(-100) };
        assert_eq!(understood::<i64>(400, moved), Err(expected));

        #[track_caller]
        fn check(status: u16, body: &str, expected: &str) {
            assert_eq!(understood::<i64>(status, body.as_bytes()).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        let token = Token::parse("123456:AAsecretsecret").unwrap();
        let client = Client::new("https://api.telegram.org", &token, Arc::new(Nowhere)).unwrap();
        let shown = format!("{client:?}");
        assert!(shown.contains("bot…") && !shown.contains("AAsecret"), "{shown}");
    }
}
