//! `get_time`: what the clock says.

use nexus_core::clock;
use nexus_core::prelude::*;

/// Tells the time, in UTC.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetTime {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Time {
    /// As RFC 3339 writes it: 2026-07-28T12:00:00.123Z.
    time: String,
}

impl Tool<()> for GetTime {
    const NAME: &'static str = "get_time";
    const ACCESS: Access = Access::Read;
    type Reply = Time;

    fn summary(&self) -> String {
        "tell the time".to_owned()
    }

    fn text(reply: &Time) -> Option<String> {
        Some(reply.time.clone())
    }

    async fn run(self, (): &(), _: &CallCx) -> ToolResult<Time> {
        Ok(Time { time: format!("{:.3}", clock::now()) })
    }
}
