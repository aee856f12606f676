//! What is posted to a webhook target, and by which name it is known however often it comes.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use nexus_core::clock;

use crate::agents::task::{Priority, Task, TaskId, Update};

/// Before the name of every claim that is ours.
const CLAIM: &str = "webhook:";

/// One message. It has the same `webhook-id` in every try, also after a restart.
#[derive(Clone, Debug)]
pub struct Letter {
    pub id: String,
    pub body: Vec<u8>,
    /// For the record.
    pub what: String,
}

/// A claim of ours: one attempt at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(Uuid);

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Task {
        id: String,
        target: &'a str,
        content: &'a str,
        priority: Priority,
        created_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        attempt: i64,
        /// Where updates are to be posted, at this hub.
        reply_to: String,
    },
    /// Stop working on it.
    Cancel { id: String, target: &'a str, reason: &'a str },
    /// The answer to its question.
    Answer { id: String, target: &'a str, content: &'a str },
}

impl Attempt {
    pub fn new() -> Self {
        Self(clock::new_id())
    }

    /// None: somebody else's claim.
    pub fn of(task: &Task) -> Option<Self> {
        let name = task.claim.as_deref()?.strip_prefix(CLAIM)?;
        Uuid::parse_str(name).ok().map(Self)
    }

    pub fn claim(self) -> String {
        format!("{CLAIM}{}", self.0)
    }

    /// When it was made.
    pub fn since(self) -> Timestamp {
        let seconds = self.0.get_timestamp().map_or((0, 0), |stamp| stamp.to_unix());
        i64::try_from(seconds.0)
            .ok()
            .and_then(|whole| Timestamp::new(whole, seconds.1.cast_signed()).ok())
            .unwrap_or_default()
    }

    fn id(self) -> String {
        format!("msg_{}", self.0.simple())
    }
}

impl Letter {
    pub fn task(task: &Task, attempt: Attempt) -> Self {
        let content = Content::Task {
            id: task.id.to_string(),
            target: &task.target,
            content: &task.content,
            priority: task.priority,
            created_at: task.created,
            deadline: task.deadline,
            attempt: task.attempts,
            reply_to: format!("/agents/{}/updates", task.target),
        };
        Self::new(attempt.id(), &content, format!("task {}", task.id))
    }

    /// `update` tells that the task is over.
    pub fn cancel(task: TaskId, attempt: Attempt, update: &Update) -> Self {
        let content = Content::Cancel { id: task.to_string(), target: &update.target, reason: &update.content };
        Self::new(format!("{}_{}", attempt.id(), update.seq), &content, format!("cancel {task}"))
    }

    pub fn answer(task: TaskId, attempt: Attempt, update: &Update) -> Self {
        let content = Content::Answer { id: task.to_string(), target: &update.target, content: &update.content };
        Self::new(format!("{}_{}", attempt.id(), update.seq), &content, format!("answer to {task}"))
    }

    fn new(id: String, content: &Content<'_>, what: String) -> Self {
        Self { id, body: serde_json::to_vec(content).unwrap_or_default(), what }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::agents::task::{Kind, Status};

    fn task(attempt: Attempt) -> Task {
        Task {
            id: TaskId(5),
            target: Arc::from("nexus:felt"),
            content: "do it".to_owned(),
            priority: Priority::High,
            status: Status::Acknowledged,
            sender: "default".to_owned(),
            idempotency_key: None,
            max_attempts: 1,
            attempts: 1,
            created: Timestamp::UNIX_EPOCH,
            deadline: None,
            acknowledged: None,
            started: None,
            completed: None,
            claim: Some(attempt.claim()),
            claimed_by: None,
            lease_until: None,
            question: None,
            result: None,
            exit_code: None,
            reason: None,
        }
    }

    #[test]
    fn an_attempt_is_known_again_by_its_claim_and_has_one_name() {
        let attempt = Attempt::new();
        let task = task(attempt);
        assert_eq!(Attempt::of(&task), Some(attempt));
        let age = clock::now().duration_since(attempt.since()).as_secs();
        assert!((0..60).contains(&age), "{age}");
        assert_eq!(Letter::task(&task, attempt).id, Letter::task(&task, Attempt::of(&task).unwrap()).id);
        assert_ne!(Letter::task(&task, attempt).id, Letter::task(&task, Attempt::new()).id);
        for claim in [None, Some("robot"), Some("webhook:"), Some("webhook:x")] {
            assert_eq!(Attempt::of(&Task { claim: claim.map(str::to_owned), ..task.clone() }), None, "{claim:?}");
        }
    }

    #[test]
    fn a_letter_says_what_the_agent_needs() {
        let attempt = Attempt::new();
        let body = |letter: Letter| serde_json::from_slice::<Value>(&letter.body).unwrap();
        let expected = json!({
            "type": "task", "id": "t5", "target": "nexus:felt", "content": "do it", "priority": "high",
            "created_at": "1970-01-01T00:00:00Z", "attempt": 1, "reply_to": "/agents/nexus:felt/updates",
        });
        assert_eq!(body(Letter::task(&task(attempt), attempt)), expected);
        let update = Update {
            seq: 9,
            task: Some(TaskId(5)),
            target: Arc::from("a"),
            kind: Kind::Cancelled,
            content: "no longer".to_owned(),
            created: Timestamp::UNIX_EPOCH,
        };
        let cancel = Letter::cancel(TaskId(5), attempt, &update);
        assert_ne!(cancel.id, Letter::task(&task(attempt), attempt).id);
        assert_eq!(body(cancel), json!({ "type": "cancel", "id": "t5", "target": "a", "reason": "no longer" }));
    }
}
