//! Starting programs, and ending them with all they have started.
//!
//! Every program leads a process group of its own, which is killed as a whole. A program that is started *for life*
//! ([`Start::start_for_life`]) does not outlive this one either, not even after a `kill -9`: see [`shim`] and [`guard`].
//! What leaves the group is found if the program was [`Start::marked`].

pub mod group;
pub mod guard;
mod mark;
pub mod shim;
pub mod start;

pub use group::Group;
pub use start::{Pipe, Start, Started};
