//! Tools for measuring and for breaking, made like any other tool, and the one that fills long listings.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use nexus_core::prelude::*;
use nexus_core::reply::Reply;
use nexus_core::tool::Entry;

use super::{Fixture, Takes};

pub(super) const TOOLS: &[Entry<()>] = &[Entry::of::<Echo>(), Entry::of::<TestPanic>(), Entry::of::<TestSleep>()];

/// Returns the message it was given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Echo {
    /// What to return.
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Echoed {
    message: String,
}

impl Tool<()> for Echo {
    const NAME: &'static str = "echo";
    const ACCESS: Access = Access::Read;
    type Reply = Echoed;

    fn summary(&self) -> String {
        "return the message".to_owned()
    }

    fn text(reply: &Echoed) -> Option<String> {
        Some(reply.message.clone())
    }

    async fn run(self, (): &(), _: &CallCx) -> ToolResult<Echoed> {
        Ok(Echoed { message: self.message })
    }
}

/// Panics. The caller gets an incident number, and everyone else is not disturbed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TestPanic {}

#[derive(Debug, Serialize, JsonSchema)]
struct Never {}

impl Tool<()> for TestPanic {
    const NAME: &'static str = "test_panic";
    const ACCESS: Access = Access::Read;
    type Reply = Never;

    fn summary(&self) -> String {
        "panic".to_owned()
    }

    async fn run(self, (): &(), _: &CallCx) -> ToolResult<Never> {
        panic!("the fixture test_panic was called")
    }
}

/// Waits, and says every 100 ms how long it has waited. Not longer than 600 seconds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TestSleep {
    /// How long.
    seconds: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Slept {
    seconds: f64,
}

const LONGEST: Duration = Duration::from_secs(600);
const REPORT_EVERY: Duration = Duration::from_millis(100);

impl Tool<()> for TestSleep {
    const NAME: &'static str = "test_sleep";
    const ACCESS: Access = Access::Read;
    type Reply = Slept;

    fn summary(&self) -> String {
        format!("wait for {} seconds", self.seconds)
    }

    async fn run(self, (): &(), cx: &CallCx) -> ToolResult<Slept> {
        // What is no duration is negative or endless.
        let endless = if self.seconds < 0.0 { Duration::ZERO } else { LONGEST };
        let whole = Duration::try_from_secs_f64(self.seconds).unwrap_or(endless).min(LONGEST);
        let started = Instant::now();
        while started.elapsed() < whole {
            sleep_until((Instant::now() + REPORT_EVERY).min(started + whole)).await;
            let done = started.elapsed().min(whole).as_secs_f64();
            cx.progress(Progress { done, total: Some(whole.as_secs_f64()), message: None });
        }
        Ok(Slept { seconds: started.elapsed().as_secs_f64() })
    }
}

/// The name is the beginning of all their names. They are of the size real tools have in a listing.
pub(super) static DUMMY: Fixture = Fixture {
    name: "dummy_",
    about: "One of many tools that do nothing, described at about the length a real tool is, so that a listing has a \
            realistic size on the wire.",
    takes: Takes::Shown(|| {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "where" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 1000, "description": "how many" },
                "recursive": { "type": "boolean", "description": "whether to descend" },
            },
            "required": ["path"],
        })
    }),
    run: |_| async { Ok(Reply::plain("ok")) }.boxed(),
};
