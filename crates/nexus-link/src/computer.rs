//! Who a linked computer is: what it said in its hello, checked and cleaned once, at the edge.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use nexus_core::text;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Numbers above this are no longer whole where they come from: Lua counts in doubles.
pub const LARGEST_ID: u64 = 1 << 53;

/// Characters of a label or of a world's name. ComputerCraft cuts labels at 32.
const LONGEST_NAME: usize = 64;

/// A computer's place among all: numbers are given out anew in every world. Sorts by number, then by world.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    pub id: u64,
    #[serde(default)]
    pub world: Option<Arc<str>>,
}

impl fmt::Display for Address {
    /// As it can be given to a tool where only the number would be unclear: `survival/12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.world.as_deref().unwrap_or_default(), self.id)
    }
}

/// Something that a computer's client can do beyond answering a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    Status,
    Lua,
    Files,
    Peripherals,
    Turtle,
    Redstone,
    Stop,
}

impl Capability {
    pub const ALL: [Self; 7] = [
        Capability::Status,
        Capability::Lua,
        Capability::Files,
        Capability::Peripherals,
        Capability::Turtle,
        Capability::Redstone,
        Capability::Stop,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Capability::Status => "status",
            Capability::Lua => "lua",
            Capability::Files => "files",
            Capability::Peripherals => "peripherals",
            Capability::Turtle => "turtle",
            Capability::Redstone => "redstone",
            Capability::Stop => "stop",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of them, in a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(u8);

impl Capabilities {
    /// Words that are not known are left out: a newer client can do more than this hub asks for.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let named = |word: &str| Capability::ALL.into_iter().find(|capability| capability.as_str() == word);
        Self(words.into_iter().filter_map(named).fold(0, |set, capability| set | capability.bit()))
    }

    pub fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |capability| self.has(*capability))
    }
}

/// What sort of machine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Computer,
    Turtle,
    Pocket,
    Command,
}

impl Kind {
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "computer" => Kind::Computer,
            "turtle" => Kind::Turtle,
            "pocket" => Kind::Pocket,
            "command" => Kind::Command,
            _ => return None,
        })
    }
}

/// A linked computer, by its own word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computer {
    pub address: Address,
    pub label: Option<Arc<str>>,
    pub version: Option<Arc<str>>,
    pub kind: Option<Kind>,
    pub capabilities: Capabilities,
}

impl Computer {
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.has(capability)
    }

    /// For errors and the record: `12 (base-turtle)`, `12 of survival`.
    pub fn name(&self) -> String {
        let Address { id, world } = &self.address;
        match (&self.label, world) {
            (None, None) => id.to_string(),
            (Some(label), None) => format!("{id} ({label})"),
            (None, Some(world)) => format!("{id} of {world}"),
            (Some(label), Some(world)) => format!("{id} ({label}) of {world}"),
        }
    }
}

/// A name as it may be shown: in one line, cleaned, of some length. None when nothing is left.
pub fn name(text: &str) -> Option<Arc<str>> {
    line(text, LONGEST_NAME)
}

fn line(text: &str, longest: usize) -> Option<Arc<str>> {
    let in_one_line = |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
    let clean: String = text::clean(text).chars().map(in_one_line).collect();
    match clean.trim() {
        "" => None,
        name => Some(text::cut(name, longest).as_ref().into()),
    }
}

/// A computer as a caller names it: its number, `world/number`, or its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted(Arc<str>);

impl Wanted {
    /// The number, and the world where one is named; `/12` is number 12 of no world.
    pub fn number(&self) -> Option<(u64, Option<Option<&str>>)> {
        let number = |digits: &str| match digits.as_bytes() {
            [b'0'..=b'9', ..] => digits.parse().ok().filter(|id| *id <= LARGEST_ID),
            _ => None,
        };
        match self.0.rsplit_once('/') {
            None => Some((number(&self.0)?, None)),
            Some(("", digits)) => Some((number(digits)?, Some(None))),
            Some((world, digits)) => Some((number(digits)?, Some(Some(world)))),
        }
    }

    /// Whether it means this one. What can be read as a number or as `world/number` is never a label: anybody in the
    /// game may call their computer so, and would get what is meant for another while that one is away.
    pub fn means(&self, computer: &Computer) -> bool {
        let address = &computer.address;
        match self.number() {
            Some((id, world)) => address.id == id && world.is_none_or(|world| address.world.as_deref() == world),
            None => computer.label.as_deref() == Some(&*self.0),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

/// Reads a number or a text.
struct Either;

impl Visitor<'_> for Either {
    type Value = Wanted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a computer's number or label")
    }

    fn visit_u64<E: de::Error>(self, id: u64) -> Result<Wanted, E> {
        Ok(Wanted(id.to_string().into()))
    }

    fn visit_i64<E: de::Error>(self, id: i64) -> Result<Wanted, E> {
        Err(E::custom(format!("{id} is not a computer's number")))
    }

    fn visit_f64<E: de::Error>(self, id: f64) -> Result<Wanted, E> {
        whole(id).map(|id| Wanted(id.to_string().into())).ok_or_else(|| E::custom("not a computer's number"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Wanted, E> {
        // Room for a world's name and a number.
        match line(text, 2 * LONGEST_NAME) {
            Some(name) => Ok(Wanted(name)),
            None => Err(E::custom("the name is empty; give a computer's number or label")),
        }
    }
}

/// `12.0` is 12: all of Lua's numbers may come as floats.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at before")]
pub fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=LARGEST_ID as f64).contains(&number)).then_some(number as u64)
}

impl JsonSchema for Wanted {
    fn schema_name() -> Cow<'static, str> {
        "Wanted".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub fn computer(id: u64, label: Option<&str>, world: Option<&str>) -> Computer {
        Computer {
            address: Address { id, world: world.map(Into::into) },
            label: label.map(Into::into),
            version: None,
            kind: None,
            capabilities: Capabilities::default(),
        }
    }

    #[test]
    fn a_name_is_one_clean_line() {
        check("base-turtle", Some("base-turtle"));
        check("  spaces ", Some("spaces"));
        check("two\r\nlines\u{2028}three", Some("two  lines three"));
        check("\u{1b}[31mred\u{202e}", Some("red"));
        check("", None);
        check(" \n\t", None);
        check(&"x".repeat(100), Some(&format!("{}…", "x".repeat(64))));

        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(name(text).as_deref(), expected);
        }
    }

    #[test]
    fn a_computer_is_wanted_by_number_world_or_label() {
        let wanted = |json: &str| serde_json::from_str::<Wanted>(json);
        let turtle = computer(12, Some("base-turtle"), Some("survival"));
        for json in ["12", "12.0", r#""12""#, r#""012""#, r#""survival/12""#, r#""base-turtle""#] {
            assert!(wanted(json).unwrap().means(&turtle), "{json}");
        }
        for json in ["13", r#""creative/12""#, r#""/12""#, r#""base""#, r#""+12""#] {
            assert!(!wanted(json).unwrap().means(&turtle), "{json}");
        }
        assert!(wanted(r#""/12""#).unwrap().means(&computer(12, None, None)));
        for address in ["12", "survival/12", "/12", "012"] {
            let named_so = computer(1, Some(address), None);
            assert!(!wanted(&json!(address).to_string()).unwrap().means(&named_so), "{address} is no label");
        }
        let world = "w".repeat(LONGEST_NAME);
        let far = computer(12, None, Some(&world));
        assert!(wanted(&json!(far.address.to_string()).to_string()).unwrap().means(&far), "a long world's name");
        for json in ["-1", "1.5", "1e300", "\"\"", "\" \"", "true", "null", "[12]"] {
            assert!(wanted(json).is_err(), "{json}");
        }
    }

    #[test]
    fn capabilities_that_are_not_known_are_left_out() {
        let set = Capabilities::of(["lua", "levitate", "stop", "lua"]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Capability::Lua, Capability::Stop]);
    }
}
