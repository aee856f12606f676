//! `nexus check`: is the configuration right, and what does it come to?

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{print, say};
use crate::agents::webhook;
use crate::config::mcp::{self, Places};
use crate::config::{self, Env, Loaded};

#[derive(Debug, Args)]
pub struct Check {
    /// Print the resulting configuration as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Faults of nexus.yaml were told before this is reached.
    pub fn run(&self, loaded: &Loaded, env: &Env) -> Result<ExitCode> {
        let from =
            loaded.file.as_ref().map_or_else(|| "no file: all defaults".to_owned(), |file| file.display().to_string());
        say(&format!("configuration: {from}\ndata folder:   {}", loaded.data.display()));
        let reading = mcp::read(&Places::of(&loaded.config, env)?, &mcp::allow_private(&loaded.config), env);
        for words in reading.warnings.iter().chain(&reading.faults) {
            say(&format!("\n{words}"));
        }
        if let Some(faults) = webhook::faults(&loaded.config) {
            say(&format!("\n{faults}"));
            return Ok(ExitCode::from(2));
        }
        if !reading.faults.is_empty() {
            return Ok(ExitCode::from(2));
        }
        say("no faults");
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&loaded.config)?))?;
        } else {
            print(&config::show(&loaded.config))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
