//! Tools about the session itself.

mod get_session_info;

pub use get_session_info::GetSessionInfo;

use crate::prelude::*;

pub const TOOLS: &[Entry] = &[Entry::of::<GetSessionInfo>()];
