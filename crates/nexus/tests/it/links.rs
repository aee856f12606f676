//! Computers that dial in: what models see of them, what they can do with them, and who may.

mod beside;
mod driving;
mod ending;
mod files;
mod gate;
mod hostile;
mod ports;
mod probing;
mod stopping;
mod turtles;

use serde_json::Value;

use crate::support::Hub;
use crate::support::computers::{Computer, turtle};

/// A hub with a key that is not asked, and a turtle that can do everything.
async fn with_turtle() -> (Hub, Computer) {
    let hub = Hub::start().robot().await;
    let computer = hub.computer(turtle(12, "base-turtle")).await;
    (hub, computer)
}

/// The words of a call that failed.
#[track_caller]
fn failure(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    result["content"].to_string()
}

/// What a call says as text.
#[track_caller]
fn text(result: &Value) -> &str {
    assert_eq!((&result["isError"], result["content"].as_array().unwrap().len()), (&Value::Bool(false), 1), "{result}");
    result["content"][0]["text"].as_str().unwrap()
}
