//! `set_redstone`: what a computer puts out at one of its sides.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use nexus_core::prelude::*;
use serde_json::{Value, json};

use super::get_redstone::{Redstone, Said, Side};
use super::{MOMENT, meant, while_wanted};
use crate::computer::{Capability, Wanted};
use crate::links::Links;
use crate::round::Question;

/// Sets the redstone signal that a linked computer puts out at a side, and tells all of its signals after that.
///
/// Give `strength` (0 is off, 15 is full), or `bundled` for a bundled cable. It stays until it is set anew or the
/// computer restarts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Given")]
pub struct SetRedstone {
    computer: Wanted,
    side: Side,
    signal: Signal,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Given {
    /// The computer: its number, its label, or `world/number`.
    computer: Wanted,
    /// The side; `left` and `right` as you see them in front of a computer's screen, a turtle's as it looks ahead.
    side: Side,
    /// 0 to 15.
    #[schemars(range(min = 0, max = 15))]
    strength: Option<u8>,
    /// The colours of a bundled cable as bits, 0 to 65535: white is 1, orange 2, … black 32768.
    bundled: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
enum Signal {
    Strength(u8),
    Bundled(u16),
}

#[derive(Debug, Error)]
enum BadSignal {
    #[error("give either `strength` or `bundled`")]
    NotOne,
    #[error("`strength` is 0 to 15")]
    Strength,
}

impl TryFrom<Given> for SetRedstone {
    type Error = BadSignal;

    fn try_from(given: Given) -> Result<Self, BadSignal> {
        let Given { computer, side, strength, bundled } = given;
        let signal = match (strength, bundled) {
            (Some(strength @ 0..=15), None) => Signal::Strength(strength),
            (Some(_), None) => return Err(BadSignal::Strength),
            (None, Some(colours)) => Signal::Bundled(colours),
            (None, None) | (Some(_), Some(_)) => return Err(BadSignal::NotOne),
        };
        Ok(Self { computer, side, signal })
    }
}

impl Tool<Links> for SetRedstone {
    const NAME: &'static str = "set_redstone";
    const ACCESS: Access = Access::Write;
    type Reply = Redstone;

    fn summary(&self) -> String {
        let (side, computer) = (self.side.as_str(), &self.computer);
        match self.signal {
            Signal::Strength(strength) => format!("set redstone to {strength} at {side} of computer {computer}"),
            Signal::Bundled(colours) => format!("set the bundled cable to {colours} at {side} of computer {computer}"),
        }
    }

    fn background(&self, links: &Arc<Links>) -> Option<BoxFuture<'static, Option<String>>> {
        meant(links, &self.computer, Capability::Redstone)
    }

    async fn run(self, links: &Links, cx: &CallCx) -> ToolResult<Redstone> {
        let seen = links.one(&self.computer, Capability::Redstone).await?;
        let question = Question::new("redstone.set", MOMENT).params(self.params());
        let said = while_wanted(cx, links.ask_one::<Said>(&seen, question)).await?;
        Ok(said.told(seen.computer.name()))
    }
}

impl SetRedstone {
    fn params(&self) -> Value {
        match self.signal {
            Signal::Strength(strength) => json!({ "side": self.side, "strength": strength }),
            Signal::Bundled(colours) => json!({ "side": self.side, "bundled": colours }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    #[test]
    fn exactly_one_signal_is_set() {
        let set = |strength: Value, bundled: Value| {
            let given = json!({ "computer": 12, "side": "top", "strength": strength, "bundled": bundled });
            from_value::<SetRedstone>(given).map(|set| set.params())
        };
        assert_eq!(set(json!(15), Value::Null).unwrap(), json!({ "side": "top", "strength": 15 }));
        assert_eq!(set(json!(0), Value::Null).unwrap(), json!({ "side": "top", "strength": 0 }));
        assert_eq!(set(Value::Null, json!(65535)).unwrap(), json!({ "side": "top", "bundled": 65535 }));
        for (strength, bundled) in [
            (json!(16), Value::Null),
            (json!(-1), Value::Null),
            (Value::Null, json!(65536)),
            (Value::Null, Value::Null),
            (json!(1), json!(1)),
        ] {
            assert!(set(strength, bundled).is_err());
        }
    }

    #[test]
    fn the_human_sees_which_side_and_how_strong() {
        let set = json!({ "computer": "base", "side": "back", "strength": 7 });
        assert_eq!(from_value::<SetRedstone>(set).unwrap().summary(), "set redstone to 7 at back of computer base");
    }
}
