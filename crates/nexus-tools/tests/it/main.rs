//! The tools against real processes and real files: one binary, a file per capability.

mod catalogue;
mod commands;
mod directories;
mod reading;
mod sessions;
mod support;
mod writing;
