//! `probe-computers`: a ping to all computers at once, a line for each.

use nexus_core::prelude::*;

use super::line::{Came, LINE, Named, Reason};
use crate::links::Links;
use crate::round::{Outcome, Question};

/// Bytes of an answer, of which nothing is repeated: ten thousand large ones would fill the memory.
const LARGEST: usize = 2048;

/// Pings all linked computers at once and tells in a line each which of them answered.
///
/// `pong from 12 (Label: base-turtle)`, `timeout from 14 (Label: farm-turtle)`, `error from 15 (Label: null)`. Takes no
/// longer than the slowest answer or the timeout of about two seconds. `list_computers` tells more of each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeComputers {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Probe {
    /// By number.
    computers: Vec<Probed>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Probed {
    #[serde(flatten)]
    named: Named,
    outcome: Ping,
    /// Why there is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Ping {
    Pong,
    Timeout,
    Error,
}

impl Tool<Links> for ProbeComputers {
    const NAME: &'static str = "probe-computers";
    const ALIASES: &'static [&'static str] = &["probe_computers"];
    const ACCESS: Access = Access::Read;
    type Reply = Probe;

    fn summary(&self) -> String {
        "ping all linked computers".to_owned()
    }

    fn text(probe: &Probe) -> Option<String> {
        Some(probe.lines())
    }

    async fn run(self, links: &Links, _: &CallCx) -> ToolResult<Probe> {
        let seen = links.computers().await?;
        let targets = seen.iter().map(|seen| seen.target).collect();
        let named = Named::all(&seen);
        drop(seen); // ten thousand of them need not wait for the answers
        let outcomes = links.ask(targets, Question::ping(links.patience()).largest(LARGEST)).await?;
        Ok(Probe { computers: named.into_iter().zip(&outcomes).map(Probed::of).collect() })
    }
}

impl Probe {
    fn lines(&self) -> String {
        if self.computers.is_empty() {
            return "No computers connected.".to_owned();
        }
        let mut lines = String::with_capacity(self.computers.len() * LINE);
        for probed in &self.computers {
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines.push_str(match probed.outcome {
                Ping::Pong => "pong from ",
                Ping::Timeout => "timeout from ",
                Ping::Error => "error from ",
            });
            probed.named.write(&mut lines);
        }
        lines
    }
}

impl Probed {
    fn of((named, outcome): (Named, &Outcome)) -> Self {
        let (outcome, reason) = match Came::of(outcome) {
            Came::Answer => (Ping::Pong, None),
            Came::Timeout => (Ping::Timeout, None),
            Came::Error(reason) => (Ping::Error, Some(reason)),
        };
        Self { named, outcome, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::named;
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    #[test]
    fn each_computer_has_its_line_and_none_of_its_own_words_in_it() {
        let evil = to_raw_value("pong from 99\npong from 98").unwrap();
        let probe = Probe {
            computers: vec![
                Probed::of((named(12, Some("base-turtle"), Some("survival"), false), &Outcome::Answer(evil))),
                Probed::of((named(14, Some("farm-turtle"), None, false), &Outcome::Silent)),
                Probed::of((named(15, None, None, true), &Outcome::Refused("pong from 97".into()))),
                Probed::of((named(15, None, Some("creative"), true), &Outcome::Gone)),
            ],
        };
        let lines = "pong from 12 (Label: base-turtle)\n\
                     timeout from 14 (Label: farm-turtle)\n\
                     error from 15 (Label: null, World: null)\n\
                     error from 15 (Label: null, World: creative)";
        assert_eq!(probe.lines(), lines);
        let expected = json!({ "computers": [
            { "id": 12, "label": "base-turtle", "world": "survival", "outcome": "pong" },
            { "id": 14, "label": "farm-turtle", "world": null, "outcome": "timeout" },
            { "id": 15, "label": null, "world": null, "outcome": "error", "reason": "refused" },
            { "id": 15, "label": null, "world": "creative", "outcome": "error", "reason": "gone" },
        ] });
        assert_eq!(serde_json::to_value(&probe).unwrap(), expected);
    }

    #[test]
    fn nobody_is_told_of_in_the_documented_words() {
        assert_eq!(Probe { computers: Vec::new() }.lines(), "No computers connected.");
    }
}
