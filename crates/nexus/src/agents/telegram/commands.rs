//! What can be typed into the chat.

use crate::agents::task::TaskId;

pub const HELP: &str = "\
Reply to a task to say something about it.
/done text – the task you reply to is done (or: /done t5 text)
/fail text – it cannot be done (or: /fail t5 text)
/status – what waits and what runs
/tasks – the last tasks (/tasks TARGET: of one agent)
/send TARGET text – give an agent a task; what becomes of it is told here
/answer ID text – answer an agent's question (or reply to it)
/cancel ID – end a task
/retry ID – once more
/help – this";

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Help,
    Status,
    Tasks {
        target: Option<String>,
    },
    Send {
        target: String,
        text: String,
    },
    Cancel {
        task: Option<TaskId>,
        reason: Option<String>,
    },
    Answer {
        task: Option<TaskId>,
        text: String,
    },
    Retry {
        task: Option<TaskId>,
    },
    Done {
        task: Option<TaskId>,
        text: String,
    },
    Fail {
        task: Option<TaskId>,
        text: String,
    },
    /// Not understood; this is how it goes.
    Usage(&'static str),
    Unknown,
    /// For another bot of the group.
    NotOurs,
}

impl Command {
    /// None: it is no command. `bot` is our own name; `is_reply` says that a task may be meant that is not named.
    pub fn parse(text: &str, bot: &str, is_reply: bool) -> Option<Self> {
        let text = text.trim();
        let (word, rest) = first_word(text.strip_prefix('/').filter(|text| !text.starts_with(char::is_whitespace))?);
        let (name, addressed) = word.split_once('@').map_or((word, None), |(name, bot)| (name, Some(bot)));
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.bytes().all(is_part_of_name) {
            // A path, say.
            return None;
        }
        if addressed.is_some_and(|addressed| !bot.is_empty() && !addressed.eq_ignore_ascii_case(bot)) {
            return Some(Command::NotOurs);
        }
        Some(match name.to_ascii_lowercase().as_str() {
            "help" | "start" => Command::Help,
            "status" => Command::Status,
            "tasks" => Command::Tasks { target: (!rest.is_empty()).then(|| rest.to_owned()) },
            "send" => match first_word(rest) {
                (target, text) if !target.is_empty() && !text.is_empty() => {
                    Command::Send { target: target.to_owned(), text: text.to_owned() }
                }
                _ => Command::Usage("/send TARGET text"),
            },
            "cancel" => match (some_task(rest), rest.is_empty()) {
                // "3 disks are enough": nothing is ended by a guess.
                ((Some(_), reason), _) if is_reply && !reason.is_empty() && !is_marked(rest) => {
                    Command::Usage("/cancel t5 why")
                }
                ((task @ Some(_), reason), _) => {
                    Command::Cancel { task, reason: (!reason.is_empty()).then(|| reason.to_owned()) }
                }
                (_, true) => Command::Cancel { task: None, reason: None },
                _ => Command::Usage("/cancel ID"),
            },
            "retry" => match (some_task(rest), rest.is_empty()) {
                ((task @ Some(_), ""), _) => Command::Retry { task },
                (_, true) => Command::Retry { task: None },
                _ => Command::Usage("/retry ID"),
            },
            "answer" => {
                let (task, text) = match is_reply {
                    true => marked_task(rest),
                    false => some_task(rest),
                };
                match text.is_empty() {
                    true => Command::Usage("/answer ID text"),
                    false => Command::Answer { task, text: text.to_owned() },
                }
            }
            "done" => with_task(rest, |task, text| Command::Done { task, text }),
            "fail" => match with_task(rest, |task, text| Command::Fail { task, text }) {
                Command::Fail { text, .. } if text.is_empty() => Command::Usage("/fail ID why it cannot be done"),
                fail => fail,
            },
            _ => Command::Unknown,
        })
    }
}

fn is_part_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// An id at the beginning, with its `t` or without.
fn some_task(rest: &str) -> (Option<TaskId>, &str) {
    let (word, text) = first_word(rest);
    match word.parse() {
        Ok(task) => (Some(task), text),
        Err(_) => (None, rest),
    }
}

/// An id only where it looks like one: "/done 3 disks are new" is not about t3.
fn marked_task(rest: &str) -> (Option<TaskId>, &str) {
    match is_marked(rest) {
        true => some_task(rest),
        false => (None, rest),
    }
}

fn is_marked(rest: &str) -> bool {
    rest.starts_with(['t', 'T', '#'])
}

fn with_task(rest: &str, command: impl Fn(Option<TaskId>, String) -> Command) -> Command {
    let (task, text) = marked_task(rest);
    command(task, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_people_type_them() {
        let task = |number| Some(TaskId(number));
        check("/help", &Some(Command::Help));
        check("/start", &Some(Command::Help));
        check(" /STATUS@Nexus_Bot ", &Some(Command::Status));
        check("/status@other_bot", &Some(Command::NotOurs));
        check("/tasks", &Some(Command::Tasks { target: None }));
        check("/tasks homelab", &Some(Command::Tasks { target: Some("homelab".into()) }));
        let send = |target: &str, text: &str| Some(Command::Send { target: target.into(), text: text.into() });
        check("/send nexus:felt look\nat it ", &send("nexus:felt", "look\nat it"));
        check("/send homelab", &Some(Command::Usage("/send TARGET text")));
        check("/cancel t5", &Some(Command::Cancel { task: task(5), reason: None }));
        check("/cancel 5 no need", &Some(Command::Cancel { task: task(5), reason: Some("no need".into()) }));
        check("/cancel", &Some(Command::Cancel { task: None, reason: None }));
        check("/cancel it", &Some(Command::Usage("/cancel ID")));
        check("/retry #7", &Some(Command::Retry { task: task(7) }));
        check("/retry 7 now", &Some(Command::Usage("/retry ID")));
        check("/answer t5 yes, do", &Some(Command::Answer { task: task(5), text: "yes, do".into() }));
        check("/answer yes", &Some(Command::Answer { task: None, text: "yes".into() }));
        check("/answer t5", &Some(Command::Usage("/answer ID text")));
        check("/done t5 all new", &Some(Command::Done { task: task(5), text: "all new".into() }));
        check("/done 3 disks are new", &Some(Command::Done { task: None, text: "3 disks are new".into() }));
        check("/done", &Some(Command::Done { task: None, text: String::new() }));
        check("/fail no power", &Some(Command::Fail { task: None, text: "no power".into() }));
        check("/fail t5", &Some(Command::Usage("/fail ID why it cannot be done")));
        check("/reboot", &Some(Command::Unknown));
        check("/etc/passwd is odd", &None);
        check("/ hello", &None);
        check("no /status", &None);

        #[track_caller]
        fn check(text: &str, expected: &Option<Command>) {
            assert_eq!(&Command::parse(text, "nexus_bot", false), expected, "{text}");
        }
    }

    #[test]
    fn in_a_reply_a_number_is_no_id_unless_it_is_marked_as_one() {
        let answer = |task: Option<i64>, text: &str| Command::Answer { task: task.map(TaskId), text: text.into() };
        check("/answer 2 of them", &answer(None, "2 of them"));
        check("/answer 5", &answer(None, "5"));
        check("/answer t2 of them", &answer(Some(2), "of them"));
        check("/answer #2 yes", &answer(Some(2), "yes"));
        check("/answer", &Command::Usage("/answer ID text"));
        check("/cancel 3 disks are enough", &Command::Usage("/cancel t5 why"));
        check("/cancel t3 no need", &Command::Cancel { task: Some(TaskId(3)), reason: Some("no need".into()) });
        check("/cancel 3", &Command::Cancel { task: Some(TaskId(3)), reason: None });

        #[track_caller]
        fn check(text: &str, expected: &Command) {
            assert_eq!(Command::parse(text, "nexus_bot", true).as_ref(), Some(expected), "{text}");
        }
    }
}
