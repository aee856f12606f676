//! Commands, files and variables of a node: the tools a shell would give.

mod get_env;
mod list_directory;
mod read_file;
mod read_output;
mod run_command;
mod write_file;

pub use get_env::GetEnv;
pub use list_directory::ListDirectory;
pub use read_file::ReadFile;
pub use read_output::ReadOutput;
pub use run_command::RunCommand;
pub use write_file::WriteFile;

use crate::prelude::*;

pub const TOOLS: &[Entry] = &[
    Entry::of::<GetEnv>(),
    Entry::of::<ListDirectory>(),
    Entry::of::<ReadFile>(),
    Entry::of::<ReadOutput>(),
    Entry::of::<RunCommand>(),
    Entry::of::<WriteFile>(),
];

/// The node's name, for people.
fn on(node: Option<&NodeName>) -> &str {
    node.map_or("local", NodeName::as_str)
}
