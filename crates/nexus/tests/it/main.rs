//! The program as its users meet it: one binary, a file per capability, every test against the real thing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop where it is")]

mod access;
mod agents;
mod asking;
mod asking_doors;
mod asking_ends;
mod bad_http;
mod bad_pipes;
mod cancelling;
mod changes;
mod command_line;
mod doors;
mod gate;
mod hardening;
mod key_command;
mod keys;
mod links;
mod loki;
mod operator;
mod panics;
mod protocol;
mod record;
mod redaction;
mod repl;
mod sessions;
mod shutdown;
mod stdio;
mod support;
mod tools;
mod torture;
mod upstream;
