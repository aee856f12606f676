//! The tools against real processes and real files: one binary, a file per capability.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop where it is")]

mod catalogue;
mod commands;
mod directories;
mod reading;
mod sessions;
mod support;
mod writing;
