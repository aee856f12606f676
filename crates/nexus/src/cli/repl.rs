//! `nexus repl`: drives a hub by hand, with completion, history and questions; or from a script on stdin.

mod command;
mod complete;
mod editor;
mod files;
mod known;
mod schema;
mod session;
mod show;
pub mod table;
mod typed;
mod words;

use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use tokio::io::{AsyncBufReadExt, BufReader};

use nexus_core::redact;

use self::command::parse;
use self::editor::{Editor, Typed};
use self::session::{Manner, Outcome, Session};
use self::show::{Page, Paint};
use super::hub::{Asks, Reach};
use super::say;
use crate::config::{Env, Loaded};

/// Characters of one piece of a result that a screen is given. A pipe gets all of it.
const LONGEST_SHOWN: usize = 100_000;

#[derive(Debug, Args)]
pub struct Repl {
    /// Another hub than the one of the data folder, as http://hub.lan:8765/mcp
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Its key [default: MCP_API_KEY, or the one kept in the data folder]
    #[arg(long, value_name = "KEY")]
    key: Option<GivenKey>,
    /// Where images and other files of results are saved [default: the working folder]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    save: PathBuf,
}

/// A key from the command line, which is not printed again.
#[derive(Clone)]
struct GivenKey(String);

impl From<&str> for GivenKey {
    fn from(key: &str) -> Self {
        redact::learn([key]);
        Self(key.to_owned())
    }
}

impl fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenKey(…)")
    }
}

impl Repl {
    pub async fn run(self, loaded: Loaded, env: &Env) -> Result<ExitCode> {
        let reach = Reach::find(&loaded, self.url.as_deref(), self.key.as_ref().map(|key| key.0.as_str()))?;
        let by_hand = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let on_screen = std::io::stdout().is_terminal();
        let colours = on_screen && env.variable("NO_COLOR").is_none_or(|value| value.is_empty());
        let manner = Manner {
            asks: if by_hand { Asks::Somebody } else { Asks::Nobody },
            page: Page {
                paint: if colours { Paint::Colours } else { Paint::Plain },
                longest: if on_screen { LONGEST_SHOWN } else { usize::MAX },
            },
            save: self.save,
        };
        let paint = manner.page.paint;
        let mut session = Session::open(reach, manner).await?;
        let code = if by_hand {
            say(&session.greeting());
            let editor = Editor::new(&session.known, &loaded.data, paint, prompt(self.url.as_deref()));
            by_person(&mut session, editor).await?
        } else {
            by_script(&mut session).await?
        };
        session.close().await;
        Ok(code)
    }
}

/// `nexus> `, or with the host of a hub elsewhere.
fn prompt(url: Option<&str>) -> String {
    let host = url.and_then(|url| url.split_once("://")).map(|(_, rest)| rest.split(['/', ':']).next().unwrap_or(rest));
    match host {
        Some(host) => format!("nexus {host}> "),
        None => "nexus> ".to_owned(),
    }
}

/// Line by line until the person has enough. A mistake is told, and the next line may be better.
async fn by_person(session: &mut Session, mut editor: Editor) -> Result<ExitCode> {
    loop {
        let turn = session.keyboard.turn().await;
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let typed = editor.read();
            (editor, typed)
        });
        let typed;
        (editor, typed) = reading.await.context("the line editor broke")?;
        match typed? {
            Typed::End => return Ok(ExitCode::SUCCESS),
            Typed::Nothing => {}
            Typed::Line(line) => match run(session, &line).await {
                Ok(Outcome::Quit) => return Ok(ExitCode::SUCCESS),
                Ok(Outcome::Done | Outcome::Failed | Outcome::Cancelled) => {}
                Err(error) => say(&format!("{error:#}")),
            },
        }
    }
}

/// Line by line until the end or the first that fails.
async fn by_script(session: &mut Session) -> Result<ExitCode> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut number = 0;
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line.context("reading stdin")?,
            () = session.interrupted() => return Ok(ExitCode::FAILURE),
        };
        let Some(line) = line else { return Ok(ExitCode::SUCCESS) };
        number += 1;
        match run(session, &line).await {
            Ok(Outcome::Done) => {}
            Ok(Outcome::Quit) => return Ok(ExitCode::SUCCESS),
            Ok(Outcome::Failed | Outcome::Cancelled) => {
                say(&format!("line {number} failed; what comes after it was not run"));
                return Ok(ExitCode::FAILURE);
            }
            Err(error) => {
                say(&format!("line {number}: {error:#}"));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}

async fn run(session: &mut Session, line: &str) -> Result<Outcome> {
    match parse(line)? {
        Some(command) => session.run(command).await,
        None => Ok(Outcome::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::prompt;

    #[test]
    fn a_hub_elsewhere_is_named_in_the_prompt() {
        assert_eq!(prompt(None), "nexus> ");
        assert_eq!(prompt(Some("http://hub.lan:8765/mcp")), "nexus hub.lan> ");
        assert_eq!(prompt(Some("https://hub.example/nexus/mcp")), "nexus hub.example> ");
    }
}
