//! What can be typed: one table of commands, and a line read into one of them.

use std::iter::Peekable;

use serde_json::{Map, Value};
use thiserror::Error;

use super::words::{self, BadWords, Word};
use crate::config::faults::did_you_mean;

/// A command as help, hints and completion know it.
#[derive(Debug)]
pub struct Usage {
    /// The words it begins with.
    pub name: &'static str,
    pub takes: &'static str,
    pub about: &'static str,
}

/// All of them, in the order in which `/help` shows them.
pub const COMMANDS: [Usage; 14] = [
    usage("/tools", "[TOOL]", "The tools of the hub, or one of them with its arguments"),
    usage("/call", "TOOL key=value … | {json}", "Call a tool"),
    usage("/mcp", "", "The upstream servers and how they are"),
    usage(
        "/mcp connect",
        "NAME [--allow-all | --per-tool] [--shared | --private]",
        "Connect a server: all its tools this session, or each one confirmed; for all keys, or for yours alone",
    ),
    usage("/mcp disconnect", "NAME", "Disconnect a server"),
    usage("/mcp tools", "[SERVER]", "The tools of the upstream servers"),
    usage("/mcp logs", "NAME [LINES]", "What a server has said on stderr"),
    usage("/approve", "[CODE [once | session | each]]", "Allow a waiting call, or all writes of this session"),
    usage("/revoke", "", "Lock the writes of this session again"),
    usage("/audit", "[key=value …]", "The record, newest first; filters as of the tool get_audit_log"),
    usage("/json", "", "The last result as it came"),
    usage("/help", "", "This"),
    usage("/quit", "", "End; Ctrl-D does it too"),
    usage("/exit", "", "The same"),
];

const fn usage(name: &'static str, takes: &'static str, about: &'static str) -> Usage {
    Usage { name, takes, about }
}

/// What was typed.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Tools { tool: Option<String> },
    Call { tool: String, arguments: Given },
    Upstreams,
    Connect { server: String, consent: Option<Consent>, visibility: Option<Visibility> },
    Disconnect { server: String },
    UpstreamTools { server: Option<String> },
    UpstreamLog { server: String, lines: Option<u32> },
    Approve { code: Option<String>, scope: Option<String> },
    Revoke,
    Audit { filters: Vec<(String, String)> },
    LastAsJson,
    Help,
    Quit,
}

/// The arguments of a call, not yet typed.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    Json(Map<String, Value>),
    Pairs(Vec<(String, String)>),
}

/// How the question whether a server may be used is answered beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    AllowAll,
    PerTool,
}

impl Consent {
    /// The word of the hub's form.
    pub fn decision(self) -> &'static str {
        match self {
            Consent::AllowAll => "session",
            Consent::PerTool => "each",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Shared,
    Private,
}

impl Visibility {
    pub fn as_str(self) -> &'static str {
        match self {
            Visibility::Shared => "shared",
            Visibility::Private => "private",
        }
    }
}

#[derive(Debug, Error, PartialEq)]
pub enum Mistake {
    #[error(transparent)]
    Words(#[from] BadWords),
    #[error("commands begin with a slash: /help lists them, `/call TOOL …` calls a tool")]
    NoSlash,
    #[error("there is no command `{0}`; {hint}", hint = .1.as_deref().unwrap_or("/help lists them"))]
    Unknown(String, Option<String>),
    #[error("what is missing: {name} {takes}", name = .0.name, takes = .0.takes)]
    Missing(&'static Usage),
    #[error("`{0}` is one word too many: {name} {takes}", name = .1.name, takes = .1.takes)]
    TooMuch(String, &'static Usage),
    #[error("`{0}` and `{1}` exclude each other")]
    Both(&'static str, String),
    #[error("the arguments are not JSON: {0}")]
    NotJson(String),
    #[error("the arguments must be an object, as in {{\"path\": \"/\"}}")]
    NotAnObject,
    #[error("`{0}` is not key=value; or give all arguments as one JSON object")]
    NotAPair(String),
    #[error("`{0}` is not a number of lines")]
    NotANumber(String),
}

impl PartialEq for Usage {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Reads a line. None: there is nothing to do.
pub fn parse(line: &str) -> Result<Option<Command>, Mistake> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if !line.starts_with('/') {
        return Err(Mistake::NoSlash);
    }
    let (first, rest) = cut_word(line);
    let command = match first {
        "/mcp" => upstreams(rest)?,
        "/tools" => Command::Tools { tool: Words::of(rest, "/tools")?.last()? },
        "/call" => call(rest)?,
        "/approve" => {
            let mut words = Words::of(rest, "/approve")?;
            Command::Approve { code: words.next(), scope: words.last()? }
        }
        "/revoke" => Words::of(rest, "/revoke")?.end(Command::Revoke)?,
        "/audit" => Command::Audit { filters: pairs(rest)? },
        "/json" => Words::of(rest, "/json")?.end(Command::LastAsJson)?,
        "/help" | "/?" => Command::Help,
        "/quit" | "/exit" => Command::Quit,
        other => return Err(unknown(other)),
    };
    Ok(Some(command))
}

fn upstreams(rest: &str) -> Result<Command, Mistake> {
    let (first, rest) = cut_word(rest);
    Ok(match first {
        "" | "list" => Words::of(rest, "/mcp")?.end(Command::Upstreams)?,
        "connect" => connect(rest)?,
        "disconnect" => {
            let mut words = Words::of(rest, "/mcp disconnect")?;
            let server = words.need()?;
            words.end(Command::Disconnect { server })?
        }
        "tools" => Command::UpstreamTools { server: Words::of(rest, "/mcp tools")?.last()? },
        "logs" => {
            let mut words = Words::of(rest, "/mcp logs")?;
            let server = words.need()?;
            let lines = words.last()?.map(|lines| lines.parse().map_err(|_| Mistake::NotANumber(lines)));
            Command::UpstreamLog { server, lines: lines.transpose()? }
        }
        other => return Err(unknown(&format!("/mcp {other}"))),
    })
}

fn connect(rest: &str) -> Result<Command, Mistake> {
    let mut words = Words::of(rest, "/mcp connect")?;
    let (mut server, mut consent, mut visibility) = (None, None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--allow-all" => choose(&mut consent, Consent::AllowAll, "--per-tool", word)?,
            "--per-tool" => choose(&mut consent, Consent::PerTool, "--allow-all", word)?,
            "--shared" => choose(&mut visibility, Visibility::Shared, "--private", word)?,
            "--private" => choose(&mut visibility, Visibility::Private, "--shared", word)?,
            _ if server.is_none() && !word.starts_with("--") => server = Some(word),
            _ => return Err(Mistake::TooMuch(word, words.usage)),
        }
    }
    let server = server.ok_or(Mistake::Missing(words.usage))?;
    Ok(Command::Connect { server, consent, visibility })
}

fn choose<T: PartialEq>(chosen: &mut Option<T>, choice: T, other: &'static str, word: String) -> Result<(), Mistake> {
    match chosen.replace(choice) {
        before if before.is_none() || before == *chosen => Ok(()),
        _ => Err(Mistake::Both(other, word)),
    }
}

fn call(rest: &str) -> Result<Command, Mistake> {
    let (tool, rest) = cut_word(rest);
    if tool.is_empty() {
        return Err(Mistake::Missing(usage_of("/call")));
    }
    let arguments = if rest.starts_with(['{', '[', '"']) {
        match serde_json::from_str(rest) {
            Ok(Value::Object(fields)) => Given::Json(fields),
            Ok(_) => return Err(Mistake::NotAnObject),
            Err(error) => return Err(Mistake::NotJson(error.to_string())),
        }
    } else {
        Given::Pairs(pairs(rest)?)
    };
    Ok(Command::Call { tool: tool.to_owned(), arguments })
}

fn pairs(rest: &str) -> Result<Vec<(String, String)>, Mistake> {
    let pair = |word: Word| match word.text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Mistake::NotAPair(word.text)),
    };
    words::split(rest)?.into_iter().map(pair).collect()
}

fn unknown(typed: &str) -> Mistake {
    let meant = did_you_mean(typed, COMMANDS.iter().map(|usage| usage.name));
    Mistake::Unknown(typed.to_owned(), meant)
}

/// The first word and what comes behind it.
fn cut_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

pub fn usage_of(name: &str) -> &'static Usage {
    // Every caller names one of the table; a test reads all of them.
    COMMANDS.iter().find(|usage| usage.name == name).unwrap_or(&COMMANDS[0])
}

/// The words behind a command, taken one by one.
struct Words {
    usage: &'static Usage,
    rest: Peekable<std::vec::IntoIter<Word>>,
}

impl Words {
    fn of(rest: &str, command: &str) -> Result<Self, Mistake> {
        Ok(Self { usage: usage_of(command), rest: words::split(rest)?.into_iter().peekable() })
    }

    fn next(&mut self) -> Option<String> {
        self.rest.next().map(|word| word.text)
    }

    fn need(&mut self) -> Result<String, Mistake> {
        self.next().ok_or(Mistake::Missing(self.usage))
    }

    /// One more or none, and no other.
    fn last(mut self) -> Result<Option<String>, Mistake> {
        let last = self.next();
        self.end(last)
    }

    fn end<T>(mut self, done: T) -> Result<T, Mistake> {
        match self.next() {
            None => Ok(done),
            Some(word) => Err(Mistake::TooMuch(word, self.usage)),
        }
    }
}

#[cfg(test)]
mod tests;
