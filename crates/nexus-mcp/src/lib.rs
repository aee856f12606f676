//! MCP, both eras, on our own wire: the front doors, and [`upstream`], the side that calls other servers.
//!
//! A message arrives at a door (`front/`), becomes a [`wire::Message`], is answered by
//! [`server::Server`] within an [`exchange::Exchange`], and leaves as JSON text. Nothing
//! outside this crate knows how a message arrives.

mod asking;
pub mod conformance;
pub mod exchange;
pub mod front;
mod seal;
pub mod server;
pub mod upstream;
pub mod version;
pub mod wire;
