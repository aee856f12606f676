//! Buttons for what waits for the operator's yes. They are shown in the operator's own chat and nowhere else, and
//! give way to what was answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::warn;

use nexus_core::approval::{Code, NotSettled, Scope, Shown};
use nexus_core::gate::By;
use nexus_core::text;

use super::Bot;
use super::incoming::{Press, User};
use super::sender::{Say, Unsaid, Worth};
use super::split;

/// Questions that are shown at once; a model that asks for more does not flood the operator's phone.
const MOST_SHOWN: usize = 20;
/// UTF-16 units of what is asked, with room for the rest of the message.
const LONGEST_QUESTION: usize = 3_300;
/// How soon it is noticed that a question's time is over.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// A chat that does not let the bot in is tried again.
const SHUT: Duration = Duration::from_secs(60);

/// Questions that are shown, by their codes.
#[derive(Debug, Default)]
pub struct Prompts(Mutex<HashMap<String, Prompt>>);

#[derive(Clone, Debug)]
struct Prompt {
    text: String,
    /// None: it is on its way.
    message: Option<i64>,
    /// Somebody has pressed a button and is told the outcome, which is then what the message says.
    pressed: bool,
}

impl Prompts {
    fn press(&self, code: &Code, pressed: bool) {
        if let Some(prompt) = self.0.lock().get_mut(code.as_str()) {
            prompt.pressed = pressed;
        }
    }

    fn settled(&self, code: &Code) -> Option<Prompt> {
        self.0.lock().remove(code.as_str())
    }

    /// Those that wait no longer, and of which nobody else tells why.
    fn gone(&self, waiting: &[Shown]) -> Vec<Prompt> {
        let waits = |code: &str| waiting.iter().any(|shown| shown.code.as_str() == code);
        let gone = |code: &String, prompt: &mut Prompt| prompt.message.is_some() && !prompt.pressed && !waits(code);
        self.0.lock().extract_if(gone).map(|(_, gone)| gone).collect()
    }
}

/// What a button says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Button {
    Yes(Scope),
    No,
}

impl Button {
    fn word(self) -> &'static str {
        match self {
            Button::Yes(Scope::Once) => "once",
            Button::Yes(Scope::Session) => "session",
            Button::Yes(Scope::Each) => "each",
            Button::No => "no",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Button::Yes(Scope::Once) => "✅ once",
            Button::Yes(Scope::Session) => "✅ session",
            Button::Yes(Scope::Each) => "✅ ask for each call",
            Button::No => "❌ no",
        }
    }

    /// What Telegram brings back when it is pressed: 64 bytes at most.
    fn data(self, code: &Code) -> String {
        format!("gate:{code}:{}", self.word())
    }

    fn parse(data: &str) -> Option<(Code, Self)> {
        let (code, word) = data.strip_prefix("gate:")?.split_once(':')?;
        let all = [Button::Yes(Scope::Once), Button::Yes(Scope::Session), Button::Yes(Scope::Each), Button::No];
        let button = all.into_iter().find(|button| button.word() == word)?;
        Some((Code::typed(code), button))
    }
}

/// Shows the questions.
#[derive(Debug)]
pub struct Desk {
    bot: Arc<Bot>,
    chat: i64,
}

impl Desk {
    pub fn new(bot: Arc<Bot>, chat: i64) -> Self {
        Self { bot, chat }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let approvals = self.bot.hub.approvals.clone();
        let (mut questions, mut changes) = (approvals.questions(), approvals.changes());
        loop {
            questions.borrow_and_update();
            changes.borrow_and_update();
            let waiting = approvals.list();
            self.take_back(&waiting).await;
            if let Err(unsaid) = self.show(waiting).await {
                warn!("what waits for approval is not shown in the Telegram chat {}: {unsaid}", self.chat);
                sleep(SHUT).await;
            }
            tokio::select! {
                _ = questions.changed() => {}
                _ = changes.changed() => {}
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }

    async fn show(&self, waiting: Vec<Shown>) -> Result<(), Unsaid> {
        for shown in waiting {
            let (code, text) = (shown.code.to_string(), question(&shown));
            {
                let mut prompts = self.bot.prompts.0.lock();
                if prompts.contains_key(&code) || prompts.len() >= MOST_SHOWN {
                    continue;
                }
                prompts.insert(code.clone(), Prompt { text: text.clone(), message: None, pressed: false });
            }
            let say = Say { markup: Some(buttons(&shown)), ..Say::new(self.chat, text) };
            let said = self.bot.outbox.say(say, Worth::Minutes).await;
            let mut prompts = self.bot.prompts.0.lock();
            match said {
                // It may have been answered already.
                Ok(said) => drop(prompts.get_mut(&code).map(|prompt| prompt.message = Some(said.message))),
                Err(unsaid) => {
                    prompts.remove(&code);
                    return Err(unsaid);
                }
            }
        }
        Ok(())
    }

    /// What waits no longer has no buttons any more.
    async fn take_back(&self, waiting: &[Shown]) {
        for Prompt { text, message, .. } in self.bot.prompts.gone(waiting) {
            self.bot.replace(self.chat, message, &text, "— waits no longer: answered elsewhere, or its time was over");
        }
    }
}

impl Bot {
    /// Somebody has pressed a button.
    pub async fn pressed(self: &Arc<Self>, press: &Press) {
        let Some(message) = &press.message else { return };
        if !self.access.believes(&press.from, &message.chat) {
            return;
        }
        let chat = message.chat.id;
        let desk = self.operator.map(|chat| self.places.now(chat));
        let asked = press.data.as_deref().and_then(Button::parse).filter(|_| Some(chat) == desk);
        let Some((code, button)) = asked else { return self.answer(press, "that button does nothing here") };
        // The desk wakes when it is settled, and must not be the first to say something about it.
        self.prompts.press(&code, true);
        let settled = self.settle(&code, button, &press.from).await;
        let prompt = match &settled {
            // Nothing was decided: the question stays.
            Err(NotSettled::NotRecorded(_)) => {
                self.prompts.press(&code, false);
                None
            }
            _ => {
                let prompt = self.prompts.settled(&code);
                Some(prompt.map_or_else(|| message.text.clone().unwrap_or_default(), |prompt| prompt.text))
            }
        };
        let outcome = match settled {
            Ok(outcome) => outcome,
            Err(NotSettled::Unknown(_)) => "waits no longer: answered elsewhere, or its time was over".to_owned(),
            Err(error) => error.to_string(),
        };
        self.answer(press, &outcome);
        if let Some(text) = prompt {
            self.replace(chat, Some(message.message_id), &text, &format!("— {outcome}"));
        }
    }

    async fn settle(&self, code: &Code, button: Button, user: &User) -> Result<String, NotSettled> {
        let approvals = &self.hub.approvals;
        // A finger that comes down twice does not allow it twice.
        if !approvals.list().iter().any(|shown| shown.code == *code) {
            return Err(NotSettled::Unknown(code.clone()));
        }
        let (by, who) = (By::Telegram(user.id), user.shown());
        Ok(match button {
            Button::No => {
                approvals.deny_by(code, by).await?;
                format!("no, said {who}")
            }
            Button::Yes(scope) => match approvals.approve_by(code, scope, by).await? {
                (_, Scope::Once) => format!("allowed once by {who}"),
                (shown, Scope::Session) => format!("allowed for the session ({}) by {who}", shown.what),
                (_, Scope::Each) => format!("allowed by {who}; every call is asked about"),
            },
        })
    }

    /// Other words for a message, and no buttons.
    fn replace(self: &Arc<Self>, chat: i64, message: Option<i64>, text: &str, outcome: &str) {
        let text = format!("{text}\n\n{outcome}");
        let (bot, say) = (self.clone(), Say { instead_of: message, ..Say::new(chat, text) });
        self.aside("an outcome in Telegram", async move {
            if let Err(unsaid) = bot.outbox.say(say, Worth::Minutes).await {
                warn!("a question in the Telegram chat {chat} still shows its buttons: {unsaid}");
            }
        });
    }

    /// Telegram waits for that; nobody else does.
    fn answer(self: &Arc<Self>, press: &Press, words: &str) {
        let (bot, id, words) = (self.clone(), press.id.clone(), text::cut(words, 180).into_owned());
        self.aside("an answer to a button", async move {
            let _ = bot.client.answer_press(&id, &words).await;
        });
    }
}

/// What is asked, as far as it fits. What does not fit is said to be missing.
fn question(shown: &Shown) -> String {
    let client = shown.client.as_ref().map(|client| format!(" ({client})")).unwrap_or_default();
    let head = format!("{} wants to: {} on {}\nkey {}{client}", shown.code, shown.tool, shown.node, shown.key);
    let arguments = serde_json::to_string_pretty(&shown.arguments).unwrap_or_default();
    let whole = format!("{head}\n\n{}\n\n{arguments}", shown.summary);
    let whole = text::clean(&whole);
    let mut words = split::shortened(&whole, LONGEST_QUESTION);
    if words.len() != whole.len() {
        words.push_str("\n(look at all of it with `nexus pending` before you say yes)");
    }
    format!("{words}\n\nfor the session means: {}", split::shortened(&shown.what, 200))
}

fn buttons(shown: &Shown) -> Value {
    let offers = shown.offers.iter().map(|scope| Button::Yes(*scope)).chain([Button::No]);
    let row: Vec<Value> =
        offers.map(|button| json!({ "text": button.label(), "callback_data": button.data(&shown.code) })).collect();
    json!({ "inline_keyboard": [row] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(summary: &str) -> Shown {
        Shown {
            code: Code::typed("ABCD2345"),
            asked: nexus_core::clock::now(),
            key: "claude".to_owned(),
            client: Some("claude-code/2".to_owned()),
            session: "s".to_owned(),
            tool: "run_command".to_owned(),
            node: "local".to_owned(),
            summary: summary.to_owned(),
            arguments: json!({ "command": "uptime" }),
            what: "all writes".to_owned(),
            offers: vec![Scope::Once, Scope::Session],
        }
    }

    #[test]
    fn a_button_brings_back_its_code_and_nothing_else_counts() {
        let code = Code::typed("ABCD2345");
        for button in [Button::Yes(Scope::Once), Button::Yes(Scope::Session), Button::Yes(Scope::Each), Button::No] {
            assert!(button.data(&code).len() <= 64);
            assert_eq!(Button::parse(&button.data(&code)), Some((code.clone(), button)));
        }
        for other in ["", "gate:", "gate:ABCD2345", "gate:ABCD2345:all", "ABCD2345:once"] {
            assert_eq!(Button::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_somebody_has_pressed_is_not_taken_back_meanwhile() {
        let (prompts, code) = (Prompts::default(), Code::typed("ABCD2345"));
        let prompt = Prompt { text: "may I?".to_owned(), message: Some(7), pressed: false };
        prompts.0.lock().insert(code.to_string(), prompt);
        assert_eq!(prompts.gone(&[shown("")]).len(), 0, "it waits");
        prompts.press(&code, true);
        assert_eq!(prompts.gone(&[]).len(), 0, "whoever pressed tells of it");
        prompts.press(&code, false);
        assert_eq!(prompts.gone(&[]).len(), 1, "nothing came of that, and its time is over");
        assert!(prompts.settled(&code).is_none());
    }

    #[test]
    fn a_question_shows_what_it_is_about_and_only_what_may_be_answered() {
        let asked = question(&shown("uptime"));
        for part in ["ABCD2345", "run_command", "claude", "uptime", "\"command\"", "all writes"] {
            assert!(asked.contains(part), "{part} in {asked}");
        }
        let labels: Vec<Value> = buttons(&shown(""))["inline_keyboard"][0].as_array().unwrap().clone();
        let labels: Vec<&str> = labels.iter().filter_map(|button| button["text"].as_str()).collect();
        assert_eq!(labels, ["✅ once", "✅ session", "❌ no"]);
    }

    #[test]
    fn a_question_that_is_too_long_says_that_it_is_not_whole() {
        let asked = question(&shown(&"🦀".repeat(5_000)));
        assert!(asked.contains("nexus pending") && split::units(&asked) < split::LONGEST - 300, "{asked}");
    }
}
