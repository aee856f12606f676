//! `nexus mcp`: the upstream servers, for people and scripts.

mod add;
mod file;
mod import;
mod list;
mod login;
mod tools;

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::Value;

use super::{one_line, print, say};
use crate::config::{Env, Loaded};
use crate::control::{self, Answer, Order};
use crate::hold;
use crate::upstreams::orders::{McpAnswer, McpOrder};

/// Characters of the last cell of a row: a terminal wraps it, a pipe does not.
const LONGEST_CELL: usize = 400;
const LONGEST_PIPED: usize = 60;

#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// List the servers: how they are doing, and what is wrong with their entries
    List(list::List),
    /// Connect a server. One that a project folder brings is shown and asked about first
    Connect {
        /// Its name in mcp.json
        name: String,
        /// Agree to the entry without being asked
        #[arg(long)]
        yes: bool,
        /// Print how it is doing as JSON
        #[arg(long)]
        json: bool,
    },
    /// Disconnect a server until it is connected again, its entry changes or the hub starts anew
    Disconnect {
        /// Its name in mcp.json
        name: String,
        /// Also take back the yes to the entry of a project folder
        #[arg(long)]
        forget: bool,
    },
    /// List the tools of one server, or of all: those that are held back with what is different
    Tools(tools::Tools),
    /// Allow tools that are held back because they are new or changed
    Allow(tools::Allow),
    /// Show what a server wrote to its standard error, and what happened to it
    Logs(list::Logs),
    /// Add a server to ~/.nexus/mcp.json
    Add(add::Add),
    /// Take a server out of ~/.nexus/mcp.json
    Remove(add::Remove),
    /// Take over the servers that other programs on this machine have: shows them, then writes them
    Import(import::Import),
    /// Log in at a server that wants it (OAuth)
    Login(login::Login),
    /// Forget a login
    Logout(login::Logout),
}

impl Mcp {
    pub async fn run(self, loaded: Loaded, env: &Env) -> Result<ExitCode> {
        match self {
            Mcp::List(list) => list.run(&loaded, env).await,
            Mcp::Connect { name, yes, json } => connect(&loaded, &name, yes, json).await,
            Mcp::Disconnect { name, forget } => {
                let told = told(&loaded, McpOrder::Disconnect { name: name.clone(), forget }).await?;
                let was = if told["disconnected"] == 0 { "was not connected" } else { "is disconnected" };
                say(&format!("`{}` {was}.", one_line(&name)));
                Ok(ExitCode::SUCCESS)
            }
            Mcp::Tools(tools) => tools.run(&loaded).await,
            Mcp::Allow(allow) => allow.run(&loaded).await,
            Mcp::Logs(logs) => logs.run(&loaded).await,
            Mcp::Add(add) => add.run(&loaded, env).await,
            Mcp::Remove(remove) => remove.run(&loaded, env).await,
            Mcp::Import(import) => import.run(&loaded, env),
            Mcp::Login(login) => login.run(loaded, env).await,
            Mcp::Logout(logout) => logout.run(&loaded, env),
        }
    }
}

async fn connect(loaded: &Loaded, name: &str, yes: bool, json: bool) -> Result<ExitCode> {
    let order = |yes: Option<String>| McpOrder::Connect { name: name.to_owned(), yes };
    let mut answer = ask(loaded, order(None)).await?;
    if let McpAnswer::Unagreed { file, line, entry, digest } = &answer {
        let (name, file) = (one_line(name), one_line(file));
        say(&format!(
            "The server `{name}` comes from {file}:{line}, which is not yours alone. Its entry:\n\n{entry}\n"
        ));
        if !yes && !agrees("Start it, now and whenever the hub starts?")? {
            bail!("`{name}` is not connected: it waits for your yes (`nexus mcp connect {name} --yes`)");
        }
        answer = ask(loaded, order(Some(digest.clone()))).await?;
    }
    let McpAnswer::Told(status) = answer else { bail!("the entry of `{name}` has just changed; look at it again") };
    if json {
        print(&format!("{status:#}\n"))?;
    } else {
        let state = status["state"].as_str().unwrap_or("unknown");
        say(&format!("`{}` is {state} with {} tools.", one_line(name), status["tools"]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the running hub.
async fn ask(loaded: &Loaded, order: McpOrder) -> Result<McpAnswer> {
    if hold::holder(&loaded.data).is_none() {
        bail!("no hub is running on the data folder {}; start one with `nexus`", loaded.data.display());
    }
    match control::ask(&loaded.data, &Order::Mcp(order)).await? {
        Answer::Mcp(answer) => Ok(answer),
        Answer::Failed(why) => bail!(why),
        _ => bail!("the running hub answers something else"),
    }
}

async fn told(loaded: &Loaded, order: McpOrder) -> Result<Value> {
    match ask(loaded, order).await? {
        McpAnswer::Told(value) => Ok(value),
        McpAnswer::Unagreed { .. } => bail!("the running hub answers something else"),
    }
}

/// Asks the person at the terminal. Nobody there is no.
fn agrees(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).context("asking")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
