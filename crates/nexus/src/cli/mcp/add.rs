//! `nexus mcp add` and `nexus mcp remove`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::file::{self, McpFile, Whose};
use super::{one_line, say};
use crate::config::mcp::Places;
use crate::config::{Env, Loaded};
use crate::control::{self, Order};
use crate::hold;
use crate::upstreams::orders::McpOrder;

#[derive(Debug, Args)]
#[command(override_usage = "nexus mcp add [OPTIONS] NAME (URL | -- COMMAND [ARGS]...)")]
pub struct Add {
    /// What it is called here
    name: String,
    /// Address of the server; or, behind `--`, the command that starts it
    #[arg(conflicts_with = "command")]
    url: Option<String>,
    /// Variable of the command; `${NAME}` is filled in when it starts
    #[arg(long, short, value_name = "NAME=VALUE", requires = "command")]
    env: Vec<String>,
    /// Header for the address; `${NAME}` is filled in when it is called
    #[arg(long, short = 'H', value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// stdio, http or sse, where it cannot be guessed
    #[arg(long, short)]
    transport: Option<String>,
    /// Start it when it is first needed
    #[arg(long)]
    lazy: bool,
    /// Write to ./.nexus/mcp.json instead
    #[arg(long)]
    project: bool,
    /// The command and its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Remove {
    /// What it is called here
    name: String,
    /// Take it out of ./.nexus/mcp.json instead
    #[arg(long)]
    project: bool,
}

impl Add {
    pub async fn run(self, loaded: &Loaded, env: &Env) -> Result<ExitCode> {
        let whose = whose(self.project);
        let places = Places::of(&loaded.config, env)?;
        let mut file = McpFile::open(&places, whose)?;
        let name = self.name.clone();
        let (place, shown) = (file.path.display().to_string(), one_line(&name));
        if file.has(&name)? {
            bail!("there is a server `{shown}` in {place} already; `nexus mcp remove {shown}` takes it out");
        }
        file.put(&name, &self.entry()?)?;
        for warning in file::check(&file, &name, env)? {
            say(&warning);
        }
        file.save()?;
        let elsewhere = match whose {
            Whose::Home => None,
            Whose::Project => works_elsewhere(loaded, &places.here).await,
        };
        match elsewhere {
            Some(folder) => say(&format!(
                "`{shown}` is in {place}. The running hub does not read it: it works in {}. A hub that is started in this \
                 folder, or below it, does; without --project it is for all hubs of yours.",
                one_line(&folder)
            )),
            None => say(&format!("`{shown}` is in {place}. A running hub notices it within a second.")),
        }
        if whose == Whose::Project {
            say(&format!("It waits for a yes: `nexus mcp connect {shown}`."));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn entry(self) -> Result<Value> {
        let mut entry = Map::new();
        match (self.url, self.command.split_first()) {
            (Some(url), _) => {
                if !url.contains("://") && !url.starts_with("${") {
                    bail!("`{}` is no address; a command stands behind `--`", one_line(&url));
                }
                entry.insert("url".to_owned(), json!(url));
            }
            (None, Some((program, args))) => {
                entry.insert("command".to_owned(), json!(program));
                if !args.is_empty() {
                    entry.insert("args".to_owned(), json!(args));
                }
            }
            (None, None) => {
                let name = one_line(&self.name);
                bail!(
                    "`{name}` wants an address or a command: `nexus mcp add {name} https://…/mcp`, or \
                     `nexus mcp add {name} -- COMMAND ARGS…`"
                );
            }
        }
        let env = pairs(&self.env, '=')?;
        let headers = pairs(&self.header, ':')?;
        for (field, pairs) in [("env", env), ("headers", headers)] {
            if !pairs.is_empty() {
                entry.insert(field.to_owned(), Value::Object(pairs));
            }
        }
        if let Some(transport) = self.transport {
            entry.insert("transport".to_owned(), json!(transport));
        }
        if self.lazy {
            entry.insert("lazy".to_owned(), json!(true));
        }
        Ok(Value::Object(entry))
    }
}

impl Remove {
    pub async fn run(self, loaded: &Loaded, env: &Env) -> Result<ExitCode> {
        let places = Places::of(&loaded.config, env)?;
        let mut file = McpFile::open(&places, whose(self.project))?;
        let (place, shown) = (file.path.display().to_string(), one_line(&self.name));
        if !file.take(&self.name)? {
            let reading = crate::config::mcp::read(&places, &[], env);
            match reading.servers.get(&self.name) {
                Some(server) => bail!("`{shown}` is not in {place} but in {}", server.file.display()),
                None => bail!("there is no server `{shown}` in {place}"),
            }
        }
        file.save()?;
        if hold::holder(&loaded.data).is_some() {
            // Another server of that name is to be met anew. A hub that cannot be asked only remembers too much.
            let forget = McpOrder::Forget { name: self.name.clone() };
            let _ = control::ask(&loaded.data, &Order::Mcp(forget)).await;
        }
        say(&format!("`{shown}` is taken out of {place}."));
        Ok(ExitCode::SUCCESS)
    }
}

/// The working folder of the running hub, where it is none that reads this folder's file.
async fn works_elsewhere(loaded: &Loaded, here: &Path) -> Option<String> {
    hold::holder(&loaded.data)?;
    let told = super::told(loaded, McpOrder::List).await.ok()?;
    let folder = told["folder"].as_str()?;
    (!Path::new(folder).starts_with(here)).then(|| folder.to_owned())
}

fn whose(project: bool) -> Whose {
    if project { Whose::Project } else { Whose::Home }
}

fn pairs(texts: &[String], between: char) -> Result<Map<String, Value>> {
    let mut pairs = Map::new();
    for text in texts {
        let Some((name, value)) = text.split_once(between) else {
            // Not repeated: it may be a secret.
            bail!("a name, `{between}` and a value belong together");
        };
        let value = if between == ':' { value.trim() } else { value };
        pairs.insert(name.trim().to_owned(), json!(value));
    }
    Ok(pairs)
}
