//! Tasks and updates for a person at a terminal. All words in them are somebody else's.

use comfy_table::{ContentArrangement, Table, presets};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use nexus_core::{clock, text};

use crate::cli::one_line;

/// A task, as `list_tasks` tells of it.
#[derive(Debug, Deserialize)]
pub struct Listed {
    id: String,
    target: String,
    status: String,
    priority: String,
    first_line: String,
    created_at: Timestamp,
    reason: Option<String>,
}

/// A task, as `get_task` tells of it.
#[derive(Debug, Deserialize)]
pub struct Whole {
    pub id: String,
    pub target: String,
    pub status: String,
    priority: String,
    content: String,
    sender: String,
    attempts: i64,
    max_attempts: i64,
    created_at: Timestamp,
    deadline: Option<Timestamp>,
    acknowledged_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    claimed_by: Option<String>,
    lease_until: Option<Timestamp>,
    question: Option<String>,
    result: Option<String>,
    exit_code: Option<i64>,
    pub reason: Option<String>,
    updates: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Update {
    message_id: Option<String>,
    target: String,
    content: String,
    kind: String,
    created_at: Timestamp,
}

impl Whole {
    pub fn is_finished(&self) -> bool {
        matches!(self.status.as_str(), "complete" | "error" | "cancelled" | "dead")
    }
}

pub fn table(tasks: &[Listed]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["id", "status", "target", "age", "priority", "message"]);
    for task in tasks {
        let reason = task.reason.as_deref().map(|reason| format!(" [{}]", one_line(reason))).unwrap_or_default();
        table.add_row([
            one_line(&task.id),
            one_line(&task.status),
            one_line(&task.target),
            age(clock::now().duration_since(task.created_at)),
            one_line(&task.priority),
            format!("{}{reason}", one_line(&task.first_line)),
        ]);
    }
    table
}

/// One update: its first line beside its time, the others below. One that makes no sense is shown as it is.
pub fn update(update: &Value) -> String {
    let Ok(shown) = serde_json::from_value::<Update>(update.clone()) else {
        return format!("{}\n", one_line(&update.to_string()));
    };
    let task = shown.message_id.as_deref().unwrap_or("-");
    let (task, target, kind) = (one_line(task), one_line(&shown.target), one_line(&shown.kind));
    let head = format!("{}  {task:5} {target}  {kind:12}  ", time_of_day(shown.created_at));
    let shown_content = with_lines(&head, &shown.content);
    match shown.kind.as_str() {
        "question" => format!("{shown_content}          answer it with: nexus tasks answer {task} \"…\"\n"),
        _ => shown_content,
    }
}

/// All that is known of a task.
pub fn whole(task: &Whole) -> String {
    let mut told = format!("{}  {}  {}\n", one_line(&task.id), one_line(&task.status), one_line(&task.target));
    let mut line = |name: &str, value: String| told.push_str(&format!("{name:13}{value}\n"));
    line("sent", format!("{} by {}", local(task.created_at), one_line(&task.sender)));
    line("priority", one_line(&task.priority));
    for (name, at) in [
        ("deadline", task.deadline),
        ("acknowledged", task.acknowledged_at),
        ("started", task.started_at),
        ("completed", task.completed_at),
        ("lease until", task.lease_until),
    ] {
        if let Some(at) = at {
            line(name, local(at));
        }
    }
    if let Some(by) = &task.claimed_by {
        line("claimed by", one_line(by));
    }
    line("attempts", format!("{} of {}", task.attempts, task.max_attempts));
    if let Some(code) = task.exit_code {
        line("exit code", code.to_string());
    }
    for (name, words) in [("message", Some(&task.content)), ("question", task.question.as_ref())] {
        if let Some(words) = words {
            told.push_str(&with_lines(&format!("{name:13}"), words));
        }
    }
    for (name, words) in [("result", &task.result), ("reason", &task.reason)] {
        if let Some(words) = words {
            told.push_str(&with_lines(&format!("{name:13}"), words));
        }
    }
    if !task.updates.is_empty() {
        told.push('\n');
        task.updates.iter().for_each(|one| told.push_str(&update(one)));
    }
    told
}

/// The words behind a head, with their further lines below.
fn with_lines(head: &str, words: &str) -> String {
    let clean = text::clean(words).replace('\r', "\n").replace(['\u{2028}', '\u{2029}'], "\n");
    let mut lines = clean.trim_end().lines();
    let mut shown = format!("{head}{}\n", lines.next().unwrap_or_default());
    for line in lines.filter(|line| !line.is_empty()) {
        shown.push_str(&format!("    {line}\n"));
    }
    shown
}

fn local(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

fn time_of_day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

fn age(age: SignedDuration) -> String {
    match age.as_secs().max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_is_shown_with_its_lines_below_and_nothing_that_a_terminal_would_obey() {
        let shown = update(&json!({
            "id": 7, "message_id": "t5", "target": "homelab", "kind": "progress", "created_at": "2026-01-31T12:00:00Z",
            "content": "one\u{1b}[2J\r\ntwo\rthree\u{202e}\n\n",
        }));
        assert!(shown.ends_with("t5    homelab  progress      one\n    two\n    three\n"), "{shown:?}");
        assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}']), "{shown:?}");
        let odd = update(&json!({ "content": "\u{1b}[31m" }));
        assert!(!odd.contains('\u{1b}') && odd.ends_with('\n'), "{odd:?}");
    }

    #[test]
    fn ages_are_told_in_one_word() {
        for (seconds, expected) in [(-5, "0s"), (59, "59s"), (60, "1m"), (7_200, "2h"), (200_000, "2d")] {
            assert_eq!(age(SignedDuration::from_secs(seconds)), expected);
        }
    }
}
