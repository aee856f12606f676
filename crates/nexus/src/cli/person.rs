//! The person at the terminal: sees how a call goes on, and is asked what only they can answer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use reedline::{Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use nexus_core::text;
use nexus_mcp::upstream::client::Listener;
use nexus_mcp::wire::{INTERNAL_ERROR, RpcError};

use super::form::Form;
use super::hub::Asks;
use super::{one_line, say};

/// Answers that do not fit before a question counts as not answered.
const MOST_TRIES: usize = 5;

/// Of a whole: the bar knows no fractions.
const PARTS: u64 = 1_000;

/// Characters of what a tool says meanwhile.
const LONGEST_MESSAGE: usize = 300;

/// The keyboard. One reads from it at a time.
#[derive(Clone, Debug)]
pub struct Keyboard(Arc<Semaphore>);

impl Keyboard {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Waits until nobody else reads.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }
}

/// Whoever waits for one call.
pub struct Person {
    pub asks: Asks,
    /// Whether there is a terminal to draw on.
    pub watches: bool,
    pub keyboard: Keyboard,
    /// The answer to the hub's question if a server may be used, given beforehand.
    pub consent: Option<&'static str>,
    bar: Mutex<Option<ProgressBar>>,
    is_asked: AtomicBool,
    /// Ctrl-C at a question: this call need not ask again.
    has_enough: AtomicBool,
}

impl fmt::Debug for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Person").field("asks", &self.asks).field("watches", &self.watches).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Step<'a> {
    progress: f64,
    total: Option<f64>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct LogMessage<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    data: Value,
}

impl Person {
    pub fn new(asks: Asks, watches: bool, keyboard: Keyboard) -> Self {
        let (bar, is_asked, has_enough) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(false));
        Self { asks, watches, keyboard, consent: None, bar, is_asked, has_enough }
    }

    /// It takes long and nothing is known of it.
    pub fn waits(&self) {
        self.draw(None, "waiting; Ctrl-C cancels the call".to_owned());
    }

    /// The call is over: nothing of it is left on the screen.
    pub fn sees_the_end(&self) {
        if let Some(bar) = self.bar.lock().take() {
            bar.finish_and_clear();
        }
    }

    fn draw(&self, done: Option<u64>, message: String) {
        if !self.watches || self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let mut bar = self.bar.lock();
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(PARTS);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        let template = match done {
            Some(_) => "{spinner} [{bar:32}] {percent:>3}% {wide_msg}",
            None => "{spinner} {wide_msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_position(done.unwrap_or(0));
        bar.set_message(message);
    }

    /// The result of `elicitation/create`.
    async fn answer(&self, params: &Value) -> Value {
        let Some(form) = Form::of(params) else { return json!({ "action": "decline" }) };
        if let Some(decision) = self.consent.filter(|decision| form.offers_for_server(decision)) {
            return json!({ "action": "accept", "content": { "decision": decision } });
        }
        if self.asks == Asks::Nobody || self.has_enough.load(Ordering::Relaxed) {
            return json!({ "action": "cancel" });
        }
        let turn = self.keyboard.turn().await;
        self.is_asked.store(true, Ordering::Relaxed);
        self.sees_the_end();
        // Dropped with this future, when the call is over before the answer is there.
        let stop = StopReading(Arc::default());
        let stopped = stop.0.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            put(&form, &stopped)
        });
        let filled = asking.await.ok().flatten();
        self.is_asked.store(false, Ordering::Relaxed);
        match filled {
            Some(content) => json!({ "action": "accept", "content": content }),
            None => {
                self.has_enough.store(true, Ordering::Relaxed);
                json!({ "action": "cancel" })
            }
        }
    }
}

impl Listener for Person {
    fn progress(&self, params: &RawValue) {
        let Ok(step) = serde_json::from_str::<Step<'_>>(params.get()) else { return };
        let message = text::cut(&one_line(step.message.as_deref().unwrap_or_default()), LONGEST_MESSAGE).into_owned();
        match step.total.and_then(|total| part(step.progress, total)) {
            Some(part) => self.draw(Some(part), message),
            None => self.draw(None, format!("{} {message}", step.progress)),
        }
    }

    fn logged(&self, params: &RawValue) {
        let Ok(LogMessage { level, data }) = serde_json::from_str(params.get()) else { return };
        if !self.watches || self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let words = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        let line = format!("{}: {}", one_line(&level), text::cut(&one_line(&words), LONGEST_MESSAGE));
        match &*self.bar.lock() {
            Some(bar) => bar.suspend(|| say(&line)),
            None => say(&line),
        }
    }

    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        async move {
            if method != "elicitation/create" {
                return Err(RpcError::method_not_found(method));
            }
            let params = params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null);
            let answer = self.answer(&params).await;
            to_raw_value(&answer).map_err(|error| RpcError::new(INTERNAL_ERROR, error.to_string(), 200))
        }
        .boxed()
    }
}

/// How much of the whole is done. None: the server's numbers make no sense.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "clamped")]
fn part(done: f64, total: f64) -> Option<u64> {
    let share = done / total;
    (share.is_finite() && total > 0.0).then(|| (share.clamp(0.0, 1.0) * PARTS as f64) as u64)
}

/// Tells whoever reads the keyboard that nobody waits for it any more.
struct StopReading(Arc<AtomicBool>);

impl Drop for StopReading {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts a form and gives what was filled in. None: Ctrl-C, the end of input, or nothing that fits.
fn put(form: &Form, stop: &Arc<AtomicBool>) -> Option<Map<String, Value>> {
    // A mark before each line: no line of a server's can pass for one of ours.
    form.message.iter().for_each(|line| say(&format!("┃ {line}")));
    let mut content = Map::new();
    for field in &form.fields {
        let mut tries = 0;
        let value = loop {
            field.shown().iter().for_each(|line| say(line));
            let typed = read(&field.prompt(), stop)?;
            match field.answer(&typed) {
                Ok(value) => break value,
                Err(()) if tries < MOST_TRIES => tries += 1,
                Err(()) => return None,
            }
        };
        content.extend(value.map(|value| (field.name.clone(), value)));
    }
    Some(content)
}

fn read(prompt: &str, stop: &Arc<AtomicBool>) -> Option<String> {
    let mut line = Reedline::create().with_break_signal(stop.clone());
    match line.read_line(&Plain(prompt.to_owned())) {
        Ok(Signal::Success(typed)) => Some(typed),
        Ok(_) | Err(_) => None,
    }
}

/// A prompt that is only its words.
#[derive(Debug)]
pub struct Plain(pub String);

impl Prompt for Plain {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("… ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_whole_stay_within_it() {
        check(1.0, 2.0, Some(500));
        check(5.0, 2.0, Some(1_000));
        check(-1.0, 2.0, Some(0));
        check(1.0, 0.0, None);
        check(f64::NAN, 1.0, None);
        check(1.0, -1.0, None);

        #[track_caller]
        fn check(done: f64, total: f64, expected: Option<u64>) {
            assert_eq!(part(done, total), expected, "{done} of {total}");
        }
    }

    #[tokio::test]
    async fn a_prepared_consent_answers_only_the_question_it_is_for() {
        let mut person = Person::new(Asks::Nobody, false, Keyboard::new());
        person.consent = Some("session");
        let form = |field: Value| json!({ "message": "m", "requestedSchema": { "properties": { "decision": field } } });
        let yes = json!({ "action": "accept", "content": { "decision": "session" } });
        let connect = form(json!({ "enum": ["session", "each"], "enumNames": ["Yes, all tools of this server", "x"] }));
        assert_eq!(person.answer(&connect).await, yes);
        let confirm = form(json!({ "enum": ["once", "session"], "enumNames": ["x", "Yes, always for this server"] }));
        assert_eq!(person.answer(&confirm).await, yes);
        let write =
            form(json!({ "enum": ["once", "session"], "enumNames": ["x", "Yes, every write of this session"] }));
        assert_eq!(person.answer(&write).await, json!({ "action": "cancel" }));
    }
}
