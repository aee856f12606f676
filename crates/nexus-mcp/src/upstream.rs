//! Other MCP servers: connecting to them, staying connected, and offering what they have.
//!
//! From the bottom up: a [`transport`] carries messages, a [`client`] speaks the protocol over one, a [`supervisor`]
//! keeps one server's client alive, the [`registry`] holds all of them, and a [`provider`] gives one server's tools to
//! the hub. Other programs can use each layer without those above it.

pub mod client;
pub mod config;
pub mod error;
mod intent;
mod introduction;
pub mod log;
pub mod names;
pub mod oauth;
pub mod offers;
pub mod pins;
pub mod provider;
pub mod registry;
mod relay;
pub mod supervisor;
#[cfg(test)]
mod tests;
pub mod tools;
pub mod transport;
