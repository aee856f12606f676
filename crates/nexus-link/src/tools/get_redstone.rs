//! `get_redstone`: the signals at a computer's sides.

use std::collections::BTreeMap;

use nexus_core::prelude::*;
use serde::de::Error as _;

use super::MOMENT;
use super::said::Whole;
use crate::computer::{Capability, Wanted};
use crate::links::Links;
use crate::round::Question;

/// Tells the redstone signals at all six sides of a linked computer: what comes in and what it puts out.
///
/// `left` and `right` are as you see them in front of a computer's screen; a turtle's are as it looks ahead.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRedstone {
    /// The computer: its number, its label, or `world/number`.
    computer: Wanted,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Redstone {
    /// Whose sides they are.
    computer: String,
    /// `top`, `bottom`, `left`, `right`, `front`, `back`.
    #[schemars(with = "BTreeMap<String, Signals>")]
    sides: BTreeMap<Side, Signals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Top,
    Bottom,
    Left,
    Right,
    Front,
    Back,
}

impl Side {
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Top => "top",
            Side::Bottom => "bottom",
            Side::Left => "left",
            Side::Right => "right",
            Side::Front => "front",
            Side::Back => "back",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct Signals {
    /// 0 to 15.
    #[schemars(range(max = 15))]
    #[serde(deserialize_with = "up_to::<15, _>")]
    input: u16,
    /// 0 to 15.
    #[schemars(range(max = 15))]
    #[serde(deserialize_with = "up_to::<15, _>")]
    output: u16,
    /// The colours of a bundled cable as bits.
    #[serde(default, alias = "bundledInput", skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "some_up_to::<65535, _>")]
    bundled_input: Option<u16>,
    #[serde(default, alias = "bundledOutput", skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "some_up_to::<65535, _>")]
    bundled_output: Option<u16>,
}

fn up_to<'de, const MOST: u16, D: serde::Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    let number = u16::try_from(Whole::deserialize(from)?.0).ok().filter(|number| *number <= MOST);
    number.ok_or_else(|| D::Error::custom("no such signal"))
}

fn some_up_to<'de, const MOST: u16, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    up_to::<MOST, D>(from).map(Some)
}

/// A computer's answer, to a question as to a change.
#[derive(Debug, Deserialize)]
pub struct Said {
    sides: BTreeMap<Side, Signals>,
}

impl Tool<Links> for GetRedstone {
    const NAME: &'static str = "get_redstone";
    const ACCESS: Access = Access::Read;
    type Reply = Redstone;

    fn summary(&self) -> String {
        format!("look at the redstone signals of computer {}", self.computer)
    }

    async fn run(self, links: &Links, _: &CallCx) -> ToolResult<Redstone> {
        let seen = links.one(&self.computer, Capability::Redstone).await?;
        let said = links.ask_one::<Said>(&seen, Question::new("redstone.get", MOMENT)).await?;
        Ok(said.told(seen.computer.name()))
    }
}

impl Said {
    pub fn told(self, computer: String) -> Redstone {
        Redstone { computer, sides: self.sides }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json, to_value};

    #[test]
    fn signals_are_signals() {
        let said = json!({ "sides": {
            "left": { "input": 15.0, "output": 0, "bundledInput": 65535 },
            "top": { "input": 0, "output": 7 },
        } });
        let told = to_value(from_value::<Said>(said).unwrap().told("12".to_owned())).unwrap();
        let expected = json!({ "computer": "12", "sides": {
            "top": { "input": 0, "output": 7 },
            "left": { "input": 15, "output": 0, "bundled_input": 65535 },
        } });
        assert_eq!(told, expected);
        let bad = |side: &str, signals: Value| from_value::<Said>(json!({ "sides": { side: signals } })).is_err();
        assert!(bad("top", json!({ "input": 16, "output": 0 })));
        assert!(bad("top", json!({ "input": -1, "output": 0 })));
        assert!(bad("top", json!({ "input": 0, "output": 0, "bundledInput": 65536 })));
        assert!(bad("inside", json!({ "input": 0, "output": 0 })));
    }
}
