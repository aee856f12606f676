//! `disconnect_upstream`: stops using a server.

use nexus_core::name::ServerName;
use nexus_core::prelude::*;

use super::{not_anothers, refused};
use crate::upstream::registry::Registry;

/// Disconnects another MCP server: its process ends and its tools are gone, for everybody who saw them.
///
/// It stays so until somebody connects it again or its entry in mcp.json changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DisconnectUpstream {
    /// The name of its entry.
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Disconnected {
    name: String,
    /// Always `stopped`.
    state: String,
}

impl Tool<Registry> for DisconnectUpstream {
    const NAME: &'static str = "disconnect_upstream";
    const ACCESS: Access = Access::Write;
    type Reply = Disconnected;

    fn summary(&self) -> String {
        format!("disconnect the server {}", self.name)
    }

    async fn run(self, registry: &Registry, cx: &CallCx) -> ToolResult<Disconnected> {
        let name = ServerName::new(&self.name);
        not_anothers(registry, &name, &cx.principal.id)?;
        registry.disconnect(&name, &cx.principal.id).await.map_err(refused)?;
        Ok(Disconnected { name: self.name, state: "stopped".to_owned() })
    }
}
