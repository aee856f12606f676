//! The client against servers made for the purpose, in memory and, where time matters, on a clock that is turned by hand.

#![allow(clippy::needless_pass_by_value, reason = "`json!(…)` is read more easily without a `&` before it")]

mod bench;
mod calls;
mod handshake;
mod listening;
mod lists;
mod questions;
mod requests;
