//! The built-in tools, one file each. Start at a family's file (`shell.rs`, `session.rs`): its `TOOLS` is the
//! table of contents. [`toolbox::Toolbox`] is what all of them share; [`node`] is where commands run.

pub mod clip;
pub mod file;
pub mod node;
pub mod path;
pub mod secret;
pub mod session;
pub mod shell;
pub mod spool;
pub mod toolbox;

pub use toolbox::{Settings, Toolbox};

/// A tool's line in its family's table of contents.
pub type Entry = nexus_core::tool::Entry<Toolbox>;

/// The tables of contents of all families, for `nexus_core::tool::Family::new`.
pub fn families() -> &'static [&'static [Entry]] {
    &[session::TOOLS, shell::TOOLS]
}

/// What a file with a tool in it needs.
pub mod prelude {
    pub use nexus_core::prelude::*;

    pub use crate::node::{Argv, Limits, Node};
    pub use crate::path::GivenPath;
    pub use crate::{Entry, Toolbox};
}
