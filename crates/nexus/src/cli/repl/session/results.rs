//! What comes of a call, shown to whoever made it.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Outcome, Session};
use crate::cli::repl::files;
use crate::cli::repl::known::KnownTool;
use crate::cli::repl::show::{Page, Piece, one_line, pieces};
use crate::cli::waiting::{Place, Waiting};
use crate::cli::{print, say};

/// Files of one result.
const MOST_FILES: usize = 20;

impl Session {
    /// Shows a result and keeps it for `/json`.
    pub(super) async fn show(&mut self, tool: &str, result: Value) -> Result<Outcome> {
        let outcome = if let Some(waiting) = Waiting::of(&result) {
            let place = self.place_of_the_yes(tool).await;
            waiting.told(place).iter().for_each(|line| say(line));
            self.known.change(|known| known.remember(&waiting.code));
            Outcome::Failed
        } else if result["isError"] == true {
            for piece in pieces(&result, Page::PLAIN) {
                if let Piece::Text(text) = piece {
                    say(&text);
                }
            }
            Outcome::Failed
        } else {
            self.show_pieces(tool, &result)?;
            Outcome::Done
        };
        self.last = Some(result);
        Ok(outcome)
    }

    /// Where a call of this tool can be allowed.
    async fn place_of_the_yes(&self, tool: &str) -> Place {
        let known = self.known.get();
        if known.tool("approve_writes").is_none() {
            return Place::Hub;
        }
        if known.tool("get_session_info").is_some()
            && let Ok(told) = self.client.call_tool("get_session_info", &json!({})).await
            && let Some(told) = told.structured()
            && serde_json::from_str::<Value>(told.get()).is_ok_and(|told| told["approval"] == "operator")
        {
            return Place::Hub;
        }
        match known.tool(tool) {
            Some(KnownTool { server: Some(_), .. }) => Place::HereForServer,
            _ if tool == "connect_upstream" => Place::HereForServer,
            _ => Place::Here,
        }
    }

    fn show_pieces(&self, tool: &str, result: &Value) -> Result<()> {
        let mut saved = 0;
        for piece in pieces(result, self.manner.page) {
            match piece {
                Piece::Text(text) => print(&format!("{}\n", text.trim_end_matches('\n')))?,
                Piece::File { .. } if saved == MOST_FILES => say("there are more files; they are not saved"),
                Piece::File { kind, base64 } => {
                    let path = files::save(&self.manner.save, tool, &kind, &base64)?;
                    saved += 1;
                    print(&format!("{} saved as {}\n", one_line(&kind, 60), path.display()))?;
                }
            }
        }
        Ok(())
    }
}
