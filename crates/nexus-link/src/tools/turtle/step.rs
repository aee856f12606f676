//! What a turtle can be told to do, a step at a time.

use std::fmt;

use nexus_core::prelude::*;
use nexus_core::text::one_line;
use serde_json::{Value, json};

/// Steps in a list, and in all when those that are repeated are counted.
const LISTED: usize = 256;
const IN_ALL: usize = 512;
/// Characters on a sign.
const TEXT: usize = 400;

/// One thing that a turtle does; the names are those of its Lua API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    Forward,
    Back,
    Up,
    Down,
    TurnLeft,
    TurnRight,
    Dig,
    DigUp,
    DigDown,
    Place,
    PlaceUp,
    PlaceDown,
    Attack,
    AttackUp,
    AttackDown,
    Suck,
    SuckUp,
    SuckDown,
    Drop,
    DropUp,
    DropDown,
    Select,
    Refuel,
    TransferTo,
    EquipLeft,
    EquipRight,
    Craft,
    Inspect,
    InspectUp,
    InspectDown,
    Detect,
    DetectUp,
    DetectDown,
    Compare,
    CompareUp,
    CompareDown,
    Inventory,
}

impl Action {
    /// It changes nothing.
    pub fn looks(self) -> bool {
        use Action::{
            Compare, CompareDown, CompareUp, Detect, DetectDown, DetectUp, Inspect, InspectDown, InspectUp, Inventory,
        };
        matches!(
            self,
            Inspect
                | InspectUp
                | InspectDown
                | Detect
                | DetectUp
                | DetectDown
                | Compare
                | CompareUp
                | CompareDown
                | Inventory
        )
    }

    fn takes_slot(self) -> bool {
        matches!(self, Action::Select | Action::TransferTo)
    }

    fn takes_count(self) -> bool {
        use Action::{Craft, Drop, DropDown, DropUp, Refuel, Suck, SuckDown, SuckUp, TransferTo};
        matches!(self, Suck | SuckUp | SuckDown | Drop | DropUp | DropDown | Refuel | TransferTo | Craft)
    }

    fn takes_text(self) -> bool {
        matches!(self, Action::Place | Action::PlaceUp | Action::PlaceDown)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An action, and what it needs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Given")]
#[schemars(with = "Given")]
pub struct Step {
    pub action: Action,
    count: Option<u8>,
    slot: Option<u8>,
    text: Option<String>,
    times: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Given {
    action: Action,
    /// How many items, 1 to 64: for suck, drop, refuel, transferTo and craft. Without it, as many as go.
    #[schemars(range(min = 1, max = 64))]
    count: Option<u8>,
    /// 1 to 16: for select and transferTo.
    #[schemars(range(min = 1, max = 16))]
    slot: Option<u8>,
    /// What a sign says: for place.
    text: Option<String>,
    /// Do it so many times, 1 to 64; without it, once.
    #[schemars(range(min = 1, max = 64))]
    times: Option<u8>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadStep {
    #[error("`{0}` needs a `slot`, 1 to 16")]
    NoSlot(Action),
    #[error("`{action}` takes no `{field}`")]
    TakesNo { action: Action, field: &'static str },
    #[error("`slot` is 1 to 16")]
    Slot,
    #[error("`{0}` is 1 to 64")]
    Many(&'static str),
    #[error("`text` has at most {TEXT} characters")]
    Text,
}

impl TryFrom<Given> for Step {
    type Error = BadStep;

    fn try_from(given: Given) -> Result<Self, BadStep> {
        let Given { action, count, slot, text, times } = given;
        let takes_no = |field| Err(BadStep::TakesNo { action, field });
        match slot {
            None if action.takes_slot() => return Err(BadStep::NoSlot(action)),
            Some(_) if !action.takes_slot() => return takes_no("slot"),
            Some(slot) if !(1..=16).contains(&slot) => return Err(BadStep::Slot),
            None | Some(_) => {}
        }
        match count {
            Some(_) if !action.takes_count() => return takes_no("count"),
            Some(count) if !(1..=64).contains(&count) => return Err(BadStep::Many("count")),
            None | Some(_) => {}
        }
        match &text {
            Some(_) if !action.takes_text() => return takes_no("text"),
            Some(text) if text.chars().count() > TEXT => return Err(BadStep::Text),
            None | Some(_) => {}
        }
        match times.unwrap_or(1) {
            times @ 1..=64 => Ok(Self { action, count, slot, text, times }),
            _ => Err(BadStep::Many("times")),
        }
    }
}

impl Step {
    /// As the computer is told.
    pub fn params(&self) -> Value {
        let mut params = json!({ "action": self.action });
        if let Some(count) = self.count {
            params["count"] = count.into();
        }
        if let Some(slot) = self.slot {
            params["slot"] = slot.into();
        }
        if let Some(text) = &self.text {
            params["text"] = text.as_str().into();
        }
        params
    }
}

impl fmt::Display for Step {
    /// For the human who is asked: `drop 3`, `transferTo slot 2`, `forward ×10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.action)?;
        if let Some(slot) = self.slot {
            write!(f, " slot {slot}")?;
        }
        if let Some(count) = self.count {
            write!(f, " {count}")?;
        }
        if let Some(text) = &self.text {
            write!(f, " “{}”", one_line(text))?;
        }
        if self.times > 1 {
            write!(f, " ×{}", self.times)?;
        }
        Ok(())
    }
}

/// Steps in their order: some, and not too many.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Step>")]
#[schemars(with = "Vec<Step>")]
pub struct Steps(Vec<Step>);

#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadSteps {
    #[error("{0} steps are listed; there may be 1 to {LISTED}")]
    Listed(usize),
    #[error("with their `times` these are {0} steps; at most {IN_ALL} can be made in one call")]
    InAll(usize),
}

impl TryFrom<Vec<Step>> for Steps {
    type Error = BadSteps;

    fn try_from(steps: Vec<Step>) -> Result<Self, BadSteps> {
        if !(1..=LISTED).contains(&steps.len()) {
            return Err(BadSteps::Listed(steps.len()));
        }
        let steps = Self(steps);
        if steps.total() > IN_ALL { Err(BadSteps::InAll(steps.total())) } else { Ok(steps) }
    }
}

impl Steps {
    pub fn total(&self) -> usize {
        self.0.iter().map(|step| usize::from(step.times)).sum()
    }

    /// Each as often as it is to be made.
    pub fn each(&self) -> impl Iterator<Item = &Step> {
        self.0.iter().flat_map(|step| std::iter::repeat_n(step, step.times.into()))
    }

    /// None of them changes anything.
    pub fn only_look(&self) -> bool {
        self.0.iter().all(|step| step.action.looks())
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    #[test]
    fn a_step_has_what_its_action_takes_and_nothing_else() {
        check(json!({ "action": "forward", "times": 10 }), Ok("forward ×10"));
        check(json!({ "action": "turnLeft" }), Ok("turnLeft"));
        check(json!({ "action": "transferTo", "slot": 2, "count": 3 }), Ok("transferTo slot 2 3"));
        check(json!({ "action": "placeUp", "text": "a\nb" }), Ok("placeUp “a⏎b”"));
        check(json!({ "action": "select" }), Err("`select` needs a `slot`, 1 to 16"));
        check(json!({ "action": "select", "slot": 17 }), Err("`slot` is 1 to 16"));
        check(json!({ "action": "dig", "slot": 1 }), Err("`dig` takes no `slot`"));
        check(json!({ "action": "inventory", "count": 1 }), Err("`inventory` takes no `count`"));
        check(json!({ "action": "drop", "count": 65 }), Err("`count` is 1 to 64"));
        check(json!({ "action": "dig", "text": "x" }), Err("`dig` takes no `text`"));
        check(json!({ "action": "place", "text": "x".repeat(401) }), Err("`text` has at most 400 characters"));
        check(json!({ "action": "up", "times": 0 }), Err("`times` is 1 to 64"));
        check(json!({ "action": "fly" }), Err("unknown variant `fly`"));
        check(json!({ "action": "up", "speed": 1 }), Err("unknown field `speed`"));

        #[track_caller]
        fn check(json: Value, expected: Result<&str, &str>) {
            match (from_value::<Step>(json).map(|step| step.to_string()), expected) {
                (Ok(step), Ok(expected)) => assert_eq!(step, expected),
                (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
                (found, _) => panic!("{found:?}"),
            }
        }
    }

    #[test]
    fn the_computer_is_told_in_the_words_of_the_contract() {
        let params = |json| from_value::<Step>(json).unwrap().params();
        assert_eq!(params(json!({ "action": "digUp", "times": 3 })), json!({ "action": "digUp" }));
        let all = json!({ "action": "transferTo", "count": 1, "slot": 16 });
        assert_eq!(params(all.clone()), all);
    }

    #[test]
    fn a_list_is_not_too_long_even_with_repeats() {
        let steps = |many: usize, times: u8| {
            let list = vec![json!({ "action": "up", "times": times }); many];
            from_value::<Steps>(list.into()).map(|steps| steps.each().count()).map_err(|error| error.to_string())
        };
        assert_eq!(steps(256, 2), Ok(512));
        assert_eq!(steps(1, 64), Ok(64));
        assert!(steps(0, 1).unwrap_err().contains("1 to 256"));
        assert!(steps(257, 1).unwrap_err().contains("1 to 256"));
        assert!(steps(9, 64).unwrap_err().contains("576 steps"));
    }

    #[test]
    fn looking_is_told_from_acting() {
        let look = |actions: &[&str]| {
            let steps: Vec<_> = actions.iter().map(|action| json!({ "action": action })).collect();
            from_value::<Steps>(steps.into()).unwrap().only_look()
        };
        assert!(look(&["inspect", "detectUp", "compareDown", "inventory"]));
        assert!(!look(&["inspect", "turnLeft"]));
        assert!(!look(&["equipLeft"]));
    }
}
