//! What happens with servers, for the record and the log.

use std::fmt;
use std::sync::Arc;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::name::ServerName;
use nexus_mcp::upstream::supervisor::{Happened, Witness};
use tracing::{info, warn};

pub struct Recorder {
    audit: Arc<dyn Sink>,
}

impl Recorder {
    pub fn new(audit: Arc<dyn Sink>) -> Self {
        Self { audit }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Witness for Recorder {
    fn happened(&self, server: &ServerName, what: Happened) {
        let detail = match &what {
            Happened::Connected => {
                info!(upstream = %server, "the upstream server `{server}` is connected");
                format!("{server}: connected")
            }
            Happened::Lost { why } => {
                warn!(upstream = %server, "the upstream server `{server}` is lost: {why}");
                format!("{server}: lost, {why}")
            }
            Happened::Held { tools } => {
                let tools = shown(tools);
                warn!(upstream = %server, "tools of the upstream server `{server}` are new or changed: {tools}; `nexus mcp tools {server}` shows how");
                format!("{server}: held back {tools}")
            }
            Happened::Allowed { tools } => format!("{server}: allowed {}", shown(tools)),
        };
        self.audit.post(Row::new(Event::Upstream).detail(detail));
    }
}

/// A server's own names for its tools, as they may be shown.
fn shown(tools: &[String]) -> String {
    nexus_core::text::clean(&tools.join(", ")).replace(['\n', '\r', '\t'], " ")
}
