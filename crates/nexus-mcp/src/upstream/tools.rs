//! Tools about the servers themselves: how they are doing, connecting and disconnecting them, what they wrote.

mod connect_upstream;
mod disconnect_upstream;
mod list_upstreams;
mod read_upstream_log;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use nexus_core::arguments::Arguments;
use nexus_core::call::CallCx;
use nexus_core::error::{ToolError, ToolResult};
use nexus_core::gate::Permit;
use nexus_core::name::{NodeName, ServerName, ToolName};
use nexus_core::principal::PrincipalId;
use nexus_core::provider::{Intent, Origin, Own, Provider, Revision};
use nexus_core::reply::Reply;
use nexus_core::text;
use nexus_core::tool::{Access, BadTool, Entry, Family, Tool, ToolSpec};

use self::connect_upstream::ConnectUpstream;
use self::disconnect_upstream::DisconnectUpstream;
use self::list_upstreams::ListUpstreams;
use self::read_upstream_log::ReadUpstreamLog;
use super::error::ConfigurationError;
use super::introduction;
use super::registry::Registry;

/// The table of contents.
pub const TOOLS: &[Entry<Registry>] = &[
    Entry::of::<ConnectUpstream>(),
    Entry::of::<DisconnectUpstream>(),
    Entry::of::<ListUpstreams>(),
    Entry::of::<ReadUpstreamLog>(),
];

/// These tools over a registry, for the catalogue.
pub fn tools(registry: &Registry) -> Result<impl Provider + use<>, BadTool> {
    let origin = Origin::Own(Own::BuiltIn);
    let family = Family::new(origin, Arc::new(registry.clone()), &[TOOLS])?;
    Ok(Management { family, registry: registry.clone() })
}

/// A family, one of whose tools is about using a server: the gate decides about that one as about the server's own.
struct Management {
    family: Family<Registry>,
    registry: Registry,
}

impl Provider for Management {
    fn origin(&self) -> &Origin {
        self.family.origin()
    }

    fn tools(&self) -> Arc<[Arc<ToolSpec>]> {
        self.family.tools()
    }

    fn changes(&self) -> watch::Receiver<Revision> {
        self.family.changes()
    }

    fn intend(&self, tool: &ToolName, args: &Arguments) -> ToolResult<Box<dyn Intent>> {
        let intent = self.family.intend(tool, args)?;
        if tool.as_str() != ConnectUpstream::NAME {
            return Ok(intent);
        }
        let wanted = args.parse::<ConnectUpstream>()?;
        let server = wanted.server();
        // Nobody is asked for what cannot be.
        self.registry.connectable(&server, wanted.whose()).map_err(refused)?;
        let entry = self.registry.entries().into_iter().find(|entry| entry.config.name == server);
        let meant = entry.map_or_else(|| server.clone(), |entry| server.of_edition(entry.config.edition()));
        let all_tools = wanted.all_tools();
        Ok(Box::new(Connecting { intent, server, meant, all_tools, registry: self.registry.clone() }))
    }
}

/// The wish to use a server.
struct Connecting {
    intent: Box<dyn Intent>,
    server: ServerName,
    /// The server as its entry is now: what a human says of it holds for no other entry.
    meant: ServerName,
    all_tools: bool,
    registry: Registry,
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Intent for Connecting {
    fn access(&self) -> Access {
        self.intent.access()
    }

    fn summary(&self) -> String {
        self.intent.summary()
    }

    fn node(&self) -> Option<&NodeName> {
        self.intent.node()
    }

    fn server(&self) -> Option<&ServerName> {
        Some(&self.meant)
    }

    fn wants_all(&self) -> bool {
        self.all_tools
    }

    fn introduction(&self) -> Option<String> {
        introduction::known(&self.registry, &self.server)
    }

    fn run(self: Box<Self>, permit: Permit, cx: CallCx) -> BoxFuture<'static, ToolResult<Reply>> {
        self.intent.run(permit, cx)
    }
}

/// A server that only others have connected is theirs.
fn not_anothers(registry: &Registry, name: &ServerName, agent: &PrincipalId) -> ToolResult<()> {
    let is_theirs =
        registry.get(name, agent).is_none() && registry.all().iter().any(|upstream| upstream.name() == name);
    if is_theirs { Err(refused(ConfigurationError::Private(name.to_string()))) } else { Ok(()) }
}

fn unknown(name: &ServerName) -> ToolError {
    refused(ConfigurationError::Unknown(name.to_string()))
}

/// What the entry of a server does not allow, and who can mend it.
fn refused(error: ConfigurationError) -> ToolError {
    let error = match error {
        // The caller's own words.
        ConfigurationError::Unknown(name) => ConfigurationError::Unknown(text::cut(&name, 100).into_owned()),
        error => error,
    };
    let hint = match &error {
        ConfigurationError::Shared(_) => "`disconnect_upstream` ends that connection, for everybody",
        ConfigurationError::Private(_) => "`connect_upstream` with `visibility: private` connects it for this key too",
        ConfigurationError::Unknown(_) => "`list_upstreams` shows which there are",
        ConfigurationError::Unagreed { name, .. } => {
            &format!("the operator can look at its entry and agree to it with `nexus mcp connect {name}`")
        }
        ConfigurationError::Denied { .. } => "the operator may give the key the level `trusted`",
        ConfigurationError::Disabled(_) | ConfigurationError::Nowhere(_) | ConfigurationError::Fault(_) => {
            "the operator can mend its entry in mcp.json"
        }
    };
    ToolError::refused(error).hint(hint)
}
