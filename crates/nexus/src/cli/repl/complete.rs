//! What may come next on a line: completions, and the hint of what a command takes.

use super::command::{COMMANDS, usage_of};
use super::known::{Argument, Known};
use super::words;

/// Something that could be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub text: String,
    pub about: String,
    /// Where it begins, in bytes; it ends at the cursor.
    pub start: usize,
    /// Whether a new word follows.
    pub is_whole: bool,
}

const SCOPES: [(&str, &str); 3] = [
    ("once", "this call alone"),
    ("session", "all of it, this session"),
    ("each", "ask about every call of the server"),
];

const FLAGS: [(&str, &str); 4] = [
    ("--allow-all", "all its tools, this session"),
    ("--per-tool", "confirm each tool"),
    ("--shared", "for all keys"),
    ("--private", "for your key alone"),
];

/// All that fits at the end of the line.
pub fn candidates(known: &Known, line: &str) -> Vec<Candidate> {
    let words = words::so_far(line);
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let (Some(last), Some((typed, before))) = (words.last(), texts.split_last()) else { return Vec::new() };
    let servers = || owned(known.servers.iter().map(|server| (server.as_str(), "")));
    let tools = || owned(known.tools.iter().map(|tool| (tool.name.as_str(), tool.about.as_str())));
    let found: Vec<(String, String)> = match before {
        [] => owned(COMMANDS.iter().filter(|usage| !usage.name.contains(' ')).map(|usage| (usage.name, usage.about))),
        ["/mcp"] => owned(COMMANDS.iter().filter_map(|usage| Some((usage.name.strip_prefix("/mcp ")?, usage.about)))),
        ["/mcp", "connect"] if !typed.starts_with('-') => servers(),
        ["/mcp", "connect", ..] => owned(FLAGS.into_iter().filter(|(flag, _)| !before.contains(flag))),
        ["/mcp", "disconnect" | "tools" | "logs"] => servers(),
        ["/tools" | "/call"] => tools(),
        ["/call", tool, given @ ..] => return arguments(known, tool, given, typed, last.start),
        ["/audit", given @ ..] => return arguments(known, "get_audit_log", given, typed, last.start),
        ["/approve"] => owned(known.codes.iter().map(|code| (code.as_str(), "a call that waits"))),
        ["/approve", _] => owned(SCOPES),
        _ => Vec::new(),
    };
    let fits = found.into_iter().filter(|(text, _)| text.starts_with(typed));
    fits.map(|(text, about)| Candidate { text, about, start: last.start, is_whole: true }).collect()
}

/// `key=` for what is not given yet; behind it, the values it may have.
fn arguments(known: &Known, tool: &str, given: &[&str], typed: &str, start: usize) -> Vec<Candidate> {
    let Some(tool) = known.tool(tool) else { return Vec::new() };
    if let Some((key, value)) = typed.split_once('=') {
        let values =
            tool.arguments.iter().filter(|argument| argument.name == key).flat_map(|argument| &argument.values);
        let fits = values.filter(|known| known.starts_with(value));
        return fits
            .map(|value| Candidate { text: format!("{key}={value}"), about: String::new(), start, is_whole: true })
            .collect();
    }
    let is_given = |name: &str| given.iter().any(|pair| pair.split_once('=').is_some_and(|(key, _)| key == name));
    let open = tool.arguments.iter().filter(|argument| argument.name.starts_with(typed) && !is_given(&argument.name));
    open.map(|argument| Candidate {
        text: format!("{}=", argument.name),
        about: argument.about.clone(),
        start,
        is_whole: false,
    })
    .collect()
}

/// What a command still takes, shown behind what is typed. Not to be taken over.
pub fn hint(known: &Known, line: &str) -> Option<String> {
    let words = words::so_far(line);
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let (typed, before) = texts.split_last()?;
    let takes = match before {
        ["/call", tool, given @ ..] if typed.is_empty() => return arguments_left(known, tool, given),
        ["/mcp", "connect", server] if typed.is_empty() && !server.starts_with('-') => {
            Some("[--allow-all | --per-tool] [--shared | --private]")
        }
        ["/mcp", command] if typed.is_empty() && *command != "list" => takes_of(&format!("/mcp {command}")),
        ["/mcp"] if typed.is_empty() => Some("connect | disconnect | tools | logs"),
        [command] if typed.is_empty() => takes_of(command),
        _ => None,
    };
    takes.filter(|takes| !takes.is_empty()).map(str::to_owned)
}

fn takes_of(command: &str) -> Option<&'static str> {
    COMMANDS.iter().any(|usage| usage.name == command).then(|| usage_of(command).takes)
}

fn arguments_left(known: &Known, tool: &str, given: &[&str]) -> Option<String> {
    let is_open = |argument: &&Argument| !given.iter().any(|pair| pair.starts_with(&format!("{}=", argument.name)));
    let left = known.tool(tool)?.arguments.iter().filter(is_open).map(|argument| match argument.required {
        true => format!("{}=…", argument.name),
        false => format!("[{}=…]", argument.name),
    });
    let left = left.collect::<Vec<_>>().join(" ");
    (!left.is_empty()).then_some(left)
}

fn owned<'a>(found: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
    found.into_iter().map(|(text, about)| (text.to_owned(), about.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known() -> Known {
        let tool = |name: &str, description: &str, properties: serde_json::Value| {
            json!({ "name": name, "description": description,
                    "inputSchema": { "properties": properties, "required": ["path"] } })
        };
        let mut known = Known { codes: vec!["AB12".into()], ..Known::default() };
        known.listed(vec![
            tool("read_file", "Reads.", json!({ "limit": {}, "path": {}, "raw": { "type": "boolean" } })),
            tool("get_audit_log", "The record.", json!({ "tool": {}, "limit": {} })),
            tool("mcp_git_log", "[MCP:git] Log.", json!({ "mode": { "enum": ["fast", "slow"] } })),
            tool("bad\u{1b}[2J", "x", json!({})),
        ]);
        known
    }

    #[test]
    fn each_word_is_completed_with_what_fits_there() {
        check("/to", &["/tools"]);
        check("/mc", &["/mcp"]);
        check("/mcp ", &["connect", "disconnect", "tools", "logs"]);
        check("/mcp dis", &["disconnect"]);
        check("/mcp connect ", &["git"]);
        check("/mcp connect git ", &["--allow-all", "--per-tool", "--shared", "--private"]);
        check("/mcp connect git --allow-all --p", &["--per-tool", "--private"]);
        check("/mcp logs g", &["git"]);
        check("/call re", &["read_file"]);
        check("/tools mcp_", &["mcp_git_log"]);
        check("/call read_file ", &["path=", "limit=", "raw="]);
        check("/call read_file path=/x ", &["limit=", "raw="]);
        check("/call read_file raw=", &["raw=true", "raw=false"]);
        check("/call mcp_git_log mode=s", &["mode=slow"]);
        check("/audit l", &["limit="]);
        check("/approve ", &["AB12"]);
        check("/approve AB12 e", &["each"]);
        check("/call no_such ", &[]);
        check("hello", &[]);

        #[track_caller]
        fn check(line: &str, expected: &[&str]) {
            let found: Vec<String> = candidates(&known(), line).into_iter().map(|found| found.text).collect();
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_completion_begins_where_its_word_does() {
        let found = candidates(&known(), "/call read_file pa");
        assert_eq!((found[0].start, found[0].is_whole), (16, false));
        let found = candidates(&known(), "/call rea");
        assert_eq!((found[0].start, found[0].is_whole), (6, true));
    }

    #[test]
    fn the_hint_is_what_is_still_missing() {
        check("/call read_file ", Some("path=… [limit=…] [raw=…]"));
        check("/call read_file path=/x ", Some("[limit=…] [raw=…]"));
        check("/call ", Some("TOOL key=value … | {json}"));
        check("/mcp connect ", Some("NAME [--allow-all | --per-tool] [--shared | --private]"));
        check("/mcp connect git ", Some("[--allow-all | --per-tool] [--shared | --private]"));
        check("/mcp ", Some("connect | disconnect | tools | logs"));
        check("/revoke ", None);
        check("/call read", None);
        check("", None);

        #[track_caller]
        fn check(line: &str, expected: Option<&str>) {
            assert_eq!(hint(&known(), line).as_deref(), expected, "{line}");
        }
    }
}
