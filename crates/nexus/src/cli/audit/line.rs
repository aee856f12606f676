//! A row as one line for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::cli::one_line;
use crate::store::body::Kept;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Plain,
    Coloured,
}

#[derive(Clone, Copy)]
enum Ink {
    Dim,
    Green,
    Yellow,
    Red,
    Cyan,
    Bold,
}

impl Look {
    fn paint(self, ink: Ink, words: &str) -> String {
        let code = match ink {
            Ink::Dim => 2,
            Ink::Green => 32,
            Ink::Yellow => 33,
            Ink::Red => 31,
            Ink::Cyan => 36,
            Ink::Bold => 1,
        };
        match self {
            Look::Plain => words.to_owned(),
            Look::Coloured => format!("\u{1b}[{code}m{words}\u{1b}[0m"),
        }
    }
}

/// The longest word in the column of outcomes and events.
const WIDEST: usize = "session_started".len();
/// Characters of a session's name: enough to tell it from others, and to look for it.
const SHORT: usize = 13;

/// One row. Whatever a model or a client wrote is cleaned and stays on its line.
pub fn of(row: &Kept, look: Look) -> String {
    let outcome = row.outcome.as_deref().unwrap_or(&row.event);
    let mut parts = vec![
        look.paint(Ink::Dim, &local(&row.at)),
        look.paint(ink_of(outcome), &format!("{:WIDEST$}", one_line(outcome))),
    ];
    let who = match (row.principal.as_deref(), row.client.as_deref()) {
        (Some(key), Some(client)) => Some(format!("{} ({})", one_line(key), one_line(client))),
        (key, client) => key.or(client).map(one_line),
    };
    parts.extend(who);
    if let Some(tool) = &row.tool {
        let node = row.node.as_deref().filter(|node| *node != "local").map(|node| format!("@{}", one_line(node)));
        parts.push(look.paint(Ink::Bold, &format!("{}{}", one_line(tool), node.unwrap_or_default())));
    }
    parts.extend(row.summary.as_deref().map(one_line));
    let decision = match (row.decision.as_deref(), row.how.as_deref()) {
        (Some("allowed"), None) | (None, None) => None,
        (Some(decision), Some(how)) => Some(format!("[{decision}: {how}]")),
        (one, other) => one.or(other).map(|word| format!("[{word}]")),
    };
    parts.extend(decision.map(|decision| one_line(&decision)));
    parts.extend(row.detail.as_deref().map(one_line));
    parts.extend(row.duration_us.map(|us| look.paint(Ink::Dim, &duration(us))));
    let session = row.session.as_deref().and_then(|session| session.get(..SHORT));
    parts.extend(session.map(|session| look.paint(Ink::Dim, &one_line(session))));
    parts.join("  ")
}

fn ink_of(outcome: &str) -> Ink {
    match outcome {
        "ok" | "approved" => Ink::Green,
        "error" | "failed" | "internal" | "abandoned" | "key_refused" | "denied" => Ink::Red,
        "refused" | "cancelled" | "waiting" | "unknown_tool" | "pruned" | "key_level" | "task" => Ink::Yellow,
        _ => Ink::Cyan,
    }
}

/// As the clocks here show it; a time that cannot be read stays as it is.
pub fn local(at: &str) -> String {
    at.parse::<Timestamp>().map_or_else(|_| one_line(at), |at| shown(at, "%Y-%m-%d %H:%M:%S%.3f"))
}

pub fn shown(at: Timestamp, format: &str) -> String {
    at.to_zoned(TimeZone::system()).strftime(format).to_string()
}

/// To three digits or so: nobody wants more of a duration.
fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(more: &str) -> Kept {
        let body = format!(
            r#"{{"id":"i","chain":"c","seq":1,"at":"2026-11-20T10:11:12.345678Z","event":"call","hash":"h"{more}}}"#
        );
        Kept::parse(&body).unwrap()
    }

    #[test]
    fn a_line_says_who_did_what_where_and_how_it_went() {
        let row = row(concat!(
            r#","session":"019a0000-1111-7000-8000-000000000000","principal":"laptop","client":"claude-code","tool":"#,
            r#""run_command","node":"pi","summary":"run `ls`","decision":"allowed","how":"yolo","outcome":"ok","duration_us":12345"#,
        ));
        let line = of(&row, Look::Plain);
        let (_, rest) = line.split_once("  ").unwrap();
        assert_eq!(
            rest,
            "ok               laptop (claude-code)  run_command@pi  run `ls`  [allowed: yolo]  12 ms  019a0000-1111"
        );
        assert!(of(&row, Look::Coloured).contains("\u{1b}[32mok"));
    }

    #[test]
    fn what_others_wrote_cannot_make_lines_or_colours() {
        let row = row(concat!(
            r#","client":"a\nb\u001b[31m","tool":"t\rx","summary":"one\n2026 ok\u202e","outcome":"o\u0007k","how":"h\ti","#,
            r#""decision":"d\u2028e","detail":"\u009b1mx","principal":"k\ny""#,
        ));
        let line = of(&row, Look::Plain);
        assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')), "{line:?}");
    }
}
