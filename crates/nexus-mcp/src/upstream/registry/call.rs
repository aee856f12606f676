//! Calling a tool by its name here, for programs without a hub.

use serde_json::Value;
use thiserror::Error;
use uuid::Uuid;

use nexus_core::principal::{Level, PrincipalId};

use super::{Registry, permitted};
use crate::upstream::client::{Ask, CallResult};
use crate::upstream::error::{ConfigurationError, RequestError};
use crate::upstream::supervisor::{Misfit, Unavailable};

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    pub agent: PrincipalId,
    /// None: no permissions, so nothing may be called.
    pub level: Option<Level>,
    /// Servers with `isolate` have a process for each.
    pub session: Uuid,
}

/// A call that has no result.
#[derive(Debug, Error)]
pub enum CallError {
    #[error("no tool `{0}`")]
    Unknown(String),
    #[error(transparent)]
    Denied(#[from] ConfigurationError),
    /// New, or not what was allowed. Nothing was sent.
    #[error("the tool `{tool}` waits to be allowed:\n{diff}")]
    Held { tool: String, diff: String },
    /// Nothing was sent.
    #[error("the arguments do not fit: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Misfits(Vec<Misfit>),
    /// Nothing was sent.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Its `delivery` says whether it may have happened all the same.
    #[error(transparent)]
    Request(RequestError),
}

impl Registry {
    /// Calls a tool. Whether the caller may is looked at every time.
    pub async fn call(&self, caller: &Caller, tool: &str, arguments: &Value) -> Result<CallResult, CallError> {
        permitted(caller.level)?;
        let found = self.find_by_tool(tool, &caller.agent);
        let (upstream, tool) = found.ok_or_else(|| CallError::Unknown(tool.chars().take(80).collect()))?;
        if let Some(diff) = tool.diff() {
            return Err(CallError::Held { tool: tool.exposed.to_string(), diff });
        }
        tool.check(arguments).map_err(CallError::Misfits)?;
        let client = upstream.client_for(caller.session, &tool).await?;
        let mut ask = Ask::tool(&tool.original, &arguments.to_string());
        if let Some(arguments) = arguments.as_object() {
            ask.headers = tool.headers(arguments);
        }
        client.call(ask).await.map_err(|error| {
            upstream.failed(&error);
            CallError::Request(error)
        })
    }
}
