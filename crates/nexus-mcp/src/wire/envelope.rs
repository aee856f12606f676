//! What stands around every JSON-RPC message, whichever side wrote it.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A message before anybody has looked at what it is.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    // Servers are not held to it: one that writes a number there is understood all the same.
    #[serde(borrow)]
    pub jsonrpc: Option<&'a RawValue>,
    // `null` is told apart from nothing: a request with a null id is an error, not a notification.
    #[serde(borrow, default, deserialize_with = "present")]
    pub id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
