//! `nexus tasks`: the tasks of resident agents, as the operator sees them.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::{print, put, say};
use crate::agents::task::TaskId;
use crate::config::Loaded;

mod deaf;
mod line;
mod show;

use deaf::Queues;
pub use line::{Followed, Line, Wait};
pub use show::{Whole, update};

/// Finished tasks that are shown behind the open ones.
const FINISHED: u32 = 5;
/// Tasks asked for at once.
const PAGE: u32 = 200;
/// Bytes of a text on stdin. The hub says what is too much for a message; this is too much to ask it.
const LONGEST_TEXT: u64 = 900 * 1024;

const EXAMPLES: &str = "\
Examples:
  nexus tasks                      what is open, and the last few that are finished
  nexus tasks --follow             go on with what agents say, until Ctrl-C
  nexus tasks show t17
  nexus tasks answer t17 \"the second one\"
  nexus tasks retry t17";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Tasks {
    #[command(subcommand)]
    command: Option<Act>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Args)]
struct List {
    /// Only tasks of this target
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// All tasks, also those that are long finished
    #[arg(long)]
    all: bool,
    /// Go on with the updates to come, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print JSON: a list of tasks, and with --follow an update a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Show all that is known of a task, with its last updates
    Show {
        /// The task, for instance t17
        id: TaskId,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Put a finished task back into its queue, to be done from the start
    Retry {
        /// The task, for instance t17
        id: TaskId,
    },
    /// End a task, whether it waits or runs
    Cancel {
        /// The task, for instance t17
        id: TaskId,
        /// Why; its agent is told
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Answer the question of a task that is input_required
    Answer {
        /// The task, for instance t17
        id: TaskId,
        /// The answer; `-` reads it from stdin
        #[arg(allow_hyphen_values = true)]
        answer: String,
    },
}

/// What a task has become.
#[derive(Debug, Deserialize)]
struct Now {
    id: String,
    status: String,
    target: String,
}

/// What a task waits for.
#[derive(Debug, Deserialize)]
struct Asking {
    question_id: Option<i64>,
}

impl Tasks {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let line = Line::to(&loaded);
        match self.command {
            None => self.list.run(line).await,
            Some(act) => act.run(&line).await,
        }
    }
}

impl Act {
    async fn run(self, line: &Line<'_>) -> Result<ExitCode> {
        match self {
            Act::Show { id, json } => {
                let task = line.call("get_task", json!({ "id": id.to_string() })).await?;
                if json {
                    print(&format!("{}\n", serde_json::to_string_pretty(&task)?))?;
                } else {
                    print(&show::whole(&serde_json::from_value(task).context("the hub's task makes no sense")?))?;
                }
            }
            Act::Retry { id } => {
                let now: Now = line.get("retry_task", json!({ "id": id.to_string() })).await?;
                say(&format!("{} is {} again, for {}.", now.id, now.status, now.target));
            }
            Act::Cancel { id, reason } => {
                let mut arguments = json!({ "id": id.to_string() });
                if let Some(reason) = reason {
                    arguments["reason"] = reason.into();
                }
                let now: Now = line.get("cancel_task", arguments).await?;
                say(&format!("{} is {}.", now.id, now.status));
            }
            Act::Answer { id, answer } => {
                let (id, answer) = (id.to_string(), text_of(answer).await?);
                // To the one that waits now, and to no other.
                let Asking { question_id } = line.get("get_task", json!({ "id": id, "updates": 0 })).await?;
                let question = question_id.unwrap_or_default();
                let arguments = json!({ "id": id, "answer": answer, "question_id": question });
                let now: Now = line.get("answer_task", arguments).await?;
                say(&format!("{} is answered, and {}.", now.id, now.status));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    async fn run(self, mut line: Line<'_>) -> Result<ExitCode> {
        // First the place, then the list: nothing falls between the two.
        let cursor = if self.follow { line.end().await? } else { String::new() };
        let (tasks, more) = self.tasks(&line).await?;
        match (self.json, self.follow) {
            (true, false) => print(&format!("{}\n", serde_json::to_string_pretty(&tasks)?))?,
            (true, true) => {}
            (false, _) => self.show(&line, tasks, more).await?,
        }
        if self.follow {
            line.keep();
            let followed = Followed { cursor, target: self.target, task: None };
            tokio::select! {
                followed = follow(&line, followed, self.json) => followed?,
                interrupted = tokio::signal::ctrl_c() => interrupted?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether there are more open ones than are shown, too.
    async fn tasks(&self, line: &Line<'_>) -> Result<(Vec<Value>, bool)> {
        if self.all {
            let (mut tasks, mut before) = (Vec::new(), None);
            loop {
                let (mut some, older) = self.page(line, None, PAGE, before).await?;
                tasks.append(&mut some);
                before = older;
                if before.is_none() {
                    return Ok((tasks, false));
                }
            }
        }
        let open = json!(["pending", "acknowledged", "in_progress", "input_required"]);
        let finished = json!(["complete", "error", "cancelled", "dead"]);
        let (mut tasks, older) = self.page(line, Some(open), PAGE, None).await?;
        let (mut last, _) = self.page(line, Some(finished), FINISHED, None).await?;
        // One may have ended between the two looks: the later one counts.
        tasks.retain(|task| last.iter().all(|ended| ended["id"] != task["id"]));
        tasks.append(&mut last);
        Ok((tasks, older.is_some()))
    }

    async fn page(
        &self,
        line: &Line<'_>,
        status: Option<Value>,
        limit: u32,
        before: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>)> {
        #[derive(Deserialize)]
        struct Page {
            tasks: Vec<Value>,
            before: Option<String>,
        }
        let mut arguments = json!({ "limit": limit });
        let target = self.target.clone().map(Value::from);
        for (name, value) in [("status", status), ("target", target), ("before", before.map(Value::from))] {
            if let Some(value) = value {
                arguments[name] = value;
            }
        }
        let page: Page = line.get("list_tasks", arguments).await?;
        Ok((page.tasks, page.before))
    }

    async fn show(&self, line: &Line<'_>, tasks: Vec<Value>, more: bool) -> Result<()> {
        let tasks: Vec<show::Listed> =
            serde_json::from_value(Value::Array(tasks)).context("the hub's list of tasks makes no sense")?;
        if tasks.is_empty() {
            say("There are no tasks.");
        } else {
            print(&format!("{}\n", show::table(&tasks)))?;
        }
        if more {
            say(&format!("More than {PAGE} are open; --all lists every one."));
        }
        tell_of_the_deaf(line, self.target.as_deref()).await
    }
}

/// Tasks may wait for nobody.
pub async fn tell_of_the_deaf(line: &Line<'_>, target: Option<&str>) -> Result<()> {
    let arguments = target.map_or(json!({}), |target| json!({ "target": target }));
    let queues: Queues = line.get("queue_status", arguments).await?;
    queues.deaf(target).iter().for_each(|words| say(words));
    Ok(())
}

/// Prints updates as they come, for as long as somebody reads them.
async fn follow(line: &Line<'_>, mut followed: Followed, json: bool) -> Result<()> {
    loop {
        let page = line.next(&mut followed, Wait::AWhile).await?;
        let shown: String =
            page.updates.iter().map(|one| if json { format!("{one}\n") } else { update(one) }).collect();
        if !shown.is_empty() && !put(&shown)? {
            return Ok(());
        }
    }
}

/// A text of the command line; `-` is all of stdin.
pub async fn text_of(text: String) -> Result<String> {
    if text != "-" {
        return Ok(text);
    }
    let mut bytes = Vec::new();
    tokio::io::stdin().take(LONGEST_TEXT + 1).read_to_end(&mut bytes).await.context("reading stdin")?;
    if bytes.len() as u64 > LONGEST_TEXT {
        bail!("stdin holds more than {LONGEST_TEXT} bytes; a message may have 100000");
    }
    String::from_utf8(bytes).context("stdin is not text in UTF-8")
}
