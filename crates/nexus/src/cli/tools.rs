//! `nexus tools`: what the running hub offers.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use super::hub::{self, Asks, Reach};
use super::print;
use super::repl::table;
use crate::config::Loaded;

#[derive(Debug, Args)]
pub struct Tools {
    /// Show this one tool with its arguments
    name: Option<String>,
    /// Print the definitions as JSON
    #[arg(long)]
    json: bool,
}

impl Tools {
    pub async fn run(self, loaded: Loaded) -> Result<ExitCode> {
        let client = Reach::find(&loaded, None, None)?.connect(Asks::Nobody, Era::Modern, &Tasks::new(), None).await?;
        let mut tools = hub::tools(&client).await?;
        client.close().await;
        if let Some(name) = &self.name {
            tools.retain(|tool| tool["name"] == name.as_str());
            if tools.is_empty() {
                bail!("the hub has no tool `{name}`; `nexus tools` lists all");
            }
        }
        match (self.json, self.name) {
            (true, _) => print(&format!("{}\n", serde_json::to_string_pretty(&tools)?))?,
            (false, None) => print(&format!("{}\n", table::of_tools(&tools)))?,
            (false, Some(_)) => print(&table::of_tool(&tools[0]))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
