//! `nexus pending`, `nexus approve`, `nexus deny`: the operator's own way to answer, out of reach of any model.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use jiff::SignedDuration;

use nexus_core::approval::{Code, Scope, Shown};
use nexus_core::clock;

use super::{one_line, print, say};
use crate::config::Loaded;
use crate::control::{self, Answer, Asked, Order};

/// Characters of each end of a long summary that the table shows.
const END: usize = 500;

#[derive(Debug, Args)]
pub struct Pending {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Approve {
    /// The code of the waiting call
    code: String,
    /// Only that call, once. Otherwise all writes of its session, or all tools of its upstream server
    #[arg(long, conflicts_with = "each")]
    once: bool,
    /// Its upstream server may be used, and every call of it is asked about
    #[arg(long)]
    each: bool,
}

#[derive(Debug, Args)]
pub struct Deny {
    /// The code of the waiting call
    code: String,
}

impl Pending {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let mut waiting: Vec<Shown> = Vec::new();
        for answer in ask(&loaded, &Order::Pending).await? {
            match answer {
                Answer::Waiting(more) => waiting.extend(more),
                Answer::Failed(why) => bail!(why),
                _ => {}
            }
        }
        // A holder may listen at two sockets.
        waiting.sort_by(|a, b| (a.asked, a.code.as_str()).cmp(&(b.asked, b.code.as_str())));
        waiting.dedup_by(|a, b| a.code == b.code);
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&waiting)?))?;
        } else if waiting.is_empty() {
            say("Nothing waits.");
        } else {
            print(&format!("{}\n", table(&waiting)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Approve {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let scope = match (self.once, self.each) {
            (true, _) => Scope::Once,
            (false, true) => Scope::Each,
            (false, false) => Scope::Session,
        };
        match settle(&loaded, Order::Approve { code: Code::typed(&self.code), scope }).await? {
            Answer::Approved(shown, Scope::Once) => say(&format!("Approved once: {}", line(&shown))),
            Answer::Approved(shown, Scope::Session) => {
                say(&format!("Approved, with {} of its session: {}", shown.what, line(&shown)));
            }
            Answer::Approved(shown, Scope::Each) => {
                say(&format!("Its server may be used, and each call is asked about: {}", line(&shown)));
            }
            other => bail!("the hub's answer makes no sense: {other:?}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Deny {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        match settle(&loaded, Order::Deny(Code::typed(&self.code))).await? {
            Answer::Denied(shown) => say(&format!("Denied: {}", line(&shown))),
            other => bail!("the hub's answer makes no sense: {other:?}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks all running processes of the data folder.
async fn ask(loaded: &Loaded, order: &Order) -> Result<Vec<Answer>> {
    let Asked { answers, silent } = control::ask_all(&loaded.data, order).await;
    silent.iter().for_each(|silent| say(&format!("Not asked: {silent}")));
    match (answers.is_empty(), silent.is_empty()) {
        (false, _) => Ok(answers),
        (true, true) => bail!("no hub is running on the data folder {}", loaded.data.display()),
        (true, false) => bail!("no process on the data folder {} answers", loaded.data.display()),
    }
}

/// The answer of the one process that knows the code.
async fn settle(loaded: &Loaded, order: Order) -> Result<Answer> {
    let mut unknown = String::new();
    for answer in ask(loaded, &order).await? {
        match answer {
            Answer::NoSuchCode(why) => unknown = why,
            Answer::Failed(why) => bail!(why),
            known => return Ok(known),
        }
    }
    bail!("{unknown}; `nexus pending` lists what waits")
}

fn table(waiting: &[Shown]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["code", "age", "key", "client", "tool", "node", "what would happen"]);
    for shown in waiting {
        table.add_row([
            shown.code.to_string(),
            age(clock::now().duration_since(shown.asked)),
            shown.key.clone(),
            one_line(shown.client.as_deref().unwrap_or("-")),
            shown.tool.clone(),
            shown.node.clone(),
            brief(&shown.summary),
        ]);
    }
    table
}

fn line(shown: &Shown) -> String {
    let client = shown.client.as_deref().map(|client| format!(", client {}", one_line(client))).unwrap_or_default();
    format!("{} on {}: {} (key {}{client})", shown.tool, shown.node, brief(&shown.summary), shown.key)
}

/// A summary as far as a terminal is for it: a long one with its two ends, and the way to the rest.
fn brief(summary: &str) -> String {
    let line = one_line(summary);
    let length = line.chars().count();
    if length <= 2 * END {
        return line;
    }
    let (head, tail): (String, String) = (line.chars().take(END).collect(), line.chars().skip(length - END).collect());
    format!("{head} … {} characters NOT SHOWN, see `nexus pending --json` … {tail}", length - 2 * END)
}

fn age(age: SignedDuration) -> String {
    match age.as_secs().max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}m", seconds / 60),
    }
}
