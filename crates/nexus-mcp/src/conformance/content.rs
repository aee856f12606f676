//! Tools that answer at once: with every kind of content, with an error, with reports on the way.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use nexus_core::call::Progress;
use nexus_core::error::ToolError;
use nexus_core::provider::Revision;
use nexus_core::reply::Reply;

use super::{Fixture, NOTHING, Takes, Trouble, Turn, verbatim};

/// One red pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

/// One silent sample.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

/// Between two messages of the same call, so that they arrive as two.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) const TOOLS: &[Fixture] = &[
    Fixture {
        name: "test_simple_text",
        about: "Returns a text.",
        takes: NOTHING,
        run: |_| async { Ok(Reply::plain("This is a simple text response for testing.")) }.boxed(),
    },
    Fixture {
        name: "test_image_content",
        about: "Returns an image.",
        takes: NOTHING,
        run: |_| async { contents(&json!([image()])) }.boxed(),
    },
    Fixture {
        name: "test_audio_content",
        about: "Returns a sound.",
        takes: NOTHING,
        run: |_| async { contents(&json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }])) }.boxed(),
    },
    Fixture {
        name: "test_embedded_resource",
        about: "Returns a resource.",
        takes: NOTHING,
        run: |_| {
            let text = "This is an embedded resource content.";
            async move { contents(&json!([resource("test://embedded-resource", "text/plain", text)])) }.boxed()
        },
    },
    Fixture {
        name: "test_multiple_content_types",
        about: "Returns a text, an image and a resource.",
        takes: NOTHING,
        run: |_| async { contents(&mixed()) }.boxed(),
    },
    Fixture {
        name: "test_error_handling",
        about: "Fails, always.",
        takes: NOTHING,
        run: |_| {
            let error = ToolError::failed("This tool intentionally returns an error for testing");
            async { Err(error.into()) }.boxed()
        },
    },
    Fixture {
        name: "test_tool_with_logging",
        about: "Writes three log messages on the way.",
        takes: NOTHING,
        run: |turn| logging(turn).boxed(),
    },
    Fixture {
        name: "test_logging_tool",
        about: "Writes log messages, if the request wants any.",
        takes: NOTHING,
        run: |turn| logging(turn).boxed(),
    },
    Fixture {
        name: "test_tool_with_progress",
        about: "Reports its progress three times.",
        takes: NOTHING,
        run: |turn| progressing(turn).boxed(),
    },
    Fixture {
        name: "test_trigger_tool_change",
        about: "Adds a tool to the list, or takes it away again.",
        takes: NOTHING,
        run: |turn| async move { Ok(changed(&turn.shared.tools, "tools")) }.boxed(),
    },
    Fixture {
        name: "test_trigger_prompt_change",
        about: "Adds a prompt to the list, or takes it away again.",
        takes: NOTHING,
        run: |turn| async move { Ok(changed(&turn.shared.prompts, "prompts")) }.boxed(),
    },
    Fixture {
        name: "test_custom_header",
        about: "Returns an argument that clients repeat in a header.",
        takes: Takes::Shown(|| {
            let value = json!({ "type": "string", "description": "What to return.", "x-mcp-header": "Value" });
            json!({ "type": "object", "properties": { "value": value }, "required": ["value"] })
        }),
        run: |turn| async move { Ok(Reply::plain(turn.text("value"))) }.boxed(),
    },
    Fixture {
        name: "json_schema_2020_12_tool",
        about: "Tool with JSON Schema 2020-12 features",
        takes: Takes::Shown(schema_2020_12),
        run: |_| async { Ok(Reply::plain("The schema is what counts here.")) }.boxed(),
    },
];

/// Not always there.
pub(super) static CHANGED: Fixture = Fixture {
    name: "test_changed",
    about: "Is there after every second change of the list.",
    takes: NOTHING,
    run: |_| async { Ok(Reply::plain("Here I am.")) }.boxed(),
};

pub(super) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub(super) fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": text } })
}

fn mixed() -> Value {
    let text = json!({ "type": "text", "text": "Multiple content types test:" });
    let inside = json!({ "test": "data", "value": 123 }).to_string();
    json!([text, image(), resource("test://mixed-content-resource", "application/json", &inside)])
}

fn contents(blocks: &Value) -> Result<Reply, Trouble> {
    verbatim(&json!({ "content": blocks }))
}

async fn logging(turn: Turn) -> Result<Reply, Trouble> {
    let exchange = turn.exchange()?;
    exchange.log("info", &json!("Tool execution started")).await;
    sleep(PAUSE).await;
    exchange.log("info", &json!("Tool processing data")).await;
    sleep(PAUSE).await;
    exchange.log("info", &json!("Tool execution completed")).await;
    Ok(Reply::plain("Three messages were logged, if anyone wanted them."))
}

async fn progressing(turn: Turn) -> Result<Reply, Trouble> {
    let report = |done| turn.cx.progress(Progress { done, total: Some(100.0), message: None });
    report(0.0);
    sleep(PAUSE).await;
    report(50.0);
    sleep(PAUSE).await;
    report(100.0);
    Ok(Reply::plain("Progress was reported three times, if anyone asked for it."))
}

fn changed(revision: &watch::Sender<Revision>, what: &str) -> Reply {
    revision.send_modify(|revision| *revision += 1);
    Reply::plain(&format!("The {what} have changed."))
}

/// The suite looks for exactly these keywords in the listing.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
