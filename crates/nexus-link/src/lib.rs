//! Computers that dial in: ComputerCraft computers inside Minecraft cannot listen on a port, so they call the hub by
//! WebSocket and are asked over that line. Start reading at [`links`]: it is what the tools use.
//!
//! From the wire up: [`frame`] cuts bytes into frames, [`protocol`] reads and writes what stands in them, [`link`] is
//! one connection, [`registry`] knows who is linked, [`round`] is one question to many, [`listener`] lets them in.

pub mod ascii;
pub mod computer;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
mod link;
pub mod links;
pub mod listener;
mod pages;
pub mod protocol;
mod record;
mod registry;
mod round;
pub mod tools;
mod upgrade;

pub use computer::{Address, Capability, Computer, Kind, Wanted};
pub use links::{Holder, LinkError, Links, Settings, Standing};
pub use listener::Door;
pub use registry::{Counts, Seen, Target};
pub use round::{Outcome, Question};
