//! What servers have beside tools: prompts, resources and completions, under our names for them.
//!
//! Lists are answered from what is known. Everything that reaches a server goes through the hub like a call of a tool:
//! through the gate, and into the record.

mod errands;
mod lists;
pub(crate) mod subscription;

use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use nexus_core::arguments::Arguments;
use nexus_core::name::{BadToolName, ToolName};
use nexus_core::provider::Revision;
use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

pub(crate) use self::errands::Errands;
pub(crate) use self::lists::Lists;
use self::lists::joined;
use self::subscription::Subscriptions;
use super::provider::UpstreamProvider;
use super::relay::state::States;
use super::supervisor::{Notice, Upstream};
use crate::exchange::Exchange;
use crate::server::{Answer, Extras, LIST_TTL_MS, Moves};
use crate::wire::{INVALID_PARAMS, Params, RpcError, quoted};

/// Changed resources that one who hears of them late may have missed.
const UPDATES: usize = 1_024;

/// What the old era calls a resource that does not exist; the new one has no code of its own for it.
const RESOURCE_NOT_FOUND: i32 = -32002;

/// One part of something.
type Of<T, P> = fn(&T) -> &P;

/// The offers of all servers that are attached to a hub.
pub struct Offers {
    providers: Mutex<Vec<Weak<UpstreamProvider>>>,
    shared: Arc<Shared>,
    tasks: Tasks,
}

/// What the providers of all servers share.
pub(crate) struct Shared {
    pub(crate) states: Arc<States>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    prompts: watch::Sender<Revision>,
    resources: watch::Sender<Revision>,
    /// Resources that have changed, by our URIs.
    updates: broadcast::Sender<Arc<str>>,
}

impl Shared {
    pub(crate) fn lists_moved(&self, before: &Lists, after: &Lists) {
        let next = |revision: &mut Revision| *revision += 1;
        if before.prompts != after.prompts {
            self.prompts.send_modify(next);
        }
        if (&before.resources, &before.templates) != (&after.resources, &after.templates) {
            self.resources.send_modify(next);
        }
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").field("servers", &self.providers.lock().len()).finish_non_exhaustive()
    }
}

impl Offers {
    pub fn new(tasks: Tasks) -> Arc<Self> {
        let shared = Arc::new(Shared {
            states: Arc::default(),
            subscriptions: Subscriptions::new(tasks.clone()),
            prompts: watch::Sender::new(0),
            resources: watch::Sender::new(0),
            updates: broadcast::Sender::new(UPDATES),
        });
        Arc::new(Self { providers: Mutex::default(), shared, tasks })
    }

    /// A server's tools, for the catalogue to attach. Its prompts and resources are offered for as long as the
    /// provider lives.
    pub fn provide(&self, upstream: Upstream) -> Result<Arc<UpstreamProvider>, BadToolName> {
        let followed = CancellationToken::new();
        // Before the first look at its offer: nothing is missed in between.
        let mut news = News {
            offers: upstream.offers(),
            conditions: upstream.conditions(),
            notices: upstream.notices(),
            connected: upstream.is_connected(),
            renewing: None,
        };
        let provider = UpstreamProvider::new(upstream, self.shared.clone(), followed.clone().drop_guard())?;
        let provider = Arc::new(provider);
        let (weak, shared, stop) = (Arc::downgrade(&provider), self.shared.clone(), self.tasks.stopping());
        self.tasks.spawn("offers of an upstream", async move {
            tokio::select! {
                () = news.follow(&weak, &shared) => {}
                () = followed.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
        self.shared.lists_moved(&Lists::default(), &provider.made().lists);
        let mut providers = self.providers.lock();
        providers.retain(|provider| provider.strong_count() > 0);
        providers.push(Arc::downgrade(&provider));
        drop(providers);
        Ok(provider)
    }

    fn providers(&self) -> Vec<Arc<UpstreamProvider>> {
        self.providers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Those whose errand of this kind the caller may have.
    fn seen(&self, exchange: &Exchange, errand: fn(&Errands) -> &ToolName) -> Vec<Arc<UpstreamProvider>> {
        let seen =
            |provider: &Arc<UpstreamProvider>| provider.is_seen_by(&exchange.principal, errand(provider.errands()));
        self.providers().into_iter().filter(seen).collect()
    }

    fn list(&self, exchange: &Exchange, params: &Params<'_>, name: &str) -> Result<Answer, RpcError> {
        if params.cursor.is_some() {
            return Err(RpcError::invalid_params("no such cursor: everything is on one page").with_status(200));
        }
        let (errand, items): (Of<Errands, ToolName>, Of<Lists, str>) = match name {
            "prompts" => (|errands| &errands.get_prompt, |lists| &lists.prompts),
            "resources" => (|errands| &errands.read_resource, |lists| &lists.resources),
            _ => (|errands| &errands.read_resource, |lists| &lists.templates),
        };
        let made: Vec<_> = self.seen(exchange, errand).iter().map(|provider| provider.made()).collect();
        let items = joined(made.iter().map(|made| items(&made.lists)));
        let cache = match exchange.era {
            Era::Legacy => String::new(),
            Era::Modern => format!(r#","ttlMs":{LIST_TTL_MS},"cacheScope":"private""#),
        };
        Ok(Answer::Result(format!(r#"{{"{name}":[{items}]{cache}}}"#)))
    }

    fn get_prompt(&self, exchange: &Exchange, params: &Params<'_>) -> Result<Answer, RpcError> {
        let Some(name) = params.name.as_deref() else {
            return Err(RpcError::invalid_params("`name` is missing: which prompt?"));
        };
        let provider = self.with_prompt(exchange, name, |errands| &errands.get_prompt)?;
        let mut args = format!(r#"{{"name":{}"#, quoted(name));
        if let Some(arguments) = params.arguments.filter(|arguments| arguments.get() != "null") {
            args.push_str(r#","arguments":"#);
            args.push_str(arguments.get());
        }
        args.push('}');
        call(&provider.errands().get_prompt, args)
    }

    fn about_resource(
        &self,
        exchange: &Exchange,
        params: &Params<'_>,
        errand: fn(&Errands) -> &ToolName,
    ) -> Result<Answer, RpcError> {
        let Some(uri) = params.uri.as_deref() else {
            return Err(RpcError::invalid_params("`uri` is missing: which resource?"));
        };
        let provider = self.with_resource(exchange, uri, errand)?;
        call(errand(provider.errands()), format!(r#"{{"uri":{}}}"#, quoted(uri)))
    }

    fn complete(&self, exchange: &Exchange, params: &Params<'_>) -> Result<Answer, RpcError> {
        #[derive(Deserialize)]
        struct Reference {
            name: Option<String>,
            uri: Option<String>,
        }
        let misfit =
            || RpcError::invalid_params("`ref` and `argument` must say what is to be completed").with_status(200);
        let (Some(reference), Some(argument)) = (params.reference, params.argument) else { return Err(misfit()) };
        let errand: fn(&Errands) -> &ToolName = |errands| &errands.complete;
        let provider = match serde_json::from_str(reference.get()).map_err(|_| misfit())? {
            Reference { name: Some(name), uri: None } => self.with_prompt(exchange, &name, errand)?,
            Reference { name: None, uri: Some(uri) } => self.with_resource(exchange, &uri, errand)?,
            Reference { .. } => return Err(misfit()),
        };
        // Many servers complete nothing, and then there is nothing to ask them.
        if provider.made().offer.server.as_ref().is_some_and(|server| !server.has("completions")) {
            return Ok(Answer::Result(r#"{"completion":{"values":[],"total":0,"hasMore":false}}"#.to_owned()));
        }
        let context = params.context.map(|context| format!(r#","context":{context}"#)).unwrap_or_default();
        call(&provider.errands().complete, format!(r#"{{"ref":{reference},"argument":{argument}{context}}}"#))
    }

    fn with_prompt(
        &self,
        exchange: &Exchange,
        name: &str,
        errand: fn(&Errands) -> &ToolName,
    ) -> Result<Arc<UpstreamProvider>, RpcError> {
        let parsed = ToolName::parse(name).ok();
        let has = |provider: &Arc<UpstreamProvider>| {
            parsed.as_ref().is_some_and(|name| provider.made().offer.prompt(name).is_some())
        };
        self.seen(exchange, errand).into_iter().find(has).ok_or_else(|| {
            let name = nexus_core::text::cut(name, 100).into_owned();
            RpcError::invalid_params(format!("unknown prompt: {name}")).with_status(200)
        })
    }

    /// Whose resource it is: the one that lists it, else the one whose prefix it has. A server without a prefix gets
    /// what is nobody else's.
    fn with_resource(
        &self,
        exchange: &Exchange,
        uri: &str,
        errand: fn(&Errands) -> &ToolName,
    ) -> Result<Arc<UpstreamProvider>, RpcError> {
        let mut best: Option<(u8, Arc<UpstreamProvider>)> = None;
        for provider in self.seen(exchange, errand) {
            let offer = provider.made().offer.clone();
            let Some(original) = offer.naming.original_uri(uri) else { continue };
            let rank = match (offer.resources.iter().any(|resource| resource.exposed == uri), original == uri) {
                (true, _) => 3,
                (false, false) => 2,
                (false, true) if !offer.templates.is_empty() => 1,
                (false, true) => 0,
            };
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, provider));
            }
        }
        best.map(|(_, provider)| provider).ok_or_else(|| not_found(uri, exchange.era))
    }

    fn unfollow(exchange: &Exchange, params: &Params<'_>) -> Result<Answer, RpcError> {
        let Some(uri) = params.uri.as_deref() else {
            return Err(RpcError::invalid_params("`uri` is missing: which resource?"));
        };
        exchange.peer.unfollow(uri);
        Ok(Answer::Result("{}".to_owned()))
    }
}

impl Extras for Offers {
    fn capabilities(&self) -> Value {
        json!({
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "completions": {},
            "logging": {},
        })
    }

    fn answer<'a>(
        &'a self,
        method: &'a str,
        params: &'a Params<'_>,
        exchange: &'a Exchange,
    ) -> Option<BoxFuture<'a, Result<Answer, RpcError>>> {
        let legacy = exchange.era == Era::Legacy;
        let answer = match method {
            "prompts/list" => self.list(exchange, params, "prompts"),
            "resources/list" => self.list(exchange, params, "resources"),
            "resources/templates/list" => self.list(exchange, params, "resourceTemplates"),
            "prompts/get" => self.get_prompt(exchange, params),
            "resources/read" => self.about_resource(exchange, params, |errands| &errands.read_resource),
            "resources/subscribe" if legacy => self.about_resource(exchange, params, |errands| &errands.follow),
            "resources/unsubscribe" if legacy => Self::unfollow(exchange, params),
            "completion/complete" => self.complete(exchange, params),
            "logging/setLevel" if legacy => set_log_level(exchange, params),
            _ => return None,
        };
        Some(ready(answer).boxed())
    }

    fn moves(&self) -> Moves {
        Moves {
            prompts: Some(self.shared.prompts.subscribe()),
            resources: Some(self.shared.resources.subscribe()),
            updates: Some(self.shared.updates.subscribe()),
        }
    }

    fn follow(&self, uri: &str, exchange: &Exchange) -> Option<Answer> {
        let provider = self.with_resource(exchange, uri, |errands| &errands.follow).ok()?;
        call(&provider.errands().follow, format!(r#"{{"uri":{}}}"#, quoted(uri))).ok()
    }
}

fn call(tool: &ToolName, args: String) -> Result<Answer, RpcError> {
    match RawValue::from_string(args) {
        Ok(args) => Ok(Answer::Call { tool: tool.as_str().to_owned(), args: Arguments::raw(args) }),
        Err(_) => Err(RpcError::invalid_params("the params do not fit")),
    }
}

fn set_log_level(exchange: &Exchange, params: &Params<'_>) -> Result<Answer, RpcError> {
    match exchange.peer.set_log_level(params.level.as_deref().unwrap_or_default()) {
        true => Ok(Answer::Result("{}".to_owned())),
        false => Err(RpcError::invalid_params("`level` is not a log level").with_status(200)),
    }
}

fn not_found(uri: &str, era: Era) -> RpcError {
    let uri = nexus_core::text::cut(uri, 200).into_owned();
    let code = if era == Era::Legacy { RESOURCE_NOT_FOUND } else { INVALID_PARAMS };
    RpcError::new(code, format!("no such resource: {uri}"), 200).with_data(json!({ "uri": uri }))
}

/// What is heard of one server.
struct News {
    offers: watch::Receiver<Arc<super::supervisor::Offer>>,
    conditions: watch::Receiver<super::supervisor::Condition>,
    notices: broadcast::Receiver<Notice>,
    connected: bool,
    /// What is followed is being followed again.
    renewing: Option<DropGuard>,
}

impl News {
    /// Keeps a provider current, until one of them is gone.
    async fn follow(&mut self, provider: &Weak<UpstreamProvider>, shared: &Arc<Shared>) {
        loop {
            tokio::select! {
                moved = self.offers.changed() => {
                    let Some(provider) = provider.upgrade().filter(|_| moved.is_ok()) else { return };
                    let offer = self.offers.borrow_and_update().clone();
                    provider.renew(offer);
                }
                moved = self.conditions.changed() => {
                    let now = self.conditions.borrow_and_update().state.is_connected();
                    let came_back = now && !std::mem::replace(&mut self.connected, now);
                    let Some(provider) = provider.upgrade().filter(|_| moved.is_ok()) else { return };
                    if came_back {
                        let (weak, heard) = (Arc::downgrade(&provider), shared.clone());
                        let changed = move |uri: &str| if let Some(provider) = weak.upgrade() {
                            tell(&provider, uri, &heard);
                        };
                        self.renewing = shared.subscriptions.renew(provider.upstream(), changed);
                    }
                }
                notice = self.notices.recv() => {
                    let Some(provider) = provider.upgrade() else { return };
                    match notice {
                        Ok(Notice::Updated(uri)) => tell(&provider, &uri, shared),
                        Ok(Notice::Logged(_)) | Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return,
                    }
                }
            }
        }
    }
}

/// An error means that nobody listens.
fn tell(provider: &UpstreamProvider, uri: &str, shared: &Shared) {
    let _ = shared.updates.send(provider.made().offer.naming.expose_uri(uri).into());
}
