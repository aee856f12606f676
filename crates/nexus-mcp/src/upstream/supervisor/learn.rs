//! Asking a server what it has, and comparing that with what was allowed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;
use tracing::debug;

use super::Inner;
use super::establish::{Trouble, told};
use super::offer::{Assembled, Lists, Offer, assemble};
use super::parts::Happened;
use super::state::SetAside;
use crate::upstream::client::{Client, Listed};
use crate::upstream::error::{ProtocolError, UpstreamError};
use crate::wire::METHOD_NOT_FOUND;

/// All lists of a server together; a single page has the time of any request.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lists everything and makes the offer. What comes back is what is wrong with the server all the same; the error is
/// that it cannot be used.
pub async fn learn(inner: &Arc<Inner>, client: &Client) -> Result<Option<String>, Trouble> {
    let patience = PATIENCE.max(inner.config.timeout);
    let Ok(gathered) = timeout(patience, gather(client)).await else {
        return Err(Trouble::Failed(format!("its lists did not end within {} s", patience.as_secs())));
    };
    let (lists, fault) = gathered.map_err(|error| Trouble::of(error, &inner.config))?;
    if fault.is_some() {
        // What was known of it is better than nothing.
        return Ok(fault);
    }
    let name = &inner.config.name;
    let allowed = inner.parts.memory.pins(name).await?;
    let is_met = !allowed.is_empty() || inner.parts.memory.met(name).await?;
    let naming = inner.naming.read().clone();
    let made = assemble(&inner.config, &naming, &inner.parts.names, lists, is_met.then_some(&allowed[..])).await;
    let Assembled { offer, first } = made;
    if let Some(first) = first {
        inner.parts.memory.allow(name, first).await?;
    }
    let before: HashSet<String> = inner.offer.borrow().held().map(|tool| tool.hash.clone()).collect();
    let held: Vec<String> = offer
        .held()
        .filter(|tool| !before.contains(&tool.hash))
        .map(|tool| super::tool::shown(&tool.original))
        .collect();
    if !held.is_empty() {
        debug!(upstream = %name, "`{name}` has {} new or changed tools that wait to be allowed: {}", held.len(), told(&held.join(", ")));
        inner.parts.witness.happened(name, Happened::Held { tools: held });
    }
    publish_renamed(inner, offer);
    Ok(None)
}

async fn gather(client: &Client) -> Result<(Lists, Option<String>), UpstreamError> {
    let server = client.server();
    let mut lists = Lists { server: Some(server.clone()), ..Lists::default() };
    let mut fault = None;
    if server.has("tools") {
        match list(client, Listed::Tools).await? {
            Ok(tools) => lists.tools = tools,
            Err(error) => fault = Some(told(&format!("its tools cannot be listed: {error}"))),
        }
    }
    if server.has("prompts") {
        match list(client, Listed::Prompts).await? {
            Ok(prompts) => lists.prompts = prompts,
            Err(error) => lists.missing.push(missing("prompts", &error)),
        }
    }
    if server.has("resources") {
        match list(client, Listed::Resources).await? {
            Ok(resources) => lists.resources = resources,
            Err(error) => lists.missing.push(missing("resources", &error)),
        }
        match list(client, Listed::Templates).await? {
            Ok(templates) => lists.templates = templates,
            // Many have resources and no templates.
            Err(ProtocolError::Rpc { code, .. }) if code == i64::from(METHOD_NOT_FOUND) => {}
            Err(error) => lists.missing.push(missing("resource templates", &error)),
        }
    }
    Ok((lists, fault))
}

/// A list, or how the server failed to give it. The outer error is that the connection failed.
async fn list(client: &Client, what: Listed) -> Result<Result<Vec<Box<RawValue>>, ProtocolError>, UpstreamError> {
    match client.list(what).await {
        Ok(items) => Ok(Ok(items)),
        Err(failed) => match failed.error {
            UpstreamError::Protocol(error) => Ok(Err(error)),
            error => Err(error),
        },
    }
}

fn missing(what: &str, error: &ProtocolError) -> SetAside {
    SetAside { tool: format!("(its {what})"), why: told(&format!("they cannot be listed: {error}")) }
}

/// Replaces the offer. Those who watch it are told when it reads differently.
pub fn publish(inner: &Inner, offer: Offer) {
    inner.offer.send_if_modified(|current| {
        let differs = !current.reads_like(&offer);
        *current = Arc::new(offer);
        differs
    });
}

/// The same with an offer that was some time in the making: its names may have changed meanwhile.
pub fn publish_renamed(inner: &Inner, offer: Offer) {
    let naming = inner.naming.read();
    if offer.naming == *naming {
        return publish(inner, offer);
    }
    inner.parts.names.release(&inner.config.name);
    publish(inner, offer.renamed(&naming, &inner.parts.names));
}
