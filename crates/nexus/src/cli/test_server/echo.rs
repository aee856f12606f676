//! `echo`: gives back what it was given.

use nexus_core::prelude::*;

/// Returns the message it was given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Echo {
    /// What to return.
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Echoed {
    message: String,
}

impl Tool<()> for Echo {
    const NAME: &'static str = "echo";
    const ACCESS: Access = Access::Read;
    type Reply = Echoed;

    fn summary(&self) -> String {
        "return the message".to_owned()
    }

    fn text(reply: &Echoed) -> Option<String> {
        Some(reply.message.clone())
    }

    async fn run(self, (): &(), _: &CallCx) -> ToolResult<Echoed> {
        Ok(Echoed { message: self.message })
    }
}
