//! The path of a call. Start reading at [`hub`]: it is the whole path on one page.
//!
//! This crate knows no wire, no database, no process, no file and no environment; those are
//! given to it as [`provider::Provider`]s, an [`audit::Sink`] and a [`call::Client`].

pub mod approval;
pub mod arguments;
pub mod audit;
pub mod call;
pub mod catalogue;
pub mod clock;
pub mod error;
pub mod gate;
pub mod hub;
pub mod name;
pub mod principal;
pub mod provider;
pub mod redact;
pub mod reply;
pub mod session;
pub mod tasks;
pub mod text;
pub mod tool;

pub use error::{Chain, ToolError, ToolResult};

/// What a file with a tool in it needs; `nexus-tools` re-exports it with its own environment.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use thiserror::Error;

    pub use crate::call::{CallCx, Progress};
    pub use crate::error::{ToolError, ToolResult};
    pub use crate::name::NodeName;
    pub use crate::tool::{Access, Tool};
}
