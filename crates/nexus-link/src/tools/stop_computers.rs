//! `stop_computers`: whatever runs on any computer ends, now.

use std::fmt::Write;

use nexus_core::prelude::*;

use super::line::{Came, LINE, Named, Reason};
use super::said::{Maybe, Whole};
use crate::links::Links;
use crate::round::Outcome;

/// Ends whatever this hub started on the computers, on all of them at once: Lua code, chains of turtle steps, calls of
/// peripherals, files half written.
///
/// What they did until then stays done, and programs that players started run on. Needs no arguments: use it when
/// something goes wrong and look for the cause after.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopComputers {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Stop {
    /// All computers that can be stopped, by number.
    computers: Vec<Stopped>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Stopped {
    #[serde(flatten)]
    named: Named,
    outcome: Halt,
    /// How many works it ended, by its own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    /// Why there is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Halt {
    Stopped,
    /// It did not answer; what it runs may run on.
    Timeout,
    Error,
}

/// A computer's answer.
#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    stopped: Maybe<Whole>,
}

impl Tool<Links> for StopComputers {
    const NAME: &'static str = "stop_computers";
    const ACCESS: Access = Access::Write;
    type Reply = Stop;

    fn summary(&self) -> String {
        "end whatever runs on all linked computers".to_owned()
    }

    fn text(stop: &Stop) -> Option<String> {
        Some(stop.lines())
    }

    async fn run(self, links: &Links, _: &CallCx) -> ToolResult<Stop> {
        let (seen, outcomes): (Vec<_>, Vec<_>) = links.stop(links.patience()).await?.into_iter().unzip();
        Ok(Stop { computers: Named::all(&seen).into_iter().zip(&outcomes).map(Stopped::of).collect() })
    }
}

impl Stop {
    fn lines(&self) -> String {
        if self.computers.is_empty() {
            // Some may be linked that cannot, and what they were asked has ended here all the same.
            return "No linked computer can be told to stop; work under way was cancelled.".to_owned();
        }
        let mut lines = String::with_capacity(self.computers.len() * LINE);
        for stopped in &self.computers {
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines.push_str(match stopped.outcome {
                Halt::Stopped => "stopped ",
                Halt::Timeout => "timeout from ",
                Halt::Error => "error from ",
            });
            stopped.named.write(&mut lines);
            if let Some(ended) = stopped.ended {
                let _ = write!(lines, ": ended {ended}");
            }
        }
        lines
    }
}

impl Stopped {
    fn of((named, outcome): (Named, &Outcome)) -> Self {
        let (halt, reason) = match Came::of(outcome) {
            Came::Answer => (Halt::Stopped, None),
            Came::Timeout => (Halt::Timeout, None),
            Came::Error(reason) => (Halt::Error, Some(reason)),
        };
        let ended = match outcome {
            Outcome::Answer(raw) => serde_json::from_str::<Said>(raw.get()).ok().and_then(|said| said.stopped.0),
            _ => None,
        };
        Self { named, outcome: halt, ended: ended.map(|ended| ended.0), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::named;
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    #[test]
    fn each_computer_tells_how_much_it_ended() {
        let answer = |json: serde_json::Value| Outcome::Answer(to_raw_value(&json).unwrap());
        let stop = Stop {
            computers: vec![
                Stopped::of((named(1, Some("a"), None, false), &answer(json!({ "stopped": 2.0 })))),
                Stopped::of((named(2, None, None, false), &answer(json!("yes\nall of it")))),
                Stopped::of((named(3, None, None, false), &Outcome::Silent)),
                Stopped::of((named(4, None, None, false), &Outcome::Refused("no".into()))),
            ],
        };
        let lines = "stopped 1 (Label: a): ended 2\n\
                     stopped 2 (Label: null)\n\
                     timeout from 3 (Label: null)\n\
                     error from 4 (Label: null)";
        assert_eq!(stop.lines(), lines);
        assert_eq!(serde_json::to_value(&stop.computers[0]).unwrap()["ended"], 2);
    }
}
