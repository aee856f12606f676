//! One entry of another program, as one of ours.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::Program;

/// Where the entry was found.
#[derive(Debug)]
pub struct Around<'a> {
    pub program: Program,
    /// What the program calls the workspace.
    pub folder: &'a Path,
    pub home: Option<PathBuf>,
}

/// Fields that mean the same here as there.
const SAME: [&str; 13] = [
    "command",
    "args",
    "url",
    "env",
    "env_passthrough",
    "cwd",
    "headers",
    "timeout",
    "enabled",
    "lazy",
    "isolate",
    "tools",
    "prefix",
];

/// Fields without a meaning for a hub, which nobody misses.
const DROPPED: [&str; 8] =
    ["name", "description", "$schema", "gallery", "version", "dev", "startup_timeout_sec", "fail_if_no_tools"];

/// The entry, and what of it could not be taken over.
pub fn entry(entry: &Map<String, Value>, around: &Around<'_>) -> (Value, Vec<String>) {
    let (mut ours, mut notes) = (Map::new(), Vec::new());
    for (field, value) in entry {
        let filled = || filled(value, around);
        match (field.as_str(), value) {
            (_, Value::Null) => {}
            ("timeout", _) if around.program == Program::Opencode => {}
            ("type" | "transport", Value::String(kind)) => {
                // Ours is guessed the same way; only the older one needs a word.
                if kind == "sse" {
                    ours.insert("transport".to_owned(), json!("sse"));
                }
            }
            ("disabled", Value::Bool(disabled)) => {
                if *disabled {
                    ours.insert("enabled".to_owned(), json!(false));
                }
            }
            ("enabled", Value::Bool(true)) => {}
            ("environment", _) => merge(&mut ours, "env", filled()),
            ("http_headers", _) => merge(&mut ours, "headers", filled()),
            ("env_vars", Value::Array(names)) => {
                // Names, or tables with a name and where it comes from.
                let names = names.iter().filter_map(|name| name.as_str().or_else(|| name["name"].as_str()));
                ours.insert("env_passthrough".to_owned(), names.map(Value::from).collect());
            }
            ("bearer_token_env_var", Value::String(name)) => {
                merge(&mut ours, "headers", json!({ "Authorization": format!("Bearer ${{{name}}}") }));
            }
            ("env_http_headers", Value::Object(headers)) => {
                let header = |(header, name): (&String, &Value)| {
                    Some((header.clone(), json!(format!("${{{}}}", name.as_str()?))))
                };
                merge(&mut ours, "headers", Value::Object(headers.iter().filter_map(header).collect()));
            }
            ("tool_timeout_sec", Value::Number(_)) => drop(ours.insert("timeout".to_owned(), value.clone())),
            ("enabled_tools", Value::Array(_)) => merge(&mut ours, "tools", json!({ "allow": value })),
            ("disabled_tools", Value::Array(_)) => merge(&mut ours, "tools", json!({ "deny": value })),
            (same, _) if SAME.contains(&same) => match same {
                "env" | "headers" | "tools" => merge(&mut ours, same, filled()),
                _ => drop(ours.insert(same.to_owned(), filled())),
            },
            (field, _) if DROPPED.contains(&field) => {}
            (field, _) => notes.push(format!("`{field}` is left out")),
        }
    }
    missing(&Value::Object(ours.clone()), entry, &mut notes);
    (Value::Object(ours), notes)
}

fn merge(ours: &mut Map<String, Value>, field: &str, more: Value) {
    match (ours.entry(field).or_insert_with(|| json!({})), more) {
        (Value::Object(known), Value::Object(more)) => known.extend(more),
        (known, more) => *known = more,
    }
}

/// All texts of a value with variables written our way.
fn filled(value: &Value, around: &Around<'_>) -> Value {
    match value {
        Value::String(text) => Value::String(rewritten(text, around)),
        Value::Array(items) => items.iter().map(|item| filled(item, around)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), filled(field, around))).collect())
        }
        other => other.clone(),
    }
}

/// A text as it is written there, written so that it means the same here.
fn rewritten(text: &str, around: &Around<'_>) -> String {
    match around.program {
        // Theirs are as ours.
        Program::ClaudeCode | Program::Nexus3 => text.to_owned(),
        // These fill nothing in.
        Program::ClaudeDesktop | Program::Codex => text.replace("${", "$${"),
        Program::Opencode => braced(&text.replace("${", "$${"), "{", |inside| {
            inside.strip_prefix("env:").map(|name| format!("${{{name}}}"))
        }),
        Program::Cursor | Program::VsCode => braced(text, "${", |inside| {
            let home = || around.home.as_ref().map(|home| home.display().to_string());
            match inside.split_once(':') {
                Some(("env", name)) => Some(format!("${{{name}}}")),
                Some(("input", name)) => Some(format!("${{{}}}", variable(name))),
                Some(("workspaceFolder", _)) => Some(around.folder.display().to_string()),
                _ => match inside {
                    "workspaceFolder" => Some(around.folder.display().to_string()),
                    "userHome" => home(),
                    "pathSeparator" | "/" => Some("/".to_owned()),
                    _ => None,
                },
            }
        }),
    }
}

/// What stands between `open` and the next `}` in other words; what has none stays as it is.
fn braced(text: &str, open: &str, words: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(open) {
        let found = after.split_once('}').and_then(|(inside, next)| Some((words(inside)?, next)));
        out.push_str(before);
        match found {
            Some((words, next)) => {
                out.push_str(&words);
                rest = next;
            }
            None => {
                out.push_str(open);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// `perplexity-key`, which VS Code asks for, as the name of a variable.
fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// What the operator has to do themselves.
fn missing(ours: &Value, theirs: &Map<String, Value>, notes: &mut Vec<String>) {
    let text = Value::Object(theirs.clone()).to_string();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("${input:") {
        let Some((name, next)) = after.split_once('}') else { break };
        notes.push(format!("set the variable {} where the hub starts", variable(name)));
        rest = next;
    }
    if text.contains("{file:") {
        notes.push("`{file:…}` is not filled in here: put it into a variable".to_owned());
    }
    if ours.get("command").is_none() && ours.get("url").is_none() {
        notes.push("it has neither a command nor a url".to_owned());
    }
}
