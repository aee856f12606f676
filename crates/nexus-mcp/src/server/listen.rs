//! Telling clients what has changed: on their connection in the old era, in answer to `subscriptions/listen` in the new.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use nexus_core::hub::Outcome;
use nexus_core::provider::Revision;

use super::{Answer, Server};
use crate::exchange::{Exchange, Peer};
use crate::wire::{self, Params, RpcError};

/// Subscriptions that one session (in this era: one key) may have open.
const MOST_SUBSCRIPTIONS: usize = 256;

/// Resources that one subscription may name.
const MOST_RESOURCES: usize = 256;

/// What moves beside the tools. None: such a thing is not offered here.
#[derive(Debug, Default)]
pub struct Moves {
    pub prompts: Option<watch::Receiver<Revision>>,
    pub resources: Option<watch::Receiver<Revision>>,
    /// Resources that have changed.
    pub updates: Option<broadcast::Receiver<Arc<str>>>,
}

/// Everything that moves, from now on.
#[derive(Debug)]
pub struct News {
    tools: watch::Receiver<Revision>,
    moves: Moves,
}

/// Something that a client may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    Tools,
    Prompts,
    Resources,
    /// A resource has changed.
    Updated(Arc<str>),
}

impl Moved {
    fn method(&self) -> &'static str {
        match self {
            Moved::Tools => "notifications/tools/list_changed",
            Moved::Prompts => "notifications/prompts/list_changed",
            Moved::Resources => "notifications/resources/list_changed",
            Moved::Updated(_) => "notifications/resources/updated",
        }
    }

    /// The notification for a client of the old era, where it concerns it.
    pub fn told_to(&self, peer: &Peer) -> Option<String> {
        match self {
            Moved::Updated(uri) if !peer.follows(uri) => None,
            Moved::Updated(uri) => Some(wire::notification(self.method(), &json!({ "uri": uri }).to_string())),
            Moved::Tools | Moved::Prompts | Moved::Resources => Some(wire::notification(self.method(), "{}")),
        }
    }
}

impl News {
    /// Waits for the next. None: there will be no more. Can be dropped and called again without missing anything.
    pub async fn next(&mut self) -> Option<Moved> {
        tokio::select! {
            moved = self.tools.changed() => moved.is_ok().then_some(Moved::Tools),
            () = moved(&mut self.moves.prompts) => Some(Moved::Prompts),
            () = moved(&mut self.moves.resources) => Some(Moved::Resources),
            updated = updated(&mut self.moves.updates) => Some(updated),
        }
    }
}

async fn moved(changes: &mut Option<watch::Receiver<Revision>>) {
    if let Some(receiver) = changes
        && receiver.changed().await.is_ok()
    {
        return;
    }
    // Nothing will move any more.
    *changes = None;
    std::future::pending::<()>().await;
}

async fn updated(updates: &mut Option<broadcast::Receiver<Arc<str>>>) -> Moved {
    if let Some(receiver) = updates {
        match receiver.recv().await {
            Ok(uri) => return Moved::Updated(uri),
            // Which ones were missed is not known; a client that looks again sees them all.
            Err(RecvError::Lagged(_)) => return Moved::Resources,
            Err(RecvError::Closed) => {}
        }
    }
    *updates = None;
    std::future::pending().await
}

/// What a subscription of the new era is to tell of.
#[derive(Debug, Default)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl Server {
    /// What moves from now on.
    pub fn news(&self) -> News {
        let mut tools = self.hub.catalogue.changes();
        tools.mark_unchanged();
        News { tools, moves: self.extras.as_ref().map(|extras| extras.moves()).unwrap_or_default() }
    }

    /// `subscriptions/listen`: tells of changes until the client hangs up.
    pub(super) async fn listen(&self, params: &Params<'_>, exchange: &Arc<Exchange>) -> Result<String, RpcError> {
        let asked: Value =
            params.notifications.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let Value::Object(asked) = asked else {
            return Err(RpcError::invalid_params("`notifications` must say what to listen for"));
        };
        let Some(_place) = exchange.session.listen(MOST_SUBSCRIPTIONS) else {
            return Err(RpcError::invalid_request("too many subscriptions are open for this key").with_status(429));
        };
        let mut news = self.news();
        let mut accepted = Map::new();
        let mut wants = |name: &str, offered: bool| {
            let wanted = offered && asked.get(name) == Some(&Value::Bool(true));
            if wanted {
                accepted.insert(name.to_owned(), true.into());
            }
            wanted
        };
        let wanted = Wanted {
            tools: wants("toolsListChanged", true),
            prompts: wants("promptsListChanged", news.moves.prompts.is_some()),
            resources: wants("resourcesListChanged", news.moves.resources.is_some()),
        };
        let followed = self.follow(asked.get("resourceSubscriptions"), params, exchange).await;
        if !followed.is_empty() {
            accepted.insert("resourceSubscriptions".to_owned(), followed.into());
        }
        let id: Value = serde_json::from_str(exchange.id.as_json()).unwrap_or_default();
        let mark = json!({ "io.modelcontextprotocol/subscriptionId": id });
        let acknowledged = json!({ "_meta": mark, "notifications": accepted });
        exchange.notify("notifications/subscriptions/acknowledged", &acknowledged).await;
        loop {
            let moved = tokio::select! {
                () = exchange.cancel.cancelled() => None,
                () = self.closing.cancelled() => None,
                () = exchange.outbox.closed() => None,
                moved = news.next() => moved,
            };
            let Some(moved) = moved else { return Ok(format!(r#"{{"resultType":"complete","_meta":{mark}}}"#)) };
            match &moved {
                Moved::Tools if wanted.tools => exchange.notify(moved.method(), &json!({ "_meta": mark })).await,
                Moved::Prompts if wanted.prompts => exchange.notify(moved.method(), &json!({ "_meta": mark })).await,
                Moved::Resources if wanted.resources => {
                    exchange.notify(moved.method(), &json!({ "_meta": mark })).await;
                }
                Moved::Updated(uri) if exchange.follows(uri) => {
                    exchange.notify(moved.method(), &json!({ "_meta": mark, "uri": uri })).await;
                }
                Moved::Tools | Moved::Prompts | Moved::Resources | Moved::Updated(_) => {}
            }
        }
    }

    /// Follows the resources that a client names, as far as it may without anybody being asked. Gives those.
    async fn follow(&self, named: Option<&Value>, params: &Params<'_>, exchange: &Arc<Exchange>) -> Vec<Value> {
        let mut followed = Vec::new();
        let Some(extras) = &self.extras else { return followed };
        for uri in named.and_then(Value::as_array).into_iter().flatten().take(MOST_RESOURCES) {
            let Some(words) = uri.as_str() else { continue };
            if let Some(Answer::Call { tool, args }) = extras.follow(words, exchange)
                && let Ok(Outcome::Done(reply)) = self.hub.call(self.as_call(tool, args, params, exchange)).await
                && !reply.is_error()
            {
                followed.push(uri.clone());
            }
        }
        followed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_moves_is_told_once_and_what_is_not_offered_never() {
        let (tools, prompts) = (watch::Sender::new(0), watch::Sender::new(0));
        let updates = broadcast::Sender::new(1);
        let moves = Moves { prompts: Some(prompts.subscribe()), resources: None, updates: Some(updates.subscribe()) };
        let mut news = News { tools: tools.subscribe(), moves };
        prompts.send_modify(|revision| *revision += 1);
        assert_eq!(news.next().await, Some(Moved::Prompts));
        updates.send(Arc::from("a://1")).unwrap();
        assert_eq!(news.next().await, Some(Moved::Updated("a://1".into())));
        // Two at once do not fit: that something was missed is told as well.
        updates.send(Arc::from("a://1")).unwrap();
        updates.send(Arc::from("a://2")).unwrap();
        assert_eq!(news.next().await, Some(Moved::Resources));
        assert_eq!(news.next().await, Some(Moved::Updated("a://2".into())));
        drop((prompts, updates));
        tools.send_modify(|revision| *revision += 1);
        assert_eq!(news.next().await, Some(Moved::Tools));
        drop(tools);
        assert_eq!(news.next().await, None);
    }

    #[test]
    fn an_old_client_hears_of_the_resources_it_follows_only() {
        let peer = Peer::default();
        assert_eq!(Moved::Updated("a://1".into()).told_to(&peer), None);
        assert!(Moved::Resources.told_to(&peer).is_some_and(|told| told.contains("resources/list_changed")));
    }
}
