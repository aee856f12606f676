//! Who the hub is to a server that asks. Sent to the configured origin, and to no other.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::upstream::error::TransportError;

/// Where the token of a server comes from.
pub trait Credentials: fmt::Debug + Send + Sync {
    /// What to send as `Authorization: Bearer …`, if anything.
    fn bearer(&self) -> BoxFuture<'_, Option<String>>;

    /// The server answered 401 or 403; `challenge` is its `WWW-Authenticate`. `sent` is the token that the refused
    /// request carried: of many that are refused at once, the first has it renewed and the others see that it is done.
    fn challenged<'a>(
        &'a self,
        sent: Option<&'a str>,
        status: u16,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Challenged, TransportError>>;
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenged {
    /// There is another token now.
    Retry,
    GiveUp,
}
