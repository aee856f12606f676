//! Callers that come through no MCP door: the operator's command line, Telegram users, webhooks. Their words become
//! calls like any other, with the same gate and the same record.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use nexus_core::Chain;
use nexus_core::arguments::Arguments;
use nexus_core::call::{Call, CallCx, Deaf};
use nexus_core::clock;
use nexus_core::hub::{Hub, Outcome, UnknownTool};
use nexus_core::principal::{Level, Patterns, Principal};
use nexus_core::reply::Reply;
use nexus_core::session::{Era, Session, SessionKey, Transport};

use super::queue::QueueError;
use crate::store::StoreError;

/// Somebody who was let in by other means than a key, and may call a few tools. Nobody is asked for them again.
#[derive(Clone)]
pub struct Voice {
    hub: Arc<Hub>,
    principal: Arc<Principal>,
    session: Arc<Session>,
}

impl fmt::Debug for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Voice").field(&self.principal.id).finish()
    }
}

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum Refused {
    /// The tool says what is wrong.
    #[error("{0}")]
    Said(String),
    /// The hub could not, for instance because its store takes nothing now: the same call may do later.
    #[error("{0}")]
    Failed(String),
    #[error("it waits for an approval: `nexus pending` shows it")]
    Waits,
    #[error(transparent)]
    Unknown(#[from] UnknownTool),
    #[error("the reply makes no sense")]
    Nonsense,
}

impl From<QueueError> for Refused {
    fn from(error: QueueError) -> Self {
        let words = Chain(&error).to_string();
        match error {
            QueueError::Store(_) | QueueError::Ending => Refused::Failed(words),
            _ => Refused::Said(words),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        QueueError::from(error).into()
    }
}

impl Voice {
    /// `name` stands in the record; `tools` are all that it may call.
    pub fn new<'a>(hub: Arc<Hub>, name: &str, transport: Transport, tools: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(hub, Principal::new(name, Level::Yolo), transport, tools)
    }

    /// The agent of a target, bound to its tasks as an agent's key is.
    pub fn of_agent<'a>(
        hub: Arc<Hub>,
        name: &str,
        transport: Transport,
        target: &Arc<str>,
        tools: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let principal = Principal { serves: Some(target.clone()), ..Principal::new(name, Level::Trusted) };
        Self::of(hub, principal, transport, tools)
    }

    fn of<'a>(
        hub: Arc<Hub>,
        principal: Principal,
        transport: Transport,
        tools: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let allow = Patterns::parse(tools.into_iter().map(str::to_owned)).unwrap_or_default();
        let principal = Arc::new(Principal { allow, ..principal });
        let session = Session::open(SessionKey::Lease { principal: principal.id.clone() }, transport);
        Self { hub, principal, session: Arc::new(session) }
    }

    /// Calls a tool and gives its structured reply.
    pub async fn call(&self, tool: &str, args: Map<String, Value>) -> Result<Value, Refused> {
        let call = Call {
            tool: tool.to_owned(),
            args: Arguments::tree_of(args),
            said: None,
            cx: CallCx {
                id: clock::new_id(),
                principal: self.principal.clone(),
                session: self.session.clone(),
                era: Era::Modern,
                client_name: None,
                cancel: CancellationToken::new(),
                client: Arc::new(Deaf),
                answered: None,
                noted: Arc::default(),
            },
        };
        match self.hub.call(call).await? {
            Outcome::Done(reply) if reply.is_error() => Err(why(&reply)),
            Outcome::Done(Reply::Plain { structured: Some(structured), .. }) => {
                serde_json::from_str(structured.get()).map_err(|_| Refused::Nonsense)
            }
            Outcome::Done(_) => Err(Refused::Nonsense),
            Outcome::Ask(_) => Err(Refused::Waits),
        }
    }
}

/// What an error means for whoever would call again.
fn why(reply: &Reply) -> Refused {
    let words = reply.text().to_owned();
    let told: Value = match reply {
        Reply::Plain { structured: Some(structured), .. } => serde_json::from_str(structured.get()).unwrap_or_default(),
        _ => Value::Null,
    };
    match told["error"]["kind"].as_str() {
        Some("failed" | "internal") => Refused::Failed(words),
        _ => Refused::Said(words),
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::error::ToolError;

    use super::*;

    #[test]
    fn what_the_hub_could_not_do_is_no_refusal() {
        assert!(matches!(why(&ToolError::refused("no such task").into_reply()), Refused::Said(_)));
        assert!(matches!(why(&ToolError::failed("the disk is full").into_reply()), Refused::Failed(_)));
        assert!(matches!(why(&ToolError::internal("a fault").into_reply()), Refused::Failed(_)));
        assert!(matches!(why(&Reply::error("no".to_owned(), &Value::Null)), Refused::Said(_)));
    }
}
