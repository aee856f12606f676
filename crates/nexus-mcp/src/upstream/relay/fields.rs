//! The fields of a JSON object, without a tree of what is in them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::result::BadResult;
use crate::upstream::transport::stdio::{LARGE, MAPPED};
use crate::wire::quoted;

/// An object's fields as they stand in it, in order.
pub(crate) struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// Fields of a result that mean something. Said twice, each reader could take another one.
const TELLING: [&str; 7] =
    ["content", "structuredContent", "isError", "resultType", "inputRequests", "requestState", "_meta"];

impl<'a> Fields<'a> {
    pub(crate) fn parse(json: &'a str) -> Result<Self, BadResult> {
        let fields: Self = serde_json::from_str(json).map_err(|_| BadResult::NotAnObject)?;
        match TELLING.into_iter().find(|name| fields.0.iter().filter(|(field, _)| field == name).count() > 1) {
            Some(twice) => Err(BadResult::Twice(twice)),
            None => Ok(fields),
        }
    }

    /// A field's JSON.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// A field that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// False: it was so already.
    pub(crate) fn set(&mut self, name: &'static str, json: &str) -> bool {
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, value)) if *value == json => return false,
            Some((_, value)) => *value = Cow::Owned(json.to_owned()),
            None => self.0.push((Cow::Borrowed(name), Cow::Owned(json.to_owned()))),
        }
        true
    }

    /// False: there was none.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(field, _)| field != name);
        self.0.len() != before
    }

    pub(crate) fn write(&self) -> String {
        let length: usize = self.0.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        // A large text is mapped by the system, and given back at once when it goes: see the reading of a server's lines.
        let room = if length < LARGE { length + 2 } else { MAPPED.max(length + 2) };
        let mut out = String::with_capacity(room);
        out.push('{');
        for (i, (name, value)) in self.0.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&quoted(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Every;

        impl<'de> Visitor<'de> for Every {
            type Value = Vec<(Cow<'de, str>, Cow<'de, str>)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, Cow::Borrowed(value.get())));
                }
                Ok(fields)
            }
        }

        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        deserializer.deserialize_map(Every).map(Fields)
    }
}
