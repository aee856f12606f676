//! What must not be done twice. An update comes again when the hub ended between doing what it wants and noting so,
//! and by then somebody may have asked the next question, or the task may be finished once more.
//!
//! A note in the store tells which update is being done, and what the last thing was that had happened before. When
//! that update comes again, what has happened since tells whether it was done.

use nexus_core::text;
use serde_json::{Value, json};

use super::Bot;
use super::inbound::Heard;
use crate::agents::queue::Wanted;
use crate::agents::task::{Kind, TaskId, Update};
use crate::agents::voice::Refused;

/// What was done stands among the first updates of its task behind the note.
const FIRST: i64 = 1_000;

/// What somebody decides of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed<'a> {
    /// Only to this question, where it is known.
    Answer {
        question: Option<i64>,
        answer: &'a str,
    },
    Cancel(Option<&'a str>),
    Retry,
}

impl Deed<'_> {
    fn call(self, task: TaskId) -> (&'static str, Value) {
        let id = task.to_string();
        match self {
            Deed::Answer { question: Some(question), answer } => {
                ("answer_task", json!({ "id": id, "answer": text::clean(answer), "question_id": question }))
            }
            Deed::Answer { question: None, answer } => {
                ("answer_task", json!({ "id": id, "answer": text::clean(answer) }))
            }
            Deed::Cancel(Some(reason)) => ("cancel_task", json!({ "id": id, "reason": reason })),
            Deed::Cancel(None) => ("cancel_task", json!({ "id": id })),
            Deed::Retry => ("retry_task", json!({ "id": id })),
        }
    }

    /// Whoever did it: a second answer would be one to another question.
    fn is_told_by(self, update: &Update) -> bool {
        match self {
            Deed::Answer { .. } => update.kind == Kind::Answer,
            Deed::Cancel(_) => update.kind == Kind::Cancelled,
            Deed::Retry => update.kind == Kind::Note && update.content.starts_with("put back into the queue by "),
        }
    }
}

impl Bot {
    /// Does it, unless this very update has done it before.
    pub(super) async fn once(&self, heard: &Heard<'_>, task: TaskId, deed: Deed<'_>) -> Result<(), Refused> {
        if self.did(heard, task, deed).await? {
            return Ok(());
        }
        if self.noted(heard.number).await?.is_none() {
            let last = self.queue.last_update().await?;
            self.store.remember(&self.deed_note(), &format!("{} {last}", heard.number)).await?;
        }
        let (tool, args) = deed.call(task);
        heard.call(tool, args).await.map(drop)
    }

    /// Whether this update came before, and this was done then.
    pub(super) async fn did(&self, heard: &Heard<'_>, task: TaskId, deed: Deed<'_>) -> Result<bool, Refused> {
        let Some(after) = self.noted(heard.number).await? else { return Ok(false) };
        let wanted = Wanted { after, task: Some(task), limit: FIRST, ..Wanted::default() };
        Ok(self.queue.updates(&wanted).await?.iter().any(|update| deed.is_told_by(update)))
    }

    /// What had happened last before this update was first done. None: it is new.
    async fn noted(&self, number: i64) -> Result<Option<i64>, Refused> {
        let note = self.store.remembered(&self.deed_note()).await?;
        let note = note.as_deref().and_then(parse_note);
        Ok(note.filter(|(noted, _)| *noted == number).map(|(_, last)| last))
    }

    fn deed_note(&self) -> String {
        format!("telegram:doing:{}:{}", self.home, self.id)
    }
}

fn parse_note(note: &str) -> Option<(i64, i64)> {
    let (number, last) = note.split_once(' ')?;
    Some((number.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_tells_which_update_and_since_when() {
        assert_eq!(parse_note("104 17"), Some((104, 17)));
        assert_eq!(parse_note(""), None);
    }
}
