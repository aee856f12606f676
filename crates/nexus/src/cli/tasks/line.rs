//! The line to the running hub: its tools about tasks, called by the operator.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cli::say;
use crate::config::Loaded;
use crate::control::{self, Answer, Order};

/// Seconds that one call waits for updates. The next one follows at once.
const WAIT: u64 = 25;
/// Between two looks for a hub that is away.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// Updates asked for at once.
const PAGE: u64 = 100;
/// A hub that ends refuses a few calls before it is gone. One that goes on doing so means it.
const MOST_REFUSALS: u32 = 20;

/// How calls fare when the hub goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Fails,
    /// It was there, and comes back.
    IsWaitedFor,
}

#[derive(Debug)]
pub struct Line<'a> {
    loaded: &'a Loaded,
    away: Away,
}

/// Which updates are followed.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    pub cursor: String,
    pub target: Option<String>,
    pub task: Option<String>,
}

/// Some updates, as the hub gave them.
#[derive(Debug, Deserialize)]
pub struct Page {
    pub updates: Vec<Value>,
    next_cursor: String,
    pub more: bool,
}

impl<'a> Line<'a> {
    pub fn to(loaded: &'a Loaded) -> Self {
        Self { loaded, away: Away::Fails }
    }

    /// From now on a hub that ends is waited for.
    pub fn keep(&mut self) {
        self.away = Away::IsWaitedFor;
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        let Value::Object(arguments) = arguments else { bail!("arguments are an object") };
        let order = Order::Tool { tool: tool.to_owned(), arguments };
        let (mut told, mut refusals) = (false, 0);
        loop {
            let trouble = match control::ask(&self.loaded.data, &order).await {
                Ok(Answer::Replied(reply)) => {
                    if told {
                        say("The hub is back.");
                    }
                    return Ok(reply);
                }
                Ok(Answer::Failed(why)) => {
                    refusals += 1;
                    let why = anyhow::Error::msg(for_a_terminal(&why));
                    if refusals > MOST_REFUSALS {
                        return Err(why);
                    }
                    why
                }
                Ok(_) => bail!("the running hub answers something else"),
                Err(error) if control::is_dead(&error) && self.away == Away::Fails => {
                    bail!(
                        "no hub is running on the data folder {}; `nexus serve` starts one",
                        self.loaded.data.display()
                    )
                }
                Err(error) => error,
            };
            if self.away == Away::Fails {
                return Err(trouble);
            }
            if !std::mem::replace(&mut told, true) {
                say(&format!("The hub is away, and is waited for: {}", crate::cli::one_line(&format!("{trouble:#}"))));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    pub async fn get<T: DeserializeOwned>(&self, tool: &str, arguments: Value) -> Result<T> {
        let reply = self.call(tool, arguments).await?;
        serde_json::from_value(reply).with_context(|| format!("the hub's reply to {tool} makes no sense"))
    }

    /// Behind the last update that there is now.
    pub async fn end(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Status {
            total_updates: i64,
        }
        let status: Status = self.get("queue_status", json!({})).await?;
        Ok(status.total_updates.to_string())
    }

    /// The next updates, once there are some or a while has passed.
    pub async fn next(&self, followed: &mut Followed, wait: Wait) -> Result<Page> {
        let mut arguments = json!({ "cursor": followed.cursor, "limit": PAGE });
        if wait == Wait::AWhile {
            arguments["wait_seconds"] = WAIT.into();
        }
        for (name, value) in [("target", &followed.target), ("task", &followed.task)] {
            if let Some(value) = value {
                arguments[name] = value.as_str().into();
            }
        }
        let page: Page = self.get("pull_updates", arguments).await?;
        followed.cursor.clone_from(&page.next_cursor);
        Ok(page)
    }
}

/// Hints name the tools of a model; here they are commands.
fn for_a_terminal(words: &str) -> String {
    let commands = [("`list_tasks`", "`nexus tasks`"), ("`get_task`", "`nexus tasks show`")];
    commands.iter().fold(words.to_owned(), |words, (tool, command)| words.replace(tool, command))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    AWhile,
}
