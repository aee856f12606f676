//! What a webhook target's agent says: checked, and made a call of the same tools that an agent with a key has.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tracing::warn;

use nexus_core::{Chain, clock};
use nexus_mcp::front::updates::{Signed, Taken, Updates};

use super::sign::{Disbelieved, Seal};
use super::{Hook, Hooks};
use crate::agents::voice::Refused;

/// When to send again what could not be kept.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// The body of an update.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    /// `t5`. Left out: the only one that is being worked on.
    task: Option<String>,
    kind: Saying,
    #[serde(default)]
    content: String,
    exit_code: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Saying {
    Progress,
    Note,
    Question,
    Complete,
    Error,
}

impl Updates for Hooks {
    fn take<'a>(&'a self, signed: Signed<'a>) -> BoxFuture<'a, Taken> {
        async move {
            let hook = self.get(signed.target);
            let signer = hook.map_or(&self.nobody, |hook| &hook.signer);
            let seal = Seal { id: signed.id, timestamp: signed.timestamp, signature: signed.signature };
            match (signer.verify(seal, signed.body, clock::now().as_second()), hook) {
                (Err(why), _) => Taken::Disbelieved(why.to_string()),
                // As good as impossible, and no reason to believe it.
                (Ok(()), None) => Taken::Disbelieved(Disbelieved::Wrong.to_string()),
                (Ok(()), Some(hook)) => match hook.allowance.take() {
                    Ok(()) => hook.hear(signed.id, signed.body).await,
                    Err(wait) => Taken::TooFast(wait),
                },
            }
        }
        .boxed()
    }
}

impl Hook {
    async fn hear(&self, id: &str, body: &[u8]) -> Taken {
        let said: Said = match serde_json::from_slice(body) {
            Ok(said) => said,
            Err(error) => return refused(400, &format!("not an update: {error}")),
        };
        let source = format!("wh:{}:{id}", self.target);
        let (tool, arguments) = said.into_call(source);
        match self.voice.call(tool, arguments).await {
            Ok(reply) => {
                self.queue.heard(&self.target, None).await;
                Taken::Answered { status: 200, body: answer(&reply) }
            }
            Err(Refused::Said(why)) => refused(422, &why),
            Err(Refused::Failed(why)) => {
                warn!(target = %self.target, "an update of {} was not taken: {why}", self.target);
                Taken::NotNow(COME_AGAIN)
            }
            Err(error) => {
                warn!(target = %self.target, "an update of {} was not taken: {}", self.target, Chain(&error));
                refused(500, "the hub could not take it; send it again")
            }
        }
    }
}

fn refused(status: u16, why: &str) -> Taken {
    Taken::Answered { status, body: json!({ "error": why }) }
}

impl Said {
    /// The tool that means it, and its arguments.
    fn into_call(self, source: String) -> (&'static str, Map<String, Value>) {
        let Self { task, kind, content, exit_code } = self;
        let (tool, word) = match kind {
            Saying::Progress | Saying::Note => ("post_update", "content"),
            Saying::Question => ("ask_operator", "question"),
            Saying::Complete => ("complete_task", "result"),
            Saying::Error => ("fail_task", "reason"),
        };
        let mut arguments = Map::from_iter([("source".to_owned(), source.into())]);
        // Nothing to add to a task that is done; anything else without words is for the tool to refuse.
        if !(kind == Saying::Complete && content.is_empty()) {
            arguments.insert(word.to_owned(), content.into());
        }
        if let Some(task) = task {
            arguments.insert("task".to_owned(), task.into());
        }
        if kind == Saying::Note {
            arguments.insert("kind".to_owned(), "note".into());
        }
        if let Some(code) = exit_code {
            arguments.insert("exit_code".to_owned(), code.into());
        }
        (tool, arguments)
    }
}

/// The same form for all of them.
fn answer(reply: &Value) -> Value {
    let field = |name: &str| reply.get(name).cloned().unwrap_or_default();
    let update = reply.get("update").or_else(|| reply.get("question_id")).cloned().unwrap_or_default();
    let status = field("status");
    let over = matches!(status.as_str(), Some("cancelled" | "dead"));
    let stop = reply.get("stop").and_then(Value::as_bool).unwrap_or(over);
    json!({ "update": update, "task": field("task"), "status": status, "stop": stop })
}

impl Hooks {
    fn get(&self, target: &str) -> Option<&Arc<Hook>> {
        self.all.get(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_becomes_the_call_that_means_it() {
        check(
            json!({ "kind": "progress", "content": "half", "task": "t5" }),
            "post_update",
            json!({ "content": "half", "task": "t5" }),
        );
        check(json!({ "kind": "note", "content": "x" }), "post_update", json!({ "content": "x", "kind": "note" }));
        check(
            json!({ "kind": "question", "content": "which?", "task": "t5" }),
            "ask_operator",
            json!({ "question": "which?", "task": "t5" }),
        );
        check(
            json!({ "kind": "complete", "content": "done", "task": "t5", "exit_code": 0 }),
            "complete_task",
            json!({ "result": "done", "task": "t5", "exit_code": 0 }),
        );
        check(json!({ "kind": "complete", "task": "t5" }), "complete_task", json!({ "task": "t5" }));
        check(
            json!({ "kind": "error", "content": "no", "task": "t5" }),
            "fail_task",
            json!({ "reason": "no", "task": "t5" }),
        );

        #[track_caller]
        fn check(body: Value, tool: &str, mut expected: Value) {
            expected["source"] = "wh:a:m1".into();
            let said: Said = serde_json::from_value(body).unwrap();
            let (called, arguments) = said.into_call("wh:a:m1".to_owned());
            assert_eq!((called, Value::Object(arguments)), (tool, expected));
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for body in [
            json!({}),
            json!({ "kind": "progres", "content": "" }),
            json!({ "kind": "progress", "content": 1 }),
            json!({ "kind": "note", "content": "", "target": "b" }),
            json!([]),
        ] {
            assert!(serde_json::from_value::<Said>(body.clone()).is_err(), "{body}");
        }
    }

    #[test]
    fn every_answer_has_the_same_form() {
        let complete = json!({ "task": "t5", "status": "complete", "update": 7 });
        assert_eq!(answer(&complete), json!({ "update": 7, "task": "t5", "status": "complete", "stop": false }));
        let late = json!({ "task": "t5", "status": "cancelled", "update": 7 });
        assert_eq!(answer(&late)["stop"], true);
        let asked =
            json!({ "task": "t5", "question_id": 8, "answered": false, "status": "input_required", "stop": false });
        assert_eq!(answer(&asked)["update"], 8);
        assert_eq!(
            answer(&json!({ "update": 9, "stop": false })),
            json!({ "update": 9, "task": null, "status": null, "stop": false })
        );
    }
}
