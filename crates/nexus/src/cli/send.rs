//! `nexus send`: a message to a resident agent, from the operator.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::tasks::{Followed, Line, Wait, Whole, tell_of_the_deaf, text_of, update};
use super::{one_line, print, put, say};
use crate::agents::task::Priority;
use crate::config::Loaded;

const EXAMPLES: &str = "\
Examples:
  nexus send homelab \"check the backups of last night\"
  nexus send homelab --priority high --deadline 2h --wait - < task.md
  nexus send homelab STOP          ends what it is doing

The task's id goes to stdout. `nexus tasks` shows what becomes of it.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// Whom it is for: one of agents.targets
    target: String,
    /// What the agent is to do; `-` reads it from stdin
    #[arg(allow_hyphen_values = true)]
    message: String,
    /// low, normal, high or urgent
    #[arg(long, value_name = "PRIORITY", value_parser = priority)]
    priority: Option<Priority>,
    /// When it is given up: `30m`, `2h`, or a time
    #[arg(long, value_name = "WHEN")]
    deadline: Option<String>,
    /// Print its updates until it is finished; fails unless it is complete
    #[arg(long)]
    wait: bool,
}

/// What `send_message` gives back.
#[derive(Debug, Deserialize)]
struct Sent {
    queued: bool,
    id: String,
    target: String,
    position: Option<i64>,
    status: Option<String>,
    #[serde(default)]
    stopped: Vec<String>,
}

impl Send {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let mut line = Line::to(&loaded);
        let message = text_of(self.message).await?;
        let mut arguments = json!({ "target": self.target, "message": message });
        if let Some(priority) = self.priority {
            arguments["priority"] = priority.as_str().into();
        }
        if let Some(deadline) = self.deadline {
            arguments["deadline"] = deadline.into();
        }
        let cursor = if self.wait { line.end().await? } else { String::new() };
        let sent: Sent = line.get("send_message", arguments).await?;
        say(&sent.told());
        tell_of_the_deaf(&line, Some(&sent.target)).await?;
        if !self.wait {
            print(&format!("{}\n", sent.id))?;
            return Ok(ExitCode::SUCCESS);
        }
        line.keep();
        let followed = Followed { cursor, target: None, task: Some(sent.id.clone()) };
        tokio::select! {
            ended = watch(&line, followed, &sent.id) => ended,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                say(&format!("{} goes on; `nexus tasks cancel {}` ends it.", sent.id, sent.id));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

impl Sent {
    fn told(&self) -> String {
        let Self { id, target, position, status, .. } = self;
        let stopped = match self.stopped.as_slice() {
            [] => String::new(),
            stopped => format!(" It ended {}.", stopped.join(", ")),
        };
        match (self.queued, position) {
            (true, Some(0) | None) => format!("{id} is done.{stopped}"),
            (true, Some(1)) => format!("{id} is next for {target}.{stopped}"),
            (true, Some(position)) => format!("{id} is queued for {target}, at place {position}.{stopped}"),
            (false, _) => {
                let status = status.as_deref().unwrap_or("there");
                format!("{target} has been told so already: {id} is {status}.")
            }
        }
    }
}

/// Prints what is said of a task until it is finished.
async fn watch(line: &Line<'_>, mut followed: Followed, id: &str) -> Result<ExitCode> {
    loop {
        // Asked first: what is said before the end is shown before it.
        let task: Whole = line.get("get_task", json!({ "id": id, "updates": 0 })).await?;
        let wait = if task.is_finished() { Wait::No } else { Wait::AWhile };
        loop {
            let page = line.next(&mut followed, wait).await?;
            let shown: String = page.updates.iter().map(update).collect();
            if !shown.is_empty() && !put(&shown)? {
                return Ok(ExitCode::FAILURE);
            }
            if !page.more {
                break;
            }
        }
        if task.is_finished() {
            let reason = task.reason.as_deref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
            say(&format!("{} is {}{reason}", task.id, task.status));
            return Ok(if task.status == "complete" { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::parse(text).ok_or_else(|| "low, normal, high or urgent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_told_where_the_message_stands() {
        let sent = |json: &str| serde_json::from_str::<Sent>(json).unwrap().told();
        assert_eq!(sent(r#"{"queued":true,"id":"t5","target":"a","position":1}"#), "t5 is next for a.");
        assert_eq!(sent(r#"{"queued":true,"id":"t5","target":"a","position":4}"#), "t5 is queued for a, at place 4.");
        assert_eq!(
            sent(r#"{"queued":true,"id":"t6","target":"a","position":0,"stopped":["t4","t5"]}"#),
            "t6 is done. It ended t4, t5."
        );
        assert_eq!(
            sent(r#"{"queued":false,"reason":"duplicate","id":"t5","target":"a","status":"in_progress"}"#),
            "a has been told so already: t5 is in_progress."
        );
    }
}
