//! Tasks and updates as a model reads them.

use jiff::Timestamp;
use nexus_core::prelude::*;
use nexus_core::{redact, text};

use crate::agents::task::{Kind, Priority, Status, Task, Update};

/// Bytes of an update, where it is one of many.
pub const UPDATE: usize = 20_000;
/// Bytes of updates in one reply, roughly.
pub const PAGE: usize = 100_000;
/// Running tasks that are looked at: an agent has a few, and a chat may have very many.
pub const RUNNING: i64 = 100;
/// Characters of a task's first line.
const LINE: usize = 200;

/// Something that an agent said, or that happened to a task.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShownUpdate {
    /// Grows by one with every update of the hub. As text it is also a cursor.
    id: i64,
    /// The task that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    target: String,
    content: String,
    kind: Kind,
    /// RFC 3339, UTC.
    created_at: String,
}

impl ShownUpdate {
    /// With at most so many bytes of content.
    pub fn of(update: Update, most: usize) -> Self {
        let Update { seq, task, target, kind, content, created } = update;
        let content = match content.len() {
            long if long > most => format!(
                "{}\n[cut: {most} of {long} bytes; `pull_updates` with cursor=\"{}\" and limit=1 gives it whole]",
                beginning(&content, most),
                seq - 1
            ),
            _ => content,
        };
        let message_id = task.map(|task| task.to_string());
        Self { id: seq, message_id, target: target.to_string(), content, kind, created_at: time(created) }
    }

    pub fn id(&self) -> i64 {
        self.id
    }

    /// Bytes, roughly.
    pub fn size(&self) -> usize {
        // The fields around the content come to about this.
        self.content.len() + 120
    }
}

/// A task on one line.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskLine {
    id: String,
    target: String,
    status: Status,
    priority: Priority,
    /// Its first line, cut.
    first_line: String,
    sender: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    /// Why it is dead, cancelled or in error.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl TaskLine {
    pub fn of(task: &Task) -> Self {
        Self {
            id: task.id.to_string(),
            target: task.target.to_string(),
            status: task.status,
            priority: task.priority,
            first_line: first_line(&task.content),
            sender: task.sender.clone(),
            created_at: time(task.created),
            completed_at: task.completed.map(time),
            reason: task.reason.as_deref().map(|reason| cut(reason, LINE)),
        }
    }
}

/// Where a task stands after something was done to it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Now {
    id: String,
    target: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Now {
    pub fn of(task: Task) -> Self {
        Self { id: task.id.to_string(), target: task.target.to_string(), status: task.status, reason: task.reason }
    }
}

/// Always with milliseconds: as texts they are in the order in which they are as times.
pub fn time(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// The first line that says something.
pub fn first_line(content: &str) -> String {
    let line = content.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    cut(line.trim(), LINE)
}

/// At most so many bytes. Hidden before it is cut: the half of a secret looks like nothing.
pub fn cut(words: &str, most: usize) -> String {
    match words.len() > most {
        true => format!("{}…", beginning(words, most)),
        false => words.to_owned(),
    }
}

/// A message on one line, whole and with what is to be hidden in it: for a summary, which the hub hides and cuts.
pub fn on_one_line(words: &str) -> String {
    words.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ⏎ ")
}

/// The beginning of a message on one line, without secrets: for the human who is asked, and for the record.
pub fn in_one_line(words: &str, most: usize) -> String {
    text::cut(&on_one_line(&redact::text(&text::clean(words))), most).into_owned()
}

fn beginning(words: &str, most: usize) -> String {
    let hidden = redact::text(words);
    hidden[..hidden.floor_char_boundary(most)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_cut_between_letters_and_shows_no_half_of_a_secret() {
        assert_eq!(cut("äöü", 4), "äö…");
        assert_eq!(cut("äöü", 6), "äöü");
        let shown = cut("see https://me:hunter2hunter2@host/ now", 20);
        assert!(!shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn a_message_is_told_by_its_first_line_and_shown_on_one() {
        assert_eq!(first_line("\n\n  Check the disks \nand more"), "Check the disks");
        assert_eq!(in_one_line("Check\r\n\n\u{1b}[31mall\u{1b}[0m of it", 100), "Check ⏎ all of it");
        assert_eq!(in_one_line("abcdef", 3), "abc…");
        let shown = in_one_line("use\nhttps://me:hunter2hunter2@host/ now", 30);
        assert_eq!(shown, "use ⏎ https://[redacted]@host/…");
    }
}
