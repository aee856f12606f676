//! `read_upstream_log`: what a server wrote, and what happened to it.

use nexus_core::name::ServerName;
use nexus_core::prelude::*;
use nexus_core::principal::Level;

use super::{not_anothers, refused, unknown};
use crate::upstream::error::ConfigurationError;
use crate::upstream::log::{LogLine, Voice};
use crate::upstream::registry::Registry;

/// Lines that are given when nobody says how many, and at most.
const USUAL: usize = 50;
const MOST: usize = 500;

/// Reads the log of another MCP server: its standard error, and what the hub notes about it. Newest last.
///
/// Look here when a server does not start or keeps failing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadUpstreamLog {
    /// The name of its entry.
    name: String,
    /// How many lines, the last ones: 50 as usual, 500 at most.
    lines: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Log {
    name: String,
    lines: Vec<Line>,
    /// Older lines that were not kept.
    dropped: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    at: String,
    /// `server` (standard error), `noise` (standard output, where only messages belong) or `hub`.
    from: String,
    text: String,
}

impl Tool<Registry> for ReadUpstreamLog {
    const NAME: &'static str = "read_upstream_log";
    const ACCESS: Access = Access::ReadLogged;
    type Reply = Log;

    fn summary(&self) -> String {
        format!("read the log of the server {}", self.name)
    }

    /// Sandboxed keys have nothing to do with servers, nor with what they say.
    async fn run(self, registry: &Registry, cx: &CallCx) -> ToolResult<Log> {
        if cx.principal.level_now() == Level::Sandboxed {
            return Err(refused(ConfigurationError::Denied { who: "a sandboxed key".into() }));
        }
        let name = ServerName::new(&self.name);
        let Some(log) = registry.log(&name, &cx.principal.id) else { return Err(unknown(&name)) };
        not_anothers(registry, &name, &cx.principal.id)?;
        let lines = log.last(self.lines.unwrap_or(USUAL).min(MOST));
        Ok(Log { name: self.name, lines: lines.into_iter().map(Line::from).collect(), dropped: log.dropped() })
    }

    fn text(log: &Log) -> Option<String> {
        let line = |line: &Line| format!("{} {:<6} {}", line.at, line.from, line.text);
        let lines: Vec<String> = log.lines.iter().map(line).collect();
        Some(if lines.is_empty() { "(nothing was logged)".to_owned() } else { lines.join("\n") })
    }
}

impl From<LogLine> for Line {
    fn from(line: LogLine) -> Self {
        let from = match line.from {
            Voice::Server => "server",
            Voice::Noise => "noise",
            Voice::Hub => "hub",
        };
        Self { at: line.at.to_string(), from: from.to_owned(), text: line.text }
    }
}
