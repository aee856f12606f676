//! `ask_operator`: an agent cannot go on alone.

use nexus_core::prelude::*;
use nexus_core::tool::{Hidden, Listed};

use super::report;
use super::vigil::Vigil;
use super::words::{Chosen, Id, Said, Wait};
use super::{failed, serving};
use crate::agents::Bridge;
use crate::agents::queue::{QueueError, Report, Saying, Topic};
use crate::agents::task::Status;

/// Asks whoever sent the task, and waits for the answer. The task is `input_required` until then.
///
/// Ask one clear question at a time, with the choices that you see and what you would do. If `answered` is false,
/// nobody has answered yet: call again with the same `task` and the `question_id` of the reply to wait on, without
/// asking again. You may be silent meanwhile. If `stop` is true, nobody wants the task any more: stop working on it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskOperator {
    /// What you need to know, at most 100,000 bytes. Not needed with `question_id`.
    question: Option<Said>,
    /// The task; without it, the only one that you have running.
    task: Option<Id>,
    /// The name of your claim, where `claim_task` gave one; without it, your key's claim is meant.
    claim: Option<Chosen>,
    /// A name for this question: the same again under the same name is asked once. For callers that repeat what got no
    /// answer.
    source: Option<Chosen>,
    /// How many seconds to wait for the answer, 0 to 60; without it, 0.
    #[schemars(range(min = 0, max = 60))]
    wait_seconds: Option<Wait>,
    /// A question that was asked before: only waits for its answer.
    question_id: Option<i64>,
}

#[derive(Debug, Error)]
#[error("there is no question")]
struct NoQuestion;

#[derive(Debug, Serialize, JsonSchema)]
pub struct Asked {
    task: String,
    /// The number of the question, to wait on with.
    question_id: i64,
    answered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    /// Where the task stands now.
    status: Status,
    /// Nobody wants the task any more: stop working on it.
    stop: bool,
}

impl Tool<Bridge> for AskOperator {
    const NAME: &'static str = "ask_operator";
    const ACCESS: Access = Access::ReadLogged;
    const LISTED: Listed = Listed::Agents;
    /// The agent needs the answer as it was given.
    const HIDDEN: Hidden = Hidden::OwnSecrets;
    type Reply = Asked;

    fn summary(&self) -> String {
        format!("ask the operator{}", report::of(self.task))
    }

    async fn run(self, bridge: &Bridge, cx: &CallCx) -> ToolResult<Asked> {
        let claim = self.claim.as_ref().map(Chosen::as_str);
        let task = serving::meant(bridge, cx, self.task.map(|id| id.0), claim).await?;
        let wait = self.wait_seconds.unwrap_or_default();
        let who = serving::who(cx, claim);
        let mut vigil = Vigil::new(bridge, cx, &Topic::Tasks(task.target.clone()), wait, "the answer");
        let question = match (self.question_id, self.question) {
            (Some(question), _) => question,
            (None, Some(question)) => {
                let report = Report {
                    task: task.id,
                    who: who.clone(),
                    saying: Saying::Ask,
                    content: question.into_string(),
                    exit_code: None,
                    source: serving::source(cx, self.source.as_ref().map(Chosen::as_str)),
                };
                cx.note(&task.id.to_string());
                match bridge.queue.report(report).await {
                    Ok(asked) => asked.seq,
                    Err(error) => return Err(not_asked(bridge, error).await),
                }
            }
            (None, None) => {
                let hint = "give `question`, or the `question_id` of one that waits";
                return Err(ToolError::refused(NoQuestion).hint(hint));
            }
        };
        loop {
            let (status, answer) = bridge.queue.asked(task.id, question, &who).await.map_err(not_open)?;
            let stop = status.is_finished();
            if answer.is_some() || stop || !vigil.goes_on().await {
                let (task, answered) = (task.id.to_string(), answer.is_some());
                return Ok(Asked { task, question_id: question, answered, answer, status, stop });
            }
        }
    }
}

/// One question at a time: whoever asks another is told which one to wait for.
async fn not_asked(bridge: &Bridge, error: QueueError) -> ToolError {
    let QueueError::Conflict { task, .. } = error else { return failed(error) };
    let waits = bridge.queue.task(task).await.ok().flatten().and_then(|task| task.question);
    let error = failed(error);
    match waits {
        Some(question) => error.hint(format!(
            "call again with `question_id` {question} and without `question` to wait for that answer, then ask this one"
        )),
        None => error,
    }
}

/// There is nothing to wait for.
fn not_open(error: QueueError) -> ToolError {
    let over = matches!(error, QueueError::Conflict { .. });
    let error = failed(error);
    if over { error.hint("ask again with `question`, and without `question_id`") } else { error }
}
