//! What the hub does to the machine and the network around it: [`process`] is the only way to start a program,
//! [`outbound`] the only way to call another server over HTTP.

pub mod outbound;
pub mod process;
