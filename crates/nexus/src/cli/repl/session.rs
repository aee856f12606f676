//! One sitting at the REPL: the connection to the hub, and what each command does with it.

mod results;
mod upstreams;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::sleep;

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;
use nexus_core::text;
use nexus_mcp::upstream::client::{Changed, Client, Host};
use nexus_mcp::upstream::error::{TransportError, UpstreamError};

use super::command::{COMMANDS, Command, Consent, Given};
use super::known::Shared;
use super::show::{Page, one_line};
use super::{table, typed};
use crate::cli::hub::{self, Asks, Reach};
use crate::cli::person::{Keyboard, Person};
use crate::cli::{print, say};
use crate::config::faults::did_you_mean;

/// A call that is not done by then is shown to be under way.
const LONG: Duration = Duration::from_millis(400);

/// Rows of the record where nobody says how many.
const AUDIT_ROWS: u32 = 20;

/// How it looks, and who is there.
#[derive(Clone, Debug)]
pub struct Manner {
    pub asks: Asks,
    pub page: Page,
    /// Where images go.
    pub save: PathBuf,
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The tool or the hub said no; it has been told.
    Failed,
    Cancelled,
    Quit,
}

#[derive(Debug)]
pub struct Session {
    reach: Reach,
    client: Client,
    tasks: Tasks,
    pub known: Shared,
    pub keyboard: Keyboard,
    manner: Manner,
    changes: Arc<Changes>,
    interrupt: Signal,
    last: Option<Value>,
    /// The last command failed: what is known of the hub may no longer be so.
    may_differ: bool,
}

/// Hears that the tools of the hub are no longer what they were.
#[derive(Debug, Default)]
struct Changes(Notify);

impl Host for Changes {
    fn changed(&self, what: Changed) {
        if what == Changed::Tools {
            self.0.notify_one();
        }
    }
}

impl Session {
    pub async fn open(reach: Reach, manner: Manner) -> Result<Self> {
        let (tasks, changes) = (Tasks::new(), Arc::<Changes>::default());
        let client = reach.connect(manner.asks, era(manner.asks), &tasks, Some(changes.clone())).await?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
        let (known, keyboard) = (Shared::default(), Keyboard::new());
        let session =
            Self { reach, client, tasks, known, keyboard, manner, changes, interrupt, last: None, may_differ: false };
        session.learn().await?;
        if session.manner.asks == Asks::Somebody {
            session.learn_servers().await;
        }
        session.follow();
        Ok(session)
    }

    /// In a few words: which hub this is.
    pub fn greeting(&self) -> String {
        let (server, tools) = (self.client.server(), self.known.get().tools.len());
        let (name, version) = (one_line(&server.name, 60), one_line(&server.version, 40));
        format!("{name} {version} at {}, {tools} tools. /help lists the commands, Tab completes.", self.reach.url)
    }

    pub async fn close(self) {
        self.client.close().await;
        self.tasks.finish(Duration::from_secs(1)).await;
    }

    /// Ctrl-C outside of any call.
    pub async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }

    pub async fn run(&mut self, command: Command) -> Result<Outcome> {
        if command == Command::Quit {
            return Ok(Outcome::Quit);
        }
        self.reconnect_if_lost().await?;
        let outcome = match self.look_and_obey(command.clone()).await {
            // The hub was started anew, and has not even looked at it.
            Err(error) if is_session_lost(&error) => {
                self.reconnect().await?;
                self.obey(command).await
            }
            outcome => outcome,
        };
        self.may_differ = outcome.is_err();
        outcome
    }

    async fn look_and_obey(&mut self, command: Command) -> Result<Outcome> {
        // The hub may be another by now than the one that did not answer.
        if self.may_differ {
            self.learn().await?;
        }
        self.obey(command).await
    }

    async fn obey(&mut self, command: Command) -> Result<Outcome> {
        match command {
            Command::Tools { tool } => self.tools(tool.as_deref()).await,
            Command::Call { tool, arguments } => self.call_and_show(&tool, arguments).await,
            Command::Upstreams => self.upstreams().await,
            Command::Connect { server, consent, visibility } => self.connect(&server, consent, visibility).await,
            Command::Disconnect { server } => {
                let outcome = self.call_plainly("disconnect_upstream", json!({ "name": server })).await?;
                self.learn().await?;
                Ok(outcome)
            }
            Command::UpstreamTools { server } => self.upstream_tools(server.as_deref()).await,
            Command::UpstreamLog { server, lines } => {
                let mut arguments = json!({ "name": server });
                if let Some(lines) = lines {
                    arguments["lines"] = lines.into();
                }
                self.call_plainly("read_upstream_log", arguments).await
            }
            Command::Approve { code, scope } => {
                let given = [("code", code), ("scope", scope)].into_iter();
                let given = given.filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))));
                self.call_plainly("approve_writes", Value::Object(given.collect())).await
            }
            Command::Revoke => self.call_plainly("revoke_writes", json!({})).await,
            Command::Audit { filters } => self.audit(filters).await,
            Command::LastAsJson => self.last_as_json(),
            Command::Help => help(),
            Command::Quit => Ok(Outcome::Quit),
        }
    }

    async fn reconnect_if_lost(&mut self) -> Result<()> {
        if self.client.is_connected() { Ok(()) } else { self.reconnect().await }
    }

    async fn reconnect(&mut self) -> Result<()> {
        let asks = self.manner.asks;
        self.client = self.reach.connect(asks, era(asks), &self.tasks, Some(self.changes.clone())).await?;
        say("the connection was lost; this is a new one, in which nothing has been allowed yet");
        self.learn().await?;
        self.follow();
        Ok(())
    }

    /// Looks again at what the hub has, for completion.
    async fn learn(&self) -> Result<()> {
        learn(&self.client, &self.known).await
    }

    /// Looks again whenever the hub says that its tools have changed, as long as this connection lasts.
    fn follow(&self) {
        if self.manner.asks == Asks::Nobody {
            return;
        }
        let (client, known, changes) = (self.client.clone(), self.known.clone(), self.changes.clone());
        let stop = self.tasks.stopping();
        self.tasks.spawn("following the tools", async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = client.closed() => return,
                    () = changes.0.notified() => drop(learn(&client, &known).await),
                }
            }
        });
    }

    /// One call, with its bar, its questions and Ctrl-C. None: it was cancelled.
    async fn call(&mut self, tool: &str, arguments: &Value, consent: Option<Consent>) -> Result<Option<Value>> {
        let watches = self.manner.asks == Asks::Somebody;
        let mut person = Person::new(self.manner.asks, watches, self.keyboard.clone());
        person.consent = consent.map(Consent::decision);
        let person = Arc::new(person);
        let result = {
            let mut call = pin!(hub::call(&self.client, tool, arguments, person.clone()));
            let mut long = pin!(sleep(LONG));
            let mut is_long = false;
            loop {
                tokio::select! {
                    result = &mut call => break result.map(Some),
                    _ = self.interrupt.recv() => break Ok(None),
                    () = &mut long, if !is_long => {
                        is_long = true;
                        person.waits();
                    }
                }
            }
        };
        person.sees_the_end();
        // Whoever was still reading an answer stops now; the next one to read waits for that.
        drop(person);
        drop(self.keyboard.turn().await);
        if let Ok(None) = &result {
            say("cancelled; whether anything had happened by then, the hub's record knows");
        }
        result
    }

    async fn call_and_show(&mut self, tool: &str, given: Given) -> Result<Outcome> {
        if self.known.get().tool(tool).is_none()
            && let Some(why) = self.held_back(tool).await
        {
            bail!(why);
        }
        let arguments = match given {
            Given::Json(fields) => Value::Object(fields),
            Given::Pairs(pairs) => Value::Object(self.typed(tool, &pairs).await?),
        };
        self.call_plainly(tool, arguments).await
    }

    async fn call_plainly(&mut self, tool: &str, arguments: Value) -> Result<Outcome> {
        match self.call(tool, &arguments, None).await? {
            None => Ok(Outcome::Cancelled),
            Some(result) => self.show(tool, result).await,
        }
    }

    /// What was typed as the tool's schema wants it.
    async fn typed(&self, tool: &str, pairs: &[(String, String)]) -> Result<Map<String, Value>> {
        let definition = self.definition(tool).await?;
        let usage = || format!("`/tools {tool}` shows its arguments");
        typed::arguments(&definition["inputSchema"], pairs).with_context(usage)
    }

    /// A tool as the hub lists it. What is not known may have come a moment ago.
    async fn definition(&self, tool: &str) -> Result<Arc<Value>> {
        if self.known.get().tool(tool).is_none() {
            self.learn().await?;
        }
        let known = self.known.get();
        if let Some(tool) = known.tool(tool) {
            return Ok(tool.definition.clone());
        }
        if let Some(why) = self.held_back(tool).await {
            bail!(why);
        }
        let meant = did_you_mean(tool, known.tools.iter().map(|tool| tool.name.as_str()));
        bail!("the hub has no tool `{tool}`; {}", meant.unwrap_or_else(|| "/tools lists all".to_owned()))
    }

    async fn tools(&self, tool: Option<&str>) -> Result<Outcome> {
        match tool {
            Some(tool) => {
                let definition = self.definition(tool).await?;
                print(&table::of_tool(&definition))?;
            }
            None => {
                self.learn().await?;
                print(&format!("{}\n", table::of_tools(self.known.get().tools.iter().map(|tool| &*tool.definition))))?;
            }
        }
        Ok(Outcome::Done)
    }

    async fn audit(&mut self, filters: Vec<(String, String)>) -> Result<Outcome> {
        let mut arguments = self.typed("get_audit_log", &filters).await?;
        arguments.entry("limit").or_insert_with(|| AUDIT_ROWS.into());
        let Some(result) = self.call("get_audit_log", &Value::Object(arguments), None).await? else {
            return Ok(Outcome::Cancelled);
        };
        match result["structuredContent"]["rows"].as_array() {
            Some(rows) if result["isError"] != true => {
                print(&format!("{}\n", table::of_audit(rows)))?;
                if let Some(cursor) = result["structuredContent"]["cursor"].as_str() {
                    say(&format!("older rows: /audit cursor={}", one_line(cursor, 200)));
                }
                self.last = Some(result);
                Ok(Outcome::Done)
            }
            _ => self.show("get_audit_log", result).await,
        }
    }

    fn last_as_json(&self) -> Result<Outcome> {
        let last = self.last.as_ref().ok_or_else(|| anyhow!("nothing was called yet"))?;
        print(&format!("{}\n", text::clean(&serde_json::to_string_pretty(last)?)))?;
        Ok(Outcome::Done)
    }
}

async fn learn(client: &Client, known: &Shared) -> Result<()> {
    let tools = hub::tools(client).await?;
    known.change(|known| known.listed(tools));
    Ok(())
}

/// Somebody who is there can be asked by old servers only in the old era. A script has none to ask, and goes on in
/// the session in which the last one was allowed something.
fn era(asks: Asks) -> Era {
    match asks {
        Asks::Somebody => Era::Legacy,
        Asks::Nobody => Era::Modern,
    }
}

fn is_session_lost(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(UpstreamError::Transport(TransportError::SessionLost)))
}

fn help() -> Result<Outcome> {
    let rows = COMMANDS.iter().map(|usage| vec![format!("{} {}", usage.name, usage.takes), usage.about.to_owned()]);
    print(&format!("{}\n", table::table(["command", "what it does"], rows)))?;
    Ok(Outcome::Done)
}
