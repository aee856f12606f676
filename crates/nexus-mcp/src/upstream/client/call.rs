//! Calling, as a whole: with the rounds of questions of the new era, and a result one can read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::few::Few;
use super::line::Line;
use super::outcome::failed;
use super::{Ask, Host, Listener};
use crate::upstream::error::{Delivery, ProtocolError, RequestError};
use crate::wire::{RpcError, quoted};

/// How often a server may ask before it has to answer.
const MOST_ROUNDS: usize = 10;

/// Questions in one round.
const MOST_QUESTIONS: usize = 16;

/// Bytes of the server's state that goes back with the answers.
const LARGEST_STATE: usize = 1024 * 1024;

/// The result of a call, as the server wrote it.
#[derive(Clone, Debug)]
pub struct CallResult(Box<RawValue>);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parts<'a> {
    #[serde(borrow)]
    content: Few<Block<'a>>,
    is_error: Option<bool>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

impl CallResult {
    /// All of its text, block by block on lines of their own. Not cleaned: it is for a program.
    pub fn text(&self) -> String {
        let Few(blocks) = self.parts().content;
        let texts: Vec<&str> =
            blocks.iter().filter(|block| block.kind == "text").filter_map(|block| block.text.as_deref()).collect();
        texts.join("\n")
    }

    /// Whether the tool says that it failed.
    pub fn is_error(&self) -> bool {
        self.parts().is_error == Some(true)
    }

    pub fn structured(&self) -> Option<&RawValue> {
        self.parts().structured_content
    }

    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }

    fn parts(&self) -> Parts<'_> {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl From<Box<RawValue>> for CallResult {
    fn from(result: Box<RawValue>) -> Self {
        Self(result)
    }
}

/// A result that is not one yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unfinished<'a> {
    #[serde(borrow, default)]
    input_requests: BTreeMap<String, Question<'a>>,
    #[serde(borrow)]
    request_state: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Question<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

pub(super) async fn through_rounds(line: &Arc<Line>, ask: Ask<'_>) -> Result<CallResult, RequestError> {
    let mut result = line.request(ask.clone()).await?;
    for _ in 0..MOST_ROUNDS {
        let answers = match unfinished(&result)? {
            None => return Ok(CallResult(result)),
            Some(unfinished) => answers(&*line.desk.host, ask.listener.as_deref(), &unfinished).await?,
        };
        let mut again = ask.clone();
        again.fields.push_str(if again.fields.is_empty() { &answers[1..] } else { &answers });
        result = line.request(again).await?;
    }
    match unfinished(&result)? {
        None => Ok(CallResult(result)),
        Some(_) => Err(nonsense("it asks without end")),
    }
}

/// Only what says so in its `resultType` is; everything else is a result, also one that we cannot read.
fn unfinished(result: &RawValue) -> Result<Option<Unfinished<'_>>, RequestError> {
    if !result.get().contains("input_required") {
        return Ok(None);
    }
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow, rename = "resultType")]
        result_type: Option<Cow<'a, str>>,
    }
    let kind: Kind<'_> = serde_json::from_str(result.get()).map_err(|_| nonsense("its result does not fit"))?;
    if kind.result_type.as_deref() != Some("input_required") {
        return Ok(None);
    }
    let unfinished: Unfinished<'_> =
        serde_json::from_str(result.get()).map_err(|_| nonsense("its questions do not fit"))?;
    let state = unfinished.request_state.as_ref().map_or(0, |state| state.len());
    if unfinished.input_requests.len() > MOST_QUESTIONS || state > LARGEST_STATE {
        return Err(nonsense("it asks too much at once"));
    }
    if unfinished.input_requests.is_empty() && unfinished.request_state.is_none() {
        return Err(nonsense("it asks for nothing"));
    }
    Ok(Some(unfinished))
}

/// The fields that go with the request when it is sent again, each after a comma.
async fn answers(
    host: &dyn Host,
    listener: Option<&dyn Listener>,
    unfinished: &Unfinished<'_>,
) -> Result<String, RequestError> {
    let mut fields = String::new();
    let mut responses = String::new();
    for (key, question) in &unfinished.input_requests {
        let answer = match listener {
            Some(listener) => listener.asked(&question.method, question.params).await,
            None => host.asked(&question.method, question.params).await,
        };
        let answer = answer.map_err(|error| unanswered(&question.method, &error))?;
        let _ = write!(responses, ",{}:{}", quoted(key), answer.get());
    }
    if let Some(responses) = responses.strip_prefix(',') {
        let _ = write!(fields, r#","inputResponses":{{{responses}}}"#);
    }
    if let Some(state) = &unfinished.request_state {
        let _ = write!(fields, r#","requestState":{}"#, quoted(state));
    }
    Ok(fields)
}

fn unanswered(method: &str, error: &RpcError) -> RequestError {
    let method: String = nexus_core::text::cut(&nexus_core::text::clean(method), 100).into_owned();
    failed(ProtocolError::Unanswered { method, why: error.message.clone() }, Delivery::Answered)
}

fn nonsense(why: &str) -> RequestError {
    failed(ProtocolError::Nonsense(why.to_owned()), Delivery::Answered)
}
