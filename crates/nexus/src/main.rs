//! `nexus`: the one MCP endpoint of a homelab. This file ends the program; `cli` decides what it does.

mod agents;
mod audit;
mod cli;
mod config;
mod control;
mod hold;
mod keyring;
mod links;
mod log;
mod logins;
mod private;
mod store;
mod upstreams;
mod when;
mod wire;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    nexus_system::process::shim::run().unwrap_or_else(cli::run)
}
