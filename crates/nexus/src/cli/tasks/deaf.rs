//! Who does not hear, as far as that matters to somebody who looks at tasks.

use serde::Deserialize;

use crate::cli::one_line;

/// What `queue_status` tells of this.
#[derive(Debug, Deserialize)]
pub struct Queues {
    targets: Vec<Target>,
    channels: Vec<Channel>,
}

#[derive(Debug, Deserialize)]
struct Target {
    target: String,
    way: String,
    pending: i64,
    in_progress: i64,
    deaf: bool,
    trouble: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Channel {
    name: String,
    deaf: bool,
    trouble: Option<String>,
}

impl Queues {
    /// A line for each; with `only`, for what has to do with that target.
    pub fn deaf(&self, only: Option<&str>) -> Vec<String> {
        // Whoever asks for one target learns from that what is wrong with its channel.
        let channels = self.channels.iter().filter(|channel| channel.deaf && only.is_none());
        let told: Vec<&str> = channels.clone().filter_map(|channel| channel.trouble.as_deref()).collect();
        let targets = self.targets.iter().filter(|target| target.is_missed());
        let targets = targets.filter(|target| target.trouble.as_deref().is_none_or(|trouble| !told.contains(&trouble)));
        channels.map(Channel::told).chain(targets.map(Target::told)).collect()
    }
}

impl Channel {
    fn told(&self) -> String {
        let name = one_line(&self.name);
        match &self.trouble {
            Some(trouble) => format!("The {name} is deaf: {}", one_line(trouble)),
            None => format!("The {name} was not heard for two minutes."),
        }
    }
}

impl Target {
    /// Somebody should hear, and does not. A worker's running tasks have a lease, which tells in time.
    fn is_missed(&self) -> bool {
        self.deaf && (self.pending > 0 || (self.in_progress > 0 && self.way != "worker"))
    }

    fn told(&self) -> String {
        let name = one_line(&self.target);
        match (&*self.way, &self.trouble) {
            ("removed", _) => format!(
                "{name} is no longer in nexus.yaml: its tasks stay as they are until `nexus tasks cancel` ends them."
            ),
            (_, Some(trouble)) => format!("{name} cannot be reached: {}", one_line(trouble)),
            (_, None) => format!("Nobody serves {name} now; its tasks wait."),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn target(target: &str, way: &str, waiting: (i64, i64), trouble: Option<&str>) -> Value {
        let (pending, in_progress) = waiting;
        json!({ "target": target, "way": way, "pending": pending, "in_progress": in_progress, "deaf": true,
                "trouble": trouble, "dead": 0 })
    }

    #[track_caller]
    fn check(targets: &[Value], channels: &[Value], only: Option<&str>, expected: &[&str]) {
        let queues: Queues = serde_json::from_value(json!({ "targets": targets, "channels": channels })).unwrap();
        assert_eq!(queues.deaf(only), expected);
    }

    #[test]
    fn whoever_should_hear_and_does_not_is_named() {
        let hears = json!({ "target": "a", "way": "worker", "pending": 1, "in_progress": 1, "deaf": false });
        check(&[hears, target("a", "worker", (0, 0), None)], &[], None, &[]);
        check(&[target("a", "worker", (1, 0), None)], &[], None, &["Nobody serves a now; its tasks wait."]);
        check(&[target("a", "worker", (0, 1), None)], &[], None, &[]);
        check(&[target("a", "webhook", (0, 1), Some("no\u{1b}[2J"))], &[], None, &["a cannot be reached: no"]);
        check(&[target("a", "webhook", (0, 0), Some("no"))], &[], None, &[]);
        let removed = "a is no longer in nexus.yaml: its tasks stay as they are until `nexus tasks cancel` ends them.";
        check(&[target("a", "removed", (0, 1), None)], &[], None, &[removed]);
    }

    #[test]
    fn a_channel_that_is_deaf_is_named_once_and_also_when_nothing_waits() {
        let bot = [json!({ "name": "telegram bot", "deaf": true, "trouble": "409" })];
        let line = "The telegram bot is deaf: 409";
        check(&[], &bot, None, &[line]);
        let desk = |trouble: &str| [target("desk", "telegram", (0, 1), Some(trouble))];
        check(&desk("409"), &bot, None, &[line]);
        check(&desk("kicked"), &bot, None, &[line, "desk cannot be reached: kicked"]);
        check(&desk("409"), &bot, Some("desk"), &["desk cannot be reached: 409"]);
        check(&[target("homelab", "worker", (0, 1), None)], &bot, Some("homelab"), &[]);
        let silent = json!({ "name": "telegram bot", "deaf": true });
        check(&[], &[silent], None, &["The telegram bot was not heard for two minutes."]);
        check(&[], &[json!({ "name": "telegram bot", "deaf": false })], None, &[]);
    }
}
