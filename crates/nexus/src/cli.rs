//! The command line: what can be asked of the program, and with which exit code it answers.
//!
//! 0 done, 1 failed, 2 wrong use or faulty configuration. Data goes to stdout, talk to stderr.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use nexus_core::text;

use crate::config::values::LogLevel;
use crate::config::{self, Env, Faults, Loaded};
use crate::log;

mod agent;
mod approve;
mod audit;
mod call;
mod check;
mod docs;
mod form;
mod hub;
mod key;
mod mcp;
mod person;
mod record;
mod repl;
mod send;
mod serve;
mod stdio;
mod tasks;
mod test_server;
mod tools;
mod waiting;

/// The one MCP endpoint of a homelab.
///
/// Without a command it serves: MCP on http://127.0.0.1:8765/mcp, with a key that is made and shown at the first start.
#[derive(Debug, Parser)]
#[command(name = "nexus", version, max_term_width = 100)]
pub struct Cli {
    /// Configuration file [default: NEXUS_CONFIG, ./nexus.yaml, ~/.config/nexus/nexus.yaml, none]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Data folder: store, generated key, lock [default: NEXUS_DATA, ~/.local/share/nexus]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// How log lines on stderr look
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: log::Format,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP over HTTP (the default)
    Serve(serve::Serve),
    /// Serve MCP on stdin and stdout, for a client that starts the program itself
    Stdio,
    /// Check the configuration: all faults at once, or the result
    Check(check::Check),
    /// List the tools of the running hub
    Tools(tools::Tools),
    /// Call a tool of the running hub
    Call(call::Call),
    /// List what waits for the operator
    Pending(approve::Pending),
    /// Say yes to a call that waits
    Approve(approve::Approve),
    /// Say no to a call that waits, or take a yes back
    Deny(approve::Deny),
    /// Make, list and revoke keys
    #[command(subcommand)]
    Key(key::Key),
    /// Prove, show and export the record of all that happened
    #[command(subcommand)]
    Audit(audit::Audit),
    /// The upstream MCP servers: list, connect, add, take over from other programs
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// Drive the hub by hand, or from a script on stdin: tools, upstream servers, approvals, the record
    Repl(repl::Repl),
    /// List and follow the tasks of resident agents; show, answer, cancel and retry them
    Tasks(tasks::Tasks),
    /// Send a message to a resident agent
    Send(send::Send),
    /// Serve a target's tasks with a command, on the agent's machine
    Agent(agent::Agent),
    /// Serve three small tools, to try clients and hubs with
    TestServer(test_server::TestServer),
    /// Write the reference pages (docs/reference)
    Docs(docs::Docs),
    /// Print shell completions
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Parses, runs, and turns the outcome into an exit code.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli.dispatch() {
        Ok(code) => code,
        Err(error) => match error.downcast_ref::<Faults>() {
            Some(faults) => {
                say(&faults.to_string());
                ExitCode::from(2)
            }
            None => {
                say(&format!("nexus: {error:#}"));
                ExitCode::FAILURE
            }
        },
    }
}

impl Cli {
    fn dispatch(self) -> Result<ExitCode> {
        let env = Env::of_process();
        let load = || -> Result<Loaded> {
            let loaded = config::load(self.config.as_deref(), self.data.as_deref(), &env)?;
            log::start(&log_filter(&loaded), self.log_format);
            Ok(loaded)
        };
        match self.command.unwrap_or(Command::Serve(serve::Serve::default())) {
            Command::Serve(serve) => block_on(serve.run(load()?, &env)),
            Command::Stdio => block_on(stdio::run(load()?, &env)),
            Command::Check(check) => check.run(&load()?, &env),
            Command::Tools(tools) => block_on(tools.run(load()?)),
            Command::Call(call) => block_on(call.run(load()?)),
            Command::Pending(pending) => block_on(pending.run(load()?)),
            Command::Approve(approve) => block_on(approve.run(load()?)),
            Command::Deny(deny) => block_on(deny.run(load()?)),
            Command::Key(key) => block_on(key.run(load()?)),
            Command::Audit(audit) => block_on(audit.run(load()?)),
            Command::Tasks(tasks) => block_on(tasks.run(load()?)),
            Command::Send(send) => block_on(send.run(load()?)),
            Command::Repl(repl) => block_on(repl.run(load()?, &env)),
            Command::TestServer(server) => {
                // It needs no configuration, so it reads none.
                log::start("warn", self.log_format);
                block_on(server.run())
            }
            Command::Agent(agent) => {
                // Nor does the agent's machine have one.
                log::start(&agent::Agent::log_filter(&env)?, self.log_format);
                block_on(agent.run(self.data.as_deref(), &env))
            }
            Command::Mcp(mcp) => block_on(mcp.run(load()?, &env)),
            Command::Docs(docs) => docs.run(),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "nexus", &mut script);
                print(&String::from_utf8_lossy(&script))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Runs a command's future. What still runs when it ends is dropped, not waited for: a thread that
/// reads stdin would otherwise keep the program alive.
fn block_on(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// The libraries below us only warn, unless the operator says otherwise.
fn log_filter(loaded: &Loaded) -> String {
    match &loaded.config.environment.log_filter {
        Some(filter) => filter.as_ref().to_owned(),
        None => {
            let level = match loaded.config.server.log_level {
                LogLevel::Off => return "off".to_owned(),
                LogLevel::Error => "error",
                LogLevel::Warn => "warn",
                LogLevel::Info => "info",
                LogLevel::Debug => "debug",
                LogLevel::Trace => "trace",
            };
            // What takes long on purpose (proving a long record) is no news.
            format!("warn,sqlx=error,nexus={level},nexus_core={level},nexus_mcp={level},nexus_tools={level}")
        }
    }
}

/// Data for stdout. A reader that has seen enough is no failure.
fn print(text: &str) -> Result<()> {
    put(text).map(drop)
}

/// The same, for whoever has more to say: false when nobody reads it any more.
#[allow(clippy::print_stdout, reason = "the command line's one way to stdout")]
fn put(text: &str) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("writing to stdout"),
    }
}

/// Somebody else's words, without what could pass for another line or a colour.
fn one_line(words: &str) -> String {
    text::clean(words).replace(['\n', '\r', '\t', '\u{2028}', '\u{2029}'], " ")
}

/// Talk for stderr.
fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.trim_end().as_bytes()).and_then(|()| stderr.write_all(b"\n"));
}
