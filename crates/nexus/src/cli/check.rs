//! `nexus check`: is the configuration right, and what does it come to?

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{print, say};
use crate::config::{self, Loaded};

#[derive(Debug, Args)]
pub struct Check {
    /// Print the resulting configuration as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Faults were told before this is reached.
    pub fn run(&self, loaded: &Loaded) -> Result<ExitCode> {
        let from =
            loaded.file.as_ref().map_or_else(|| "no file: all defaults".to_owned(), |file| file.display().to_string());
        say(&format!("configuration: {from}\ndata folder:   {}\nno faults", loaded.data.display()));
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&loaded.config)?))?;
        } else {
            print(&config::show(&loaded.config))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
