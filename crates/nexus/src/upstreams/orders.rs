//! What the operator can ask of the servers of a running hub, through its control socket.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use nexus_core::audit::{Event, Row};
use nexus_core::name::ServerName;
use nexus_core::principal::{Level, PrincipalId};
use nexus_mcp::upstream::config::Source;
use nexus_mcp::upstream::error::ConfigurationError;
use nexus_mcp::upstream::pins::Memory;
use nexus_mcp::upstream::registry::{Faulty, Visibility};
use nexus_mcp::upstream::supervisor::{OfferedTool, Upstream, Which};

use super::{Upstreams, agreement, faulty};
use crate::config::mcp;

/// How long an order waits for a server; the socket itself is given up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// Lines of a log that one answer holds.
const MOST_LINES: usize = 1000;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpOrder {
    /// All of them, also those that cannot be used; what is wrong with the files; the hub's working folder.
    List,
    /// `yes` is the digest of the entry that somebody was shown and agreed to.
    Connect {
        name: String,
        yes: Option<String>,
    },
    /// `forget` takes a remembered yes back too.
    Disconnect {
        name: String,
        forget: bool,
    },
    /// None: of all servers.
    Tools {
        name: Option<String>,
    },
    /// Tools by the server's names, with the hash of what was shown of them.
    Allow {
        name: String,
        seen: Vec<(String, String)>,
    },
    Logs {
        name: String,
        lines: usize,
    },
    /// As if the server had never been met.
    Forget {
        name: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpAnswer {
    Told(Value),
    /// It waits for a yes to this entry.
    Unagreed {
        file: String,
        line: usize,
        entry: String,
        digest: String,
    },
}

impl Upstreams {
    pub async fn carry_out(&self, order: McpOrder) -> Result<McpAnswer> {
        Ok(McpAnswer::Told(match order {
            McpOrder::List => self.list(),
            McpOrder::Connect { name, yes } => return self.connect(&name, yes.as_deref()).await,
            McpOrder::Disconnect { name, forget } => self.disconnect(&name, forget).await?,
            McpOrder::Tools { name } => self.tools(name.as_deref())?,
            McpOrder::Allow { name, seen } => self.allow(&name, seen).await?,
            McpOrder::Logs { name, lines } => self.logs(&name, lines)?,
            McpOrder::Forget { name } => {
                self.kept.forget(&ServerName::new(&name)).await?;
                self.kept.disagree(&name).await?;
                Value::Null
            }
        }))
    }

    fn list(&self) -> Value {
        let reading = self.reading.lock().clone();
        let mut rows: Vec<Value> = Vec::new();
        for status in self.registry.statuses(None) {
            let broken = reading.broken.get(&status.name);
            let mut row = serde_json::to_value(&status).unwrap_or_default();
            if let Some(broken) = broken {
                // It runs as it was before its entry became faulty.
                row["fault"] = json!(broken.why);
            }
            if let Some(why) = reading.servers.get(&status.name).and_then(mcp::Server::switched_off) {
                row["why"] = json!(why);
            }
            rows.push(row);
        }
        for Faulty { name, why, source } in faulty(&reading) {
            rows.push(json!({ "name": name, "state": "faulty", "why": why, "source": source, "tools": 0 }));
        }
        let folder = self.places.here.display().to_string();
        json!({ "servers": rows, "faults": reading.faults, "warnings": reading.warnings, "folder": folder })
    }

    async fn connect(&self, name: &str, yes: Option<&str>) -> Result<McpAnswer> {
        // What was written a moment ago counts.
        self.refresh().await?;
        let reading = self.reading.lock().clone();
        let Some(server) = reading.servers.get(name) else {
            match reading.broken.get(name) {
                Some(broken) => bail!("the entry of `{name}` is faulty: {}", broken.why),
                None => bail!(ConfigurationError::Unknown(name.to_owned())),
            }
        };
        if let Some(why) = server.switched_off() {
            bail!("the server `{name}` is not connected: {why}");
        }
        if let Source::Project { file, line } = &server.config.source
            && server.config.enabled
            && server.config.endpoint.is_some()
            && !self.kept.agreed().await?.contains(&agreement(server))
        {
            if yes != Some(server.digest.as_str()) {
                return Ok(McpAnswer::Unagreed {
                    file: file.display().to_string(),
                    line: *line,
                    entry: server.shown(),
                    digest: server.digest.clone(),
                });
            }
            let agreed = Row::new(Event::Upstream).detail(format!("{name}: agreed to, from {}:{line}", file.display()));
            self.audit.durable(agreed).await.context("a yes that cannot be recorded is not given")?;
            self.kept.agree(file, name, &server.digest).await?;
            self.refresh().await?;
        }
        let visibility = Visibility::Shared;
        // Whoever reaches the socket is the operator.
        let upstream = self.registry.connect_known(&ServerName::new(name), visibility, Some(Level::Trusted)).await?;
        if let Ok(Err(unavailable)) = timeout(PATIENCE, upstream.ready()).await {
            bail!(unavailable);
        }
        upstream.is_offered().await;
        Ok(McpAnswer::Told(serde_json::to_value(upstream.status())?))
    }

    async fn disconnect(&self, name: &str, forget: bool) -> Result<Value> {
        let server = ServerName::new(name);
        let of_it: Vec<Upstream> = self.registry.all().into_iter().filter(|up| *up.name() == server).collect();
        if of_it.is_empty() && !self.registry.entries().iter().any(|entry| entry.config.name == server) {
            bail!(ConfigurationError::Unknown(name.to_owned()));
        }
        for upstream in &of_it {
            let owner = match upstream.visibility() {
                Visibility::Shared => PrincipalId::new(""),
                Visibility::Private(owner) => owner.clone(),
            };
            self.registry.disconnect(&server, &owner).await?;
        }
        if forget && self.kept.disagree(name).await? {
            self.audit.post(Row::new(Event::Upstream).detail(format!("{name}: the yes to it is taken back")));
            self.refresh().await?;
        }
        Ok(json!({ "disconnected": of_it.len() }))
    }

    fn tools(&self, name: Option<&str>) -> Result<Value> {
        let upstreams = self.registry.all();
        let wanted: Vec<&Upstream> =
            upstreams.iter().filter(|up| name.is_none_or(|name| up.name().as_str() == name)).collect();
        if let (Some(name), true) = (name, wanted.is_empty()) {
            return Err(self.not_there(name));
        }
        let told = |upstream: &&Upstream| {
            let offer = upstream.offer();
            json!({
                "server": upstream.name().to_string(),
                "tools": offer.tools.iter().map(|tool| described(tool)).collect::<Vec<_>>(),
                "set_aside": offer.set_aside.clone(),
            })
        };
        Ok(wanted.iter().map(told).collect())
    }

    /// Why there is nothing of this server.
    fn not_there(&self, name: &str) -> anyhow::Error {
        let is_known = self.registry.entries().iter().any(|entry| entry.config.name.as_str() == name);
        match self.reading.lock().broken.get(name) {
            Some(broken) if !is_known => anyhow!("the entry of `{name}` is faulty: {}", broken.why),
            _ if is_known => anyhow!("the server `{name}` is not connected; `nexus mcp list` says why"),
            _ => anyhow!(ConfigurationError::Unknown(name.to_owned())),
        }
    }

    async fn allow(&self, name: &str, seen: Vec<(String, String)>) -> Result<Value> {
        let mut upstreams = self.registry.all();
        upstreams.retain(|upstream| upstream.name().as_str() == name);
        if upstreams.is_empty() {
            return Err(self.not_there(name));
        }
        let mut allowed: Vec<String> = Vec::new();
        for upstream in &upstreams {
            if let Ok(tools) = upstream.allow(&Which::Seen(seen.clone())).await {
                allowed.extend(tools);
            }
        }
        if allowed.is_empty() {
            bail!("no tool of `{name}` waits to be allowed as it was shown; `nexus mcp tools` shows what does");
        }
        Ok(json!({ "allowed": allowed }))
    }

    fn logs(&self, name: &str, lines: usize) -> Result<Value> {
        let lines = self.registry.log_lines(&ServerName::new(name), lines.min(MOST_LINES));
        let lines = lines.ok_or_else(|| anyhow!(ConfigurationError::Unknown(name.to_owned())))?;
        Ok(serde_json::to_value(lines)?)
    }
}

fn described(tool: &OfferedTool) -> Value {
    json!({
        "name": tool.exposed.as_str(),
        "original": tool.original,
        "title": tool.title,
        "description": tool.description,
        "hash": tool.hash,
        "state": if tool.is_allowed() { "allowed" } else { "held" },
        "diff": tool.diff(),
    })
}
