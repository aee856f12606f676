//! Servers behind the hub: how they are configured, reached, guarded and kept alive, and what they cannot do to it.

mod alive;
mod calls;
mod configured;
mod consent;
mod files;
mod hostile;
mod lists;
mod login;
mod pins;
mod processes;
mod rounds;
mod typed;
mod web;

use serde_json::{Value, json};

use crate::support::{Client, Hub, hostile, test_server};

/// A hub with these servers, all of them ready, and a key that is not asked.
async fn ready(servers: Value) -> Hub {
    let hub = Hub::start().robot().upstreams(&servers).await;
    hub.upstreams_are_ready(&servers).await;
    hub
}

/// What `look` of a hostile server sees of itself.
async fn look(client: &Client, server: &str) -> Value {
    let result = client.call(&format!("mcp_{server}_look"), json!({})).await;
    assert_ne!(result["isError"], true, "{result}");
    result["structuredContent"].clone()
}

/// The process behind a stdio server.
async fn pid(client: &Client, server: &str) -> u32 {
    u32::try_from(look(client, server).await["pid"].as_u64().unwrap()).unwrap()
}

async fn echo(client: &Client, server: &str, message: &str) -> Value {
    client.call(&format!("mcp_{server}_echo"), json!({ "message": message })).await
}

/// A server to see that the others go on, whatever one does.
fn beside(name: &str, entry: &Value) -> Value {
    json!({ name: entry, "plain": test_server(), "python": hostile("good") })
}
