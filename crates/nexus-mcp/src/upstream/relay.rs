//! What a server says and asks while it works on a call, handed to the one who called.
//!
//! | server | caller | a question of the server |
//! |---|---|---|
//! | new era | new era | goes out as it is, its state wrapped in ours; the caller's next try brings the answers |
//! | new era | old era | is put to the caller at once, and the server asked again with the answers |
//! | old era | old era | is handed over, where it is certain whose call it belongs to |
//! | old era | new era | is refused: such a caller cannot be asked while it waits |

pub(crate) mod clean;
mod fields;
pub(crate) mod question;
pub(crate) mod result;
pub(crate) mod state;

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use uuid::Uuid;

use nexus_core::call::{CallCx, Progress};
use nexus_core::name::ServerName;
use nexus_core::session::Era;
use nexus_core::{redact, text};

use self::clean::clean_tree;
use self::question::Question;
use super::client::Listener;
use super::log::ServerLog;
use crate::exchange::{AskError, Exchange};
use crate::wire::RpcError;

/// Characters of what a server says of its progress.
const LONGEST_MESSAGE: usize = 500;

/// Bytes of a log message that is passed on; a longer one is cut to text.
const LARGEST_LOG: usize = 16 * 1024;

/// For what the caller cannot or does not want to answer; the protocol leaves the code to implementations.
const NOT_ANSWERED: i32 = -32000;

/// The way from one call of a server back to its caller.
pub(crate) struct Relay {
    server: ServerName,
    cx: CallCx,
    /// None: the call did not come over MCP, and nobody can be told or asked anything.
    exchange: Option<Arc<Exchange>>,
    log: Arc<ServerLog>,
    asking: Mutex<Asking>,
}

/// Questions that are with the caller.
#[derive(Debug, Default)]
struct Asking {
    open: usize,
    last: Option<Instant>,
}

/// One of them; ends when dropped, however that comes.
struct Open<'a>(&'a Mutex<Asking>);

impl<'a> Open<'a> {
    fn new(asking: &'a Mutex<Asking>) -> Self {
        asking.lock().open += 1;
        Self(asking)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut asking = self.0.lock();
        asking.open -= 1;
        asking.last = Some(Instant::now());
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("server", &self.server).field("call", &self.cx.id).finish_non_exhaustive()
    }
}

impl Relay {
    pub(crate) fn new(server: &ServerName, cx: &CallCx, log: &Arc<ServerLog>) -> Self {
        let exchange = Exchange::behind(cx);
        Self { server: server.clone(), cx: cx.clone(), exchange, log: log.clone(), asking: Mutex::default() }
    }

    async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let refuse = |why: String| {
            self.log.note(format_args!("a question of the server was refused: {why}"));
            Err(RpcError::new(NOT_ANSWERED, why, 200))
        };
        let Some(question) = Question::of(method) else { return Err(RpcError::method_not_found(method)) };
        let exchange = match &self.exchange {
            Some(exchange) if exchange.era == Era::Legacy => exchange,
            Some(_) => {
                let era = "clients of the new era cannot be asked while they wait for a server of the old one";
                return refuse(format!("{method}: {era}"));
            }
            None => return refuse(format!("{method}: whoever called cannot be asked")),
        };
        if !question.can_be_put_to(&exchange.capabilities) {
            return refuse(format!("{method}: this client does not offer `{}`", question.capability()));
        }
        let params = match question.params(params, &self.server) {
            Ok(params) => params,
            Err(why) => return refuse(format!("{method}: {why}")),
        };
        let _open = Open::new(&self.asking);
        let Some(_turn) = exchange.peer.turn_to_ask().await else { return refuse("the client is gone".to_owned()) };
        match exchange.ask(method, &params).await {
            Ok(answer) => Ok(answer),
            Err(error @ (AskError::Gone | AskError::WrongEra | AskError::Refused(_))) => {
                Err(RpcError::new(NOT_ANSWERED, error.to_string(), 200))
            }
        }
    }
}

impl Listener for Relay {
    /// The caller's own token goes with it, or nothing does.
    fn progress(&self, params: &RawValue) {
        #[derive(Deserialize)]
        struct Step {
            progress: f64,
            total: Option<f64>,
            message: Option<String>,
        }
        let Ok(step) = serde_json::from_str::<Step>(params.get()) else { return };
        let message = step.message.map(|message| text::cut(&text::clean(&message), LONGEST_MESSAGE).into_owned());
        self.cx.progress(Progress { done: step.progress, total: step.total, message });
    }

    fn logged(&self, params: &RawValue) {
        #[derive(Deserialize)]
        struct Logged<'a> {
            level: String,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        let Some(exchange) = &self.exchange else { return };
        let Ok(logged) = serde_json::from_str::<Logged<'_>>(params.get()) else { return };
        // Whether anybody wants it is known before it is looked at.
        if exchange.wants_log(&logged.level) {
            exchange.log_now(&logged.level, &format!("MCP:{}", self.server), &said(logged.data));
        }
    }

    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        self.ask(method, params).boxed()
    }

    fn last_asking(&self) -> Option<Instant> {
        let asking = self.asking.lock();
        if asking.open > 0 { Some(Instant::now()) } else { asking.last }
    }

    fn session(&self) -> Option<Uuid> {
        Some(self.cx.session.id)
    }
}

/// What a server logged, as it may be shown.
fn said(data: Option<&RawValue>) -> Value {
    let json = data.map_or("null", RawValue::get);
    if json.len() > LARGEST_LOG {
        let start: String = json.chars().take(LARGEST_LOG).collect();
        return redact::beginning(&text::clean(&start)).into_owned().into();
    }
    let json = redact::json(json).unwrap_or_else(|| json.to_owned());
    let mut tree = serde_json::from_str(&json).unwrap_or_default();
    clean_tree(&mut tree);
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_log_message_is_passed_on_without_escapes_secrets_and_length() {
        let raw = |value: &Value| RawValue::from_string(value.to_string()).unwrap();
        let shown = said(Some(&raw(&json!({ "a": "\u{1b}[31mred", "password": "hunter2hunter2" }))));
        assert_eq!(shown, json!({ "a": "red", "password": "[redacted]" }));
        assert_eq!(said(None), Value::Null);
        let long = said(Some(&raw(&json!("x".repeat(1 << 20)))));
        assert!(long.as_str().is_some_and(|text| text.len() <= LARGEST_LOG + 64));
    }
}
