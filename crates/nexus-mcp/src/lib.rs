//! MCP, both eras, on our own wire: the front doors, and the client of the command line.
//!
//! A message arrives at a door (`front/`), becomes a [`wire::Message`], is answered by
//! [`server::Server`] within an [`exchange::Exchange`], and leaves as JSON text. Nothing
//! outside this crate knows how a message arrives.

mod asking;
pub mod client;
pub mod conformance;
pub mod exchange;
pub mod front;
mod seal;
pub mod server;
pub mod version;
pub mod wire;
