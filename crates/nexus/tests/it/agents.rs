//! The agent bridge: tasks out, updates back.

mod losing;
mod moved;
mod operator;
mod reading;
mod serving;
mod telegram;
mod tools;
mod torture;
mod waiting;
mod webhook;
mod worker;
