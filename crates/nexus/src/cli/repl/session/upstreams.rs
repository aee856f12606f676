//! `/mcp …`: upstream servers, through the hub's own tools for them, so that it works with a hub elsewhere too.

use anyhow::Result;
use serde_json::{Value, json};

use nexus_core::text;

use super::{Outcome, Session};
use crate::cli::repl::command::{Consent, Visibility};
use crate::cli::repl::show::one_line;
use crate::cli::repl::table;
use crate::cli::waiting::Waiting;
use crate::cli::{print, say};

const LIST: &str = "list_upstreams";

/// Servers with tools that are held back, among which one is looked for.
const MOST_HOLDING: usize = 50;

impl Session {
    pub(super) async fn upstreams(&mut self) -> Result<Outcome> {
        let Some(result) = self.call(LIST, &json!({}), None).await? else { return Ok(Outcome::Cancelled) };
        let Some(servers) = servers(&result) else { return self.show(LIST, result).await };
        if servers.is_empty() {
            say(
                "no upstream server is configured; `nexus mcp add` adds one, `nexus mcp import` takes over others' entries",
            );
        } else {
            print(&format!("{}\n", table::of_servers(servers)))?;
        }
        self.remember_servers(servers);
        self.last = Some(result);
        Ok(Outcome::Done)
    }

    /// For completion. A hub that has no such servers, or does not tell of them, is one all the same.
    pub(super) async fn learn_servers(&self) {
        if self.known.get().tool(LIST).is_none() {
            return;
        }
        if let Some(servers) = self.listed(&json!({})).await.as_ref().and_then(servers) {
            self.remember_servers(servers);
        }
    }

    fn remember_servers(&self, servers: &[Value]) {
        let names = servers.iter().filter_map(|server| server["name"].as_str()).map(|name| one_line(name, 100));
        let names: Vec<String> = names.collect();
        self.known.change(|known| known.servers = names);
    }

    pub(super) async fn connect(
        &mut self,
        server: &str,
        consent: Option<Consent>,
        visibility: Option<Visibility>,
    ) -> Result<Outcome> {
        let mut arguments = json!({ "name": server });
        if let Some(visibility) = visibility {
            arguments["visibility"] = visibility.as_str().into();
        }
        if consent == Some(Consent::AllowAll) {
            arguments["all_tools"] = true.into();
        }
        let Some(mut result) = self.call("connect_upstream", &arguments, consent).await? else {
            return Ok(Outcome::Cancelled);
        };
        // Where the hub cannot ask through us, the yes that was given with the command is said in its other way.
        if let (Some(waiting), Some(consent)) = (Waiting::of(&result), consent) {
            let yes = json!({ "code": waiting.code, "scope": consent.decision() });
            match self.call("approve_writes", &yes, None).await? {
                None => return Ok(Outcome::Cancelled),
                Some(refused) if refused["isError"] == true => return self.show("approve_writes", refused).await,
                Some(_) => {}
            }
            match self.call("connect_upstream", &arguments, None).await? {
                None => return Ok(Outcome::Cancelled),
                Some(connected) => result = connected,
            }
        }
        let outcome = self.show_connected(result).await?;
        self.learn().await?;
        Ok(outcome)
    }

    async fn show_connected(&mut self, result: Value) -> Result<Outcome> {
        let body = &result["structuredContent"];
        let (Some(name), Some(state)) = (body["name"].as_str(), body["state"].as_str()) else {
            return self.show("connect_upstream", result).await;
        };
        let why = body["why"].as_str().map_or_else(String::new, |why| format!(" ({})", one_line(why, 300)));
        let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        let (name, visibility) = (one_line(name, 100), one_line(body["visibility"].as_str().unwrap_or_default(), 60));
        print(&format!("{name}: {}{why}, {visibility}, {} tools\n", one_line(state, 40), tools.len()))?;
        for tool in tools.iter().filter_map(Value::as_str) {
            print(&format!("  {}\n", one_line(tool, 100)))?;
        }
        let held = body["held"].as_array().map_or(0, Vec::len);
        if held > 0 {
            say(&format!(
                "{held} tools are held back: `/mcp tools {name}` shows why, `nexus mcp allow` lets them through"
            ));
        }
        let is_there = matches!(state, "ready" | "degraded");
        self.last = Some(result);
        Ok(if is_there { Outcome::Done } else { Outcome::Failed })
    }

    pub(super) async fn upstream_tools(&mut self, server: Option<&str>) -> Result<Outcome> {
        match server {
            Some(server) => self.tools_of(server).await,
            None => self.tools_of_all().await,
        }
    }

    /// Those of one server, also what is held back, with the difference, and what cannot be offered.
    async fn tools_of(&mut self, server: &str) -> Result<Outcome> {
        let Some(result) = self.call(LIST, &json!({ "name": server }), None).await? else {
            return Ok(Outcome::Cancelled);
        };
        let Some([found]) = servers(&result) else { return self.show(LIST, result).await };
        print(&table::of_server(found))?;
        let tools = found["list"].as_array().map_or(&[][..], Vec::as_slice);
        if tools.is_empty() {
            say(&format!(
                "`{server}` has no tools here; it is {}",
                one_line(found["state"].as_str().unwrap_or("?"), 40)
            ));
        } else {
            print(&format!("{}\n", table::of_objects(tools, &["name", "original", "standing"])))?;
        }
        for tool in tools {
            if let Some(diff) = tool["diff"].as_str() {
                let name = one_line(tool["name"].as_str().unwrap_or_default(), 100);
                print(&format!("\n{name} is held back:\n{}\n", text::clean(diff).trim_end()))?;
            }
        }
        if let Some(aside) = found["set_aside"].as_array().filter(|aside| !aside.is_empty()) {
            print(&format!("\nset aside:\n{}\n", table::of_objects(aside, &["tool", "why"])))?;
        }
        self.last = Some(result);
        Ok(Outcome::Done)
    }

    /// Why a tool that a server has cannot be called. None: it is not that.
    pub(super) async fn held_back(&self, tool: &str) -> Option<String> {
        self.known.get().tool(LIST)?;
        let all = self.listed(&json!({})).await?;
        let holds = |server: &&Value| server["held"].as_array().is_some_and(|held| !held.is_empty());
        for server in servers(&all)?.iter().filter(holds).take(MOST_HOLDING) {
            let one = self.listed(&json!({ "name": server["name"] })).await?;
            let Some([found]) = servers(&one) else { continue };
            let tools = found["list"].as_array().map_or(&[][..], Vec::as_slice);
            if let Some(held) = tools.iter().find(|held| held["name"] == tool && held["standing"] == "held") {
                let field = |value: &Value| one_line(value.as_str().unwrap_or_default(), 100);
                let (server, original) = (field(&found["name"]), field(&held["original"]));
                return Some(format!(
                    "`{tool}` is held back, as it is new or has changed: `/mcp tools {server}` shows how, and \
                     `nexus mcp allow {server} {original}` at the hub lets it through"
                ));
            }
        }
        None
    }

    /// What the hub tells of its servers, without a word to anybody.
    async fn listed(&self, arguments: &Value) -> Option<Value> {
        let result = self.client.call_tool(LIST, arguments).await.ok()?;
        serde_json::from_str(result.raw().get()).ok()
    }

    async fn tools_of_all(&mut self) -> Result<Outcome> {
        self.learn().await?;
        let known = self.known.get();
        let tools = known.tools.iter().filter_map(|tool| Some((tool.server.clone()?, tool)));
        let rows: Vec<Vec<String>> = tools
            .map(|(server, tool)| {
                let about = tool.about.split_once("] ").map_or(tool.about.as_str(), |(_, about)| about);
                vec![server, tool.name.clone(), about.to_owned()]
            })
            .collect();
        if rows.is_empty() {
            say("no upstream server has tools here; /mcp shows how the servers are");
        } else {
            print(&format!("{}\n", table::table(["server", "tool", "what it does"], rows)))?;
        }
        Ok(Outcome::Done)
    }
}

/// The list in the reply of `list_upstreams`.
fn servers(result: &Value) -> Option<&[Value]> {
    let servers = result["structuredContent"]["servers"].as_array().filter(|_| result["isError"] != true)?;
    Some(servers)
}
