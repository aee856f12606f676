//! `connect_upstream`: starts using a server that is configured.

use nexus_core::name::ServerName;
use nexus_core::prelude::*;

use super::{not_anothers, refused};
use crate::upstream::registry::{Registry, Visibility, Whose};

/// Connects another MCP server that is configured in mcp.json, and says which tools it brings.
///
/// The operator is asked once whether the server may be used in this session. A server that is connected already stays
/// as it is. Its tools are listed as `mcp_SERVER_TOOL`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectUpstream {
    /// The name of its entry.
    name: String,
    /// Who sees its tools: everybody (`shared`, as usual), or only this key (`private`).
    visibility: Option<Who>,
    /// True asks for all its tools in this session, also where each call was to be confirmed so far.
    all_tools: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Who {
    Shared,
    Private,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Connected {
    name: String,
    /// `ready`, `connecting`, `degraded` or `waiting`.
    state: String,
    /// Why it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// `shared`, or whose it is.
    visibility: String,
    /// Its tools, by the names to call them by.
    tools: Vec<String>,
    /// Tools that are held back until the operator allows them.
    held: Vec<String>,
}

impl ConnectUpstream {
    pub(super) fn server(&self) -> ServerName {
        ServerName::new(&self.name)
    }

    pub(super) fn all_tools(&self) -> bool {
        self.all_tools.unwrap_or(false)
    }

    pub(super) fn whose(&self) -> Whose {
        match self.visibility {
            None | Some(Who::Shared) => Whose::Everybodys,
            Some(Who::Private) => Whose::OneKeys,
        }
    }
}

impl Tool<Registry> for ConnectUpstream {
    const NAME: &'static str = "connect_upstream";
    const ACCESS: Access = Access::Write;
    type Reply = Connected;

    fn summary(&self) -> String {
        match self.whose() {
            Whose::Everybodys => format!("connect the server {} for everybody", self.name),
            Whose::OneKeys => format!("connect the server {} for this key alone", self.name),
        }
    }

    async fn run(self, registry: &Registry, cx: &CallCx) -> ToolResult<Connected> {
        let (name, agent) = (self.server(), &cx.principal.id);
        if self.whose() == Whose::Everybodys {
            not_anothers(registry, &name, agent)?;
        }
        let there = registry.get(&name, agent).filter(|_| self.visibility.is_none());
        let upstream = match there {
            Some(upstream) => upstream,
            None => {
                let visibility = match self.whose() {
                    Whose::Everybodys => Visibility::Shared,
                    Whose::OneKeys => Visibility::Private(agent.clone()),
                };
                let level = Some(cx.principal.level_now());
                registry.connect_known(&name, visibility, level).await.map_err(refused)?
            }
        };
        // How it went is told by its state: a server that is not there yet is tried again.
        if upstream.ready().await.is_ok() {
            upstream.is_offered().await;
        }
        let (state, offer) = (upstream.state(), upstream.offer());
        Ok(Connected {
            name: self.name,
            state: state.as_str().to_owned(),
            why: state.why().map(str::to_owned),
            visibility: upstream.visibility().to_string(),
            tools: offer.allowed().map(|tool| tool.exposed.as_str().to_owned()).collect(),
            held: offer.held().map(|tool| tool.exposed.as_str().to_owned()).collect(),
        })
    }
}
