//! `read_output`: reads on where a command's output was cut.

use std::time::Instant;

use crate::prelude::*;
use crate::spool::{Cursor, Owner};

/// Reads on in output that was too long for its reply, from the cursor that reply gave.
///
/// Gives the next piece, and the cursor after it for as long as there is more. Output is kept for an hour, for the
/// session that ran the command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadOutput {
    /// The cursor, as it stands in a reply of `run_command` or `read_output`.
    cursor: Cursor,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Piece {
    output: String,
    /// Where to read on; absent at the end of what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<Cursor>,
    /// Characters after this piece.
    remaining: usize,
}

#[derive(Debug, Error)]
#[error("no output is kept under this cursor")]
struct NotKept;

impl Tool<Toolbox> for ReadOutput {
    const NAME: &'static str = "read_output";
    const ACCESS: Access = Access::Read;
    type Reply = Piece;

    fn summary(&self) -> String {
        "read on in a command's output".to_owned()
    }

    async fn run(self, env: &Toolbox, cx: &CallCx) -> ToolResult<Piece> {
        let page = env.spool.read(&Owner::of(cx), self.cursor, env.settings.output_cap, Instant::now());
        let page = page.ok_or_else(|| {
            ToolError::refused(NotKept).hint(
                "output is kept for an hour, for the session that ran the command, and newer output pushes out older; \
                 run the command again and write its output to a file, then use read_file",
            )
        })?;
        Ok(Piece { output: page.text, next_cursor: page.next, remaining: page.left })
    }
}
