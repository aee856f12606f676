//! `list_upstreams`: which other MCP servers there are, and how they are doing.

use jiff::Timestamp;

use nexus_core::name::ServerName;
use nexus_core::prelude::*;
use nexus_core::principal::Level;

use super::unknown;
use crate::upstream::registry::{Faulty, Registry};
use crate::upstream::supervisor::{OfferedTool, SetAside, Status};

/// Lists the other MCP servers behind this hub: their state, where they come from, and how many tools they have.
///
/// With `name`, one server, with its tools; of those that are held back it shows what is different. A server in the state
/// `waiting` is tried again by itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListUpstreams {
    /// Only this server, with its tools.
    name: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Upstreams {
    servers: Vec<Server>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Server {
    name: String,
    /// `connecting`, `ready`, `degraded`, `waiting`, `stopped`, `denied`, or `faulty`: its entry cannot be used.
    state: String,
    /// Why it is in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// In this state since then.
    since: String,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<String>,
    /// The command or the address, as it is written in its file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    endpoint: String,
    /// Where it is configured.
    source: String,
    /// `shared`, or whose it is.
    visibility: String,
    /// `modern` or `legacy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    era: Option<String>,
    /// How many tools can be called.
    tools: usize,
    /// Tools that are held back until the operator allows them, by the server's own names.
    held: Vec<String>,
    /// What the server lists and what cannot be offered.
    set_aside: Vec<Aside>,
    prompts: usize,
    resources: usize,
    /// How often it was connected again.
    restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Its tools, where one server was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    list: Vec<Listed>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Aside {
    tool: String,
    why: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// Under this name it is called here.
    name: String,
    /// What its server calls it.
    original: String,
    /// `allowed` or `held`.
    standing: String,
    /// What is different, where it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl Tool<Registry> for ListUpstreams {
    const NAME: &'static str = "list_upstreams";
    const ACCESS: Access = Access::Read;
    type Reply = Upstreams;

    fn summary(&self) -> String {
        match &self.name {
            Some(name) => format!("look at the server {name}"),
            None => "list the upstream servers".to_owned(),
        }
    }

    async fn run(self, registry: &Registry, cx: &CallCx) -> ToolResult<Upstreams> {
        let agent = &cx.principal.id;
        let wanted = |status: &Status| self.name.as_ref().is_none_or(|name| status.name == *name);
        let mut servers: Vec<Server> =
            registry.statuses(Some(agent)).into_iter().filter(wanted).map(Server::from).collect();
        let faulty = registry.faulty().into_iter();
        let faulty = faulty.filter(|(faulty, _)| self.name.as_ref().is_none_or(|name| faulty.name == *name));
        servers.extend(faulty.map(|(faulty, since)| Server::faulty(faulty, since)));
        if cx.principal.level_now() == Level::Sandboxed {
            // They can use none of them, and have nothing to do with where they are.
            servers.iter_mut().for_each(|server| server.endpoint.clear());
        }
        if let Some(name) = self.name {
            let name = ServerName::new(&name);
            let upstream = registry.get(&name, agent);
            let Some(server) = servers.first_mut() else { return Err(unknown(&name)) };
            let offer = upstream.map(|upstream| upstream.offer());
            server.list = offer.iter().flat_map(|offer| &offer.tools).map(|tool| Listed::of(tool)).collect();
        }
        Ok(Upstreams { servers })
    }
}

impl Server {
    fn faulty(faulty: Faulty, since: Timestamp) -> Self {
        Self {
            name: faulty.name,
            state: "faulty".to_owned(),
            why: Some(faulty.why),
            since: since.to_string(),
            source: faulty.source,
            endpoint: String::new(),
            visibility: "shared".to_owned(),
            next_try: None,
            era: None,
            tools: 0,
            held: Vec::new(),
            set_aside: Vec::new(),
            prompts: 0,
            resources: 0,
            restarts: 0,
            last_error: None,
            list: Vec::new(),
        }
    }
}

impl From<Status> for Server {
    fn from(status: Status) -> Self {
        let aside = |SetAside { tool, why }| Aside { tool, why };
        Self {
            name: status.name,
            state: status.state.to_owned(),
            why: status.why,
            since: status.since.to_string(),
            next_try: status.next_try.map(|at| at.to_string()),
            endpoint: status.endpoint,
            source: status.source,
            visibility: status.visibility,
            era: status.era.map(str::to_owned),
            tools: status.tools,
            held: status.held,
            set_aside: status.set_aside.into_iter().map(aside).collect(),
            prompts: status.prompts,
            resources: status.resources,
            restarts: status.restarts,
            last_error: status.last_error,
            list: Vec::new(),
        }
    }
}

impl Listed {
    fn of(tool: &OfferedTool) -> Self {
        Self {
            name: tool.exposed.as_str().to_owned(),
            original: tool.original.clone(),
            standing: if tool.is_allowed() { "allowed" } else { "held" }.to_owned(),
            diff: tool.diff(),
        }
    }
}
