//! One server's tools as the hub sees them, and under names that are not listed its prompts and resources.

mod arguments;
mod render;

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use nexus_core::arguments::Arguments;
use nexus_core::error::{ToolError, ToolResult};
use nexus_core::name::{BadToolName, ToolName};
use nexus_core::principal::{Principal, PrincipalId};
use nexus_core::provider::{Intent, Origin, Provider, Revision};
use nexus_core::tool::ToolSpec;

use self::arguments::{Complete, Follow, GetPrompt, ReadResource};
use super::intent::{Errand, UpstreamCall};
use super::offers::{Errands, Lists, Shared};
use super::supervisor::{Offer, OfferedTool, Standing, Upstream, Visibility};

/// The tools of one server.
pub struct UpstreamProvider {
    origin: Origin,
    upstream: Upstream,
    errands: Errands,
    shared: Arc<Shared>,
    made: RwLock<Arc<Made>>,
    changes: watch::Sender<Revision>,
    /// What the catalogue was given last.
    given: Mutex<Option<Arc<Offer>>>,
    /// Ends what keeps it current.
    _followed: DropGuard,
}

impl fmt::Debug for UpstreamProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamProvider").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// What was made of one offer.
pub(crate) struct Made {
    pub(crate) offer: Arc<Offer>,
    specs: Arc<[Arc<ToolSpec>]>,
    pub(crate) lists: Lists,
}

#[derive(Debug, Error)]
enum NotCalled {
    #[error("the server `{server}` has no tool `{tool}`")]
    Gone { server: String, tool: ToolName },
    #[error("the tool `{tool}` of the server `{server}` {what} and is held back until the operator allows it")]
    Held { server: String, tool: String, what: &'static str },
}

impl UpstreamProvider {
    /// Whoever makes one keeps it current, until `followed` is dropped with it.
    pub(crate) fn new(upstream: Upstream, shared: Arc<Shared>, followed: DropGuard) -> Result<Self, BadToolName> {
        let errands = Errands::of(upstream.name())?;
        let made = Made::of(upstream.offer(), &errands);
        Ok(Self {
            origin: Origin::Upstream(upstream.name().of_edition(upstream.config().edition())),
            upstream,
            errands,
            shared,
            made: RwLock::new(Arc::new(made)),
            changes: watch::Sender::new(0),
            given: Mutex::new(None),
            _followed: followed,
        })
    }

    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(crate) fn errands(&self) -> &Errands {
        &self.errands
    }

    pub(crate) fn made(&self) -> Arc<Made> {
        self.made.read().clone()
    }

    /// Whether it exists for this principal at all.
    pub(crate) fn is_seen_by(&self, principal: &Principal, errand: &ToolName) -> bool {
        self.upstream.visibility().is_seen_by(&principal.id) && principal.sees(errand.as_str())
    }

    /// The server offers something else now.
    pub(crate) fn renew(&self, offer: Arc<Offer>) {
        let made = Arc::new(Made::of(offer, &self.errands));
        let before = std::mem::replace(&mut *self.made.write(), made.clone());
        self.changes.send_modify(|revision| *revision += 1);
        self.shared.lists_moved(&before.lists, &made.lists);
    }

    fn call(&self, tool: &ToolName, args: &Arguments, errand: Errand, fields: String) -> UpstreamCall {
        UpstreamCall {
            upstream: self.upstream.clone(),
            states: self.shared.states.clone(),
            subscriptions: self.shared.subscriptions.clone(),
            errand,
            tool: tool.clone(),
            args: args.clone(),
            fields,
            about: None,
            headers: Vec::new(),
            summary: String::new(),
        }
    }

    fn intend_tool(&self, tool: &Arc<OfferedTool>, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
        if !tool.is_allowed() {
            return Err(self.held(tool));
        }
        let tree = arguments::checked(tool, args)?;
        let errand = Errand::Tool(tool.clone());
        let mut call = self.call(&tool.exposed, args, errand, arguments::fields(&tool.original, &tree));
        call.headers = tree.as_object().map(|fields| tool.headers(fields)).unwrap_or_default();
        call.summary = arguments::summary(&tool.original, self.upstream.name());
        call.about = Some(tool.original.clone());
        Ok(Box::new(call))
    }

    /// What the tool says of itself now stays out of it: a person looks at that first, and the model reads this.
    fn held(&self, tool: &OfferedTool) -> ToolError {
        let (server, shown) = (self.upstream.name().to_string(), arguments::one_line(&tool.original));
        let what = match &tool.standing {
            Standing::Held(held) if held.is_change() => "has changed",
            Standing::Held(_) | Standing::Allowed => "is new",
        };
        let (server_word, tool_word) = (arguments::word(&server), arguments::word(&shown));
        let hint = format!(
            "tell the operator: `nexus mcp tools {server_word}` shows what is different, \
             `nexus mcp allow {server_word} {tool_word}` allows it"
        );
        ToolError::refused(NotCalled::Held { server, tool: shown, what }).hint(hint)
    }
}

impl Provider for UpstreamProvider {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn tools(&self) -> Arc<[Arc<ToolSpec>]> {
        let made = self.made();
        *self.given.lock() = Some(made.offer.clone());
        made.specs.clone()
    }

    fn shown(&self) {
        if let Some(offer) = self.given.lock().take() {
            self.upstream.shown(offer);
        }
    }

    fn changes(&self) -> watch::Receiver<Revision> {
        self.changes.subscribe()
    }

    fn owner(&self) -> Option<PrincipalId> {
        match self.upstream.visibility() {
            Visibility::Shared => None,
            Visibility::Private(owner) => Some(owner.clone()),
        }
    }

    fn asks(&self) -> bool {
        true
    }

    fn intend(&self, tool: &ToolName, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
        let made = self.made();
        if let Some(offered) = made.offer.tool(tool) {
            return self.intend_tool(offered, args);
        }
        let name = self.upstream.name();
        let errands = &self.errands;
        let (errand, prepared) = if *tool == errands.get_prompt {
            (Errand::Prompt, args.parse::<GetPrompt>()?.prepared(&made.offer, name)?)
        } else if *tool == errands.read_resource {
            (Errand::Read, args.parse::<ReadResource>()?.prepared(&made.offer, name)?)
        } else if *tool == errands.complete {
            (Errand::Complete, args.parse::<Complete>()?.prepared(&made.offer, name)?)
        } else if *tool == errands.follow {
            let prepared = args.parse::<Follow>()?.prepared(&made.offer, name)?;
            (Errand::Follow(prepared.about.clone().unwrap_or_default()), prepared)
        } else {
            return Err(ToolError::refused(NotCalled::Gone { server: name.to_string(), tool: tool.clone() }));
        };
        let mut call = self.call(tool, args, errand, prepared.fields);
        (call.about, call.summary) = (prepared.about, prepared.summary);
        Ok(Box::new(call))
    }
}

impl Drop for UpstreamProvider {
    fn drop(&mut self) {
        self.shared.lists_moved(&self.made().lists, &Lists::default());
    }
}

impl Made {
    fn of(offer: Arc<Offer>, errands: &Errands) -> Self {
        let mut specs: Vec<Arc<ToolSpec>> = offer.tools.iter().map(|tool| Arc::new(render::spec(tool))).collect();
        specs.extend(errands.specs().into_iter().map(Arc::new));
        let lists = Lists::of(&offer);
        Self { offer, specs: specs.into(), lists }
    }
}
