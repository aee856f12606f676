//! What the bot says, in words.

use std::fmt::Write as _;

use serde_json::Value;

use nexus_core::{redact, text};

use super::split::{self, LONGEST};
use crate::agents::task::{Kind, Task, TaskId};

/// Messages that something other than a task may take.
const MOST_PARTS: usize = 4;
const LONGEST_LINE: usize = 120;

/// A task, as it is posted: who it is for, how to answer, and what is to be done.
pub fn task(task: &Task) -> Vec<String> {
    let Task { id, target, content, .. } = task;
    let head = format!("#{id} for {target}\n(reply to this; /done {id} or /fail {id} ends it)\n\n");
    let whole = format!("{head}{}", own_hidden(content));
    let parts = split::parts(&whole, LONGEST - 40);
    let all = parts.len();
    let numbered = |(part, nth): (&str, usize)| match nth {
        1 => part.to_owned(),
        nth => format!("#{id}, part {nth} of {all}\n{part}"),
    };
    parts.into_iter().zip(1..).map(numbered).collect()
}

/// Who is told what became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Who was given it.
    Agent,
    Sender,
}

/// What became of a task. None: they need not know.
pub fn notice(task: &Task, kind: Kind, content: &str, whom: Whom) -> Option<String> {
    let Task { id, target, .. } = task;
    let head = match kind {
        Kind::Question => format!("#{id}: {target} asks (reply to this to answer)"),
        Kind::Answer if whom == Whom::Sender => format!("#{id}: that was answered elsewhere"),
        Kind::Answer => format!("#{id}: the answer"),
        Kind::Complete => format!("#{id}: {target} is done"),
        Kind::Error => format!("#{id}: {target} could not do it"),
        Kind::Cancelled => format!("#{id} is cancelled: do not go on with it"),
        Kind::Dead => format!("#{id} was given up"),
        Kind::Acknowledged | Kind::Progress | Kind::Note => return None,
    };
    Some(match content.trim() {
        "" => head,
        content => format!("{head}\n\n{}", text::clean(content)),
    })
}

/// For somebody who has answered an earlier question.
pub fn asks_another(task: &Task, answered: bool, question: &str) -> String {
    let over = if answered { "was answered already" } else { "is asked no more" };
    format!("that question {over}; #{} asks now (reply to this):\n\n{}", task.id, text::clean(question))
}

/// For somebody who answers what asks nothing.
pub fn does_not_ask(Task { id, status, target, .. }: &Task) -> String {
    let status = status.as_str().replace('_', " ");
    format!("#{id} is {status} and does not wait for an answer; /send {target} makes a new task")
}

/// Why something was not done. Tools give hints to models, in the names of tools; people have commands.
pub fn for_people(why: &str) -> String {
    let Some((why, hint)) = why.split_once("\nhint: ") else { return why.to_owned() };
    let hint = match hint {
        hint if hint.contains("`list_tasks`") => "/tasks shows those there are",
        hint if hint.contains("`get_task`") => "/tasks shows where it stands",
        hint if hint.contains('`') => return why.to_owned(),
        hint => hint,
    };
    format!("{why}\n{hint}")
}

/// In messages of a length that Telegram takes, and not too many.
pub fn bounded(words: &str) -> Vec<String> {
    let words = own_hidden(words);
    let parts = split::parts(&words, LONGEST - 40);
    let left = parts.len().saturating_sub(MOST_PARTS);
    let mut parts: Vec<String> = parts.into_iter().take(MOST_PARTS).map(str::to_owned).collect();
    if let Some(last) = parts.last_mut().filter(|_| left > 0) {
        last.push_str("\n… (`nexus tasks show` has it all)");
    }
    parts
}

/// Whatever somebody wrote, the hub's own secrets do not leave with it.
fn own_hidden(words: &str) -> String {
    redact::own_values(&text::clean(words)).into_owned()
}

/// The reply of `queue_status`.
pub fn status(reply: &Value) -> String {
    let number = |of: &Value, name: &str| of[name].as_i64().unwrap_or_default();
    let mut words = format!(
        "{} waiting, {} in progress, {} dead",
        number(reply, "pending"),
        number(reply, "in_progress"),
        number(reply, "dead")
    );
    for target in reply["targets"].as_array().into_iter().flatten() {
        let name = target["target"].as_str().unwrap_or_default();
        let (pending, running) = (number(target, "pending"), number(target, "in_progress"));
        let _ = write!(words, "\n\n{name}: {pending} waiting, {running} in progress");
        if number(target, "input_required") > 0 {
            let _ = write!(words, ", {} with a question", number(target, "input_required"));
        }
        if let Some(task) = target["current_task"].as_str() {
            let _ = write!(words, "\n  now: {}", line(task));
        }
        push_trouble(&mut words, target);
    }
    for channel in reply["channels"].as_array().into_iter().flatten() {
        if channel["deaf"].as_bool() == Some(true) {
            let _ = write!(words, "\n\nchannel {}", channel["name"].as_str().unwrap_or_default());
            push_trouble(&mut words, channel);
        }
    }
    text::clean(&words).into_owned()
}

fn push_trouble(words: &mut String, of: &Value) {
    match (of["trouble"].as_str(), of["deaf"].as_bool()) {
        (Some(trouble), _) => {
            let _ = write!(words, "\n  trouble: {}", line(trouble));
        }
        (None, Some(true)) => words.push_str("\n  nobody is there"),
        _ => {}
    }
}

/// The reply of `list_tasks`.
pub fn tasks(reply: &Value) -> String {
    let mut words = String::new();
    for task in reply["tasks"].as_array().into_iter().flatten() {
        let field = |name: &str| task[name].as_str().unwrap_or_default();
        let _ = writeln!(
            words,
            "#{} {}, {}: {}",
            field("id"),
            field("target"),
            field("status").replace('_', " "),
            line(field("first_line"))
        );
    }
    match words.is_empty() {
        true => "no tasks".to_owned(),
        false => text::clean(&words).into_owned(),
    }
}

/// The reply of `send_message`, and the task that it is about.
pub fn sent(reply: &Value) -> (Option<TaskId>, String) {
    let field = |name: &str| reply[name].as_str().unwrap_or_default();
    let id = field("id").parse().ok();
    let words = match reply["queued"].as_bool() {
        Some(true) => {
            let mut words = format!("#{} for {}", field("id"), field("target"));
            match reply["position"].as_i64() {
                Some(1) => words.push_str(", next in the queue"),
                Some(position) if position > 1 => {
                    let _ = write!(words, ", {} before it", position - 1);
                }
                _ => {}
            }
            let stopped: Vec<_> = reply["stopped"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !stopped.is_empty() {
                let _ = write!(words, "; stopped: {}", stopped.join(", "));
            }
            words
        }
        _ => format!("the same is there already: #{}", field("id")),
    };
    (id, words)
}

/// On one line, not too long.
pub fn line(words: &str) -> String {
    let words = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    text::cut(&words, LONGEST_LINE).into_owned()
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::agents::task::{Priority, Status};

    pub fn some_task(content: &str) -> Task {
        Task {
            id: TaskId(5),
            target: Arc::from("homelab"),
            content: content.to_owned(),
            priority: Priority::Normal,
            status: Status::Acknowledged,
            sender: "default".to_owned(),
            idempotency_key: None,
            max_attempts: 1,
            attempts: 1,
            created: nexus_core::clock::now(),
            deadline: None,
            acknowledged: None,
            started: None,
            completed: None,
            claim: None,
            claimed_by: None,
            lease_until: None,
            question: None,
            result: None,
            exit_code: None,
            reason: None,
        }
    }

    #[test]
    fn a_task_says_whose_it_is_and_how_to_answer() {
        let posted = task(&some_task("check_the *disks*"));
        assert_eq!(posted, ["#t5 for homelab\n(reply to this; /done t5 or /fail t5 ends it)\n\ncheck_the *disks*"]);
    }

    #[test]
    fn the_hub_s_own_secrets_do_not_leave_whoever_wrote_them() {
        redact::learn(["777000:AAlearnt_by_this_test"]);
        let posted = task(&some_task("use 777000:AAlearnt_by_this_test for it")).concat();
        assert!(posted.contains("for it") && !posted.contains("AAlearnt"), "{posted}");
        assert!(!bounded("777000:AAlearnt_by_this_test").concat().contains("AAlearnt"));
    }

    #[test]
    fn a_long_task_is_posted_in_numbered_parts_that_telegram_takes() {
        let posted = task(&some_task(&"All of 🦀 it. ".repeat(8_000)));
        assert!(posted.len() > 20);
        assert!(posted.iter().all(|part| split::units(part) <= LONGEST));
        assert!(posted[1].starts_with(&format!("#t5, part 2 of {}\n", posted.len())), "{}", posted[1]);
        assert_eq!(posted.concat().matches('🦀').count(), 8_000);
    }

    #[test]
    fn people_are_told_of_commands_and_not_of_tools() {
        check("no\nhint: `list_tasks` shows those there are", "no\n/tasks shows those there are");
        check("no\nhint: `get_task` tells what happened to it", "no\n/tasks shows where it stands");
        check("no\nhint: give its id as `task`", "no");
        check("no\nhint: known targets: a, b", "no\nknown targets: a, b");
        check("there is no target `x`", "there is no target `x`");

        #[track_caller]
        fn check(why: &str, told: &str) {
            assert_eq!(for_people(why), told);
        }
    }

    #[test]
    fn what_is_told_is_bounded_and_says_where_the_rest_is() {
        let long = bounded(&"word ".repeat(10_000));
        assert_eq!(long.len(), MOST_PARTS);
        assert!(long[3].ends_with("has it all)"));
        assert!(long.iter().all(|part| split::units(part) <= LONGEST));
        assert_eq!(bounded("short"), ["short"]);
    }

    #[test]
    fn replies_of_tools_become_words() {
        let reply = json!({ "pending": 2, "in_progress": 1, "dead": 0, "targets": [
            { "target": "homelab", "pending": 2, "in_progress": 1, "input_required": 1, "current_task": "look\nat it",
              "deaf": true }], "channels": [{ "name": "telegram bot", "deaf": true, "trouble": "another program" }] });
        assert_eq!(
            status(&reply),
            "2 waiting, 1 in progress, 0 dead\n\nhomelab: 2 waiting, 1 in progress, 1 with a question\n  now: look at \
             it\n  nobody is there\n\nchannel telegram bot\n  trouble: another program"
        );
        let line = json!({ "tasks": [{ "id": "t3", "target": "a", "status": "in_progress", "first_line": "go" }] });
        assert_eq!(tasks(&line), "#t3 a, in progress: go\n");
        assert_eq!(tasks(&json!({ "tasks": [] })), "no tasks");
        let queued = json!({ "queued": true, "id": "t4", "target": "a", "position": 3, "stopped": ["t2"] });
        assert_eq!(sent(&queued), (Some(TaskId(4)), "#t4 for a, 2 before it; stopped: t2".to_owned()));
        let duplicate = json!({ "queued": false, "id": "t4", "target": "a" });
        assert_eq!(sent(&duplicate), (Some(TaskId(4)), "the same is there already: #t4".to_owned()));
    }
}
