//! The door for computers as computers meet it: a real listener, and fakes that keep to the rules or break them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop where it is")]

mod answers;
mod any_frames;
mod asking;
mod crowd;
mod door;
mod ending;
mod faults;
mod framing;
mod hello;
mod replacing;
mod stopping;
mod strangers;
mod support;
mod tokens;
