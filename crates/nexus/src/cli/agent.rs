//! `nexus agent`: serves a target from the agent's machine, and speaks with the operator from inside a task.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use nexus_core::redact;
use nexus_core::tasks::Tasks;

use super::serve::Signals;
use super::{hub, print};
use crate::config::env::EnvVar;
use crate::config::section::Value;
use crate::config::values::measure::Period;
use crate::config::{self, Env, Faults};
use crate::worker::socket::{self, Order};
use crate::worker::{Command, Input, Place, Settings, Worker};

/// Shortest and longest; the hub gives no other leases.
const LEASE: [&str; 2] = ["10s", "1h"];
const GRACE: [&str; 2] = ["1ms", "10m"];

/// How long what is left of the connections may take at the end.
const GOODBYE: Duration = Duration::from_secs(1);

/// What `--help` says beyond the options.
const MORE: &str = "\
Takes the tasks of a target from the hub, runs the command for each, and sends what it says as updates.

The task's text is the command's stdin, or stands in the place of {} in its arguments. A text that begins with a dash
may look like an option there: stdin is safer. Exit code 0 completes the task, everything else fails it; the last lines
of the output come with the end. A task that is cancelled, or that a STOP or its deadline ends, is stopped with all that
it has started: SIGINT, then SIGTERM, then SIGKILL. What a command leaves running in its process group ends with it.

Inside the command NEXUS_TASK is the task's id, `nexus agent ask` asks the operator and `nexus agent say` sends an
update.

The key is read from NEXUS_AGENT_KEY, or from the file that NEXUS_AGENT_KEY_FILE names. The command does not get it in
its environment; what runs as the same user could read it all the same.
The hub may come and go: the worker connects again for ever, and a command that runs meanwhile runs on. On SIGINT or
SIGTERM the worker takes no more tasks, stops those that run and reports them as failed; a second signal ends it at once.

Examples:
  nexus agent --target homelab -- claude -p
  nexus agent --target homelab --url http://hub.lan:8765 -- ./work.sh --task={}";

/// Serves a target, or speaks from inside a task.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "nexus agent --target TARGET [OPTIONS] -- COMMAND [ARGUMENT]...\n       \
                      nexus agent ask QUESTION    (inside a task)\n       nexus agent say WORDS       (inside a task)",
    after_long_help = MORE
)]
pub struct Agent {
    #[command(subcommand)]
    inside: Option<Inside>,

    /// The target whose tasks are taken
    #[arg(long, required = true)]
    target: Option<String>,
    /// The hub [default: the one that serves the data folder, else http://127.0.0.1:8765]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Tasks at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    parallel: u8,
    /// Give the text to stdin also where an argument holds {}
    #[arg(long)]
    stdin: bool,
    /// Folder in which the command runs [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Time between SIGINT and SIGTERM, and between SIGTERM and SIGKILL
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = |text: &str| time(text, GRACE))]
    grace: Duration,
    /// For how long the hub keeps a task for a worker that it does not hear
    #[arg(long, hide = true, default_value = "90s", value_name = "TIME", value_parser = |text: &str| time(text, LEASE))]
    lease: Duration,
    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Inside {
    /// Inside a task: ask the operator, wait for the answer and print it
    Ask {
        /// What to ask
        question: String,
    },
    /// Inside a task: send an update
    Say {
        /// What to say
        words: String,
    },
}

impl Agent {
    /// Which log lines are wanted. No configuration file is read: the agent's machine needs none.
    pub fn log_filter(env: &Env) -> Result<String, Faults> {
        let mut faults = Faults::default();
        let filter: Option<config::check::LogFilter> = env.value(EnvVar::NexusLog, &mut faults);
        match filter {
            Some(filter) => Ok(filter.as_ref().to_owned()),
            None if faults.is_empty() => Ok("warn,nexus=info,nexus_mcp=error".to_owned()),
            None => Err(faults),
        }
    }

    pub async fn run(self, data: Option<&Path>, env: &Env) -> Result<ExitCode> {
        match self.inside {
            Some(Inside::Ask { question }) => {
                let answer = speak(env, &Order::Ask(question)).await?;
                print(&format!("{}\n", answer.trim_end()))?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Inside::Say { words }) => {
                speak(env, &Order::Say(words)).await?;
                Ok(ExitCode::SUCCESS)
            }
            None => self.serve(data, env).await,
        }
    }

    async fn serve(self, data: Option<&Path>, env: &Env) -> Result<ExitCode> {
        let settings = self.settings(data, env)?;
        let (tasks, stopping) = (Tasks::new(), CancellationToken::new());
        let mut signals = Signals::new()?;
        let worker = Worker::new(settings, &tasks, stopping.clone())?;
        let mut working = std::pin::pin!(worker.run(&tasks));
        let ended = tokio::select! {
            ended = &mut working => ended,
            () = signals.any() => {
                info!("ending: what runs is stopped; a second signal ends at once");
                stopping.cancel();
                tokio::select! {
                    ended = &mut working => ended,
                    () = signals.any() => {
                        warn!("ended at once");
                        return Ok(ExitCode::FAILURE);
                    }
                }
            }
        };
        tasks.finish(GOODBYE).await;
        ended.map(|()| ExitCode::SUCCESS)
    }

    fn settings(self, data: Option<&Path>, env: &Env) -> Result<Settings> {
        let mut faults = Faults::default();
        let key = env.secret(EnvVar::NexusAgentKey, &mut faults);
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let Some(key) = key else {
            bail!(
                "a worker needs a key: NEXUS_AGENT_KEY, or NEXUS_AGENT_KEY_FILE; `nexus key new NAME --target TARGET` \
                 makes one at the hub"
            );
        };
        redact::learn([key.expose()]);
        let place = match &self.url {
            Some(url) => Place::Given(hub::whole(url)?),
            None => config::data_folder(data, env).map_or_else(Place::usual, Place::Folder),
        };
        let mut words = self.command.into_iter();
        let program = words.next().context("no command was given")?;
        let command = Command {
            program,
            args: words.collect(),
            input: if self.stdin { Input::Stdin } else { Input::Argument },
            cwd: self.cwd,
            env: env.for_commands(),
            grace: self.grace,
        };
        command.look().with_context(|| format!("`{}` cannot be run", command.program.display()))?;
        Ok(Settings {
            target: self.target.unwrap_or_default(),
            place,
            key,
            parallel: self.parallel.into(),
            lease: self.lease,
            runtime: env.variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute()),
            command,
        })
    }
}

/// A time as it is written in the configuration, within bounds.
fn time(text: &str, [least, most]: [&str; 2]) -> Result<Duration, String> {
    let parse = |text: &str| Period::parse(text).map_err(|problem| problem.what().to_owned());
    let (time, least_time, most_time) = (parse(text)?, parse(least)?, parse(most)?);
    match (least_time..=most_time).contains(&time) {
        true => Ok(time.0),
        false => Err(format!("it must be between {least} and {most}")),
    }
}

async fn speak(env: &Env, order: &Order) -> Result<String> {
    let Some(path) = env.path(EnvVar::NexusAgentSocket, &mut Faults::default()) else {
        bail!("NEXUS_AGENT_SOCKET is not set: this works inside a command that `nexus agent` has started");
    };
    socket::ask(&path, order).await
}
