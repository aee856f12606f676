//! Keeps secrets out of everything that is stored, logged, shipped or shown.

use std::borrow::Cow;
use std::fmt;

mod ahead;
mod assigned;
mod clue;
mod code;
mod expression;
mod fields;
mod kept;
mod lines;
mod names;
mod output;
mod own;
mod scan;
mod schema;
mod shapes;
#[cfg(test)]
mod tests;
mod tokens;
mod value;

pub use kept::{arguments, whole_arguments};
pub(crate) use names::names_a_secret;
pub use output::{json, own_values_of_reply, reply};
pub use own::{can_be_learnt, learn, own_values};
pub(crate) use schema::secret_fields;

use scan::{End, Scan};

/// What stands where a secret was.
pub const HIDDEN: &str = "[redacted]";

/// The text with whatever looks like a secret hidden: the hub's own secrets by their values, tokens of known shapes,
/// private key blocks, passwords in URLs and on command lines, and the values of headers, variables, options and
/// fields with telling names.
///
/// One pass, linear in the text whatever it holds; what is already hidden stays as it is.
pub fn text(text: &str) -> Cow<'_, str> {
    own::with(|own| Scan::new(text, End::Whole, own).run())
}

/// The same for a text whose end was cut off, perhaps in the middle of a secret.
pub fn beginning(text: &str) -> Cow<'_, str> {
    own::with(|own| Scan::new(text, End::Cut, own).run())
}

/// A URL that prints without its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct SafeUrl(String);

impl SafeUrl {
    pub fn new(url: &str) -> Self {
        Self(text(url).into_owned())
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
