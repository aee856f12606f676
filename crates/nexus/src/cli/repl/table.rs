//! Lists as tables, as wide as the terminal is.

use std::sync::Arc;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::known::{KnownTool, server_of};
use super::show::one_line;

/// Characters of one cell.
const LONGEST_CELL: usize = 400;

/// The width of the terminal behind stdout; None where there is none.
pub fn width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// Rows under a header.
pub fn table<H: Into<String>>(
    header: impl IntoIterator<Item = H>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    if let Some(width) = width() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for row in rows {
        table.add_row(row);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Objects as rows, with these of their fields as columns; a column that nobody fills is left out.
pub fn of_objects(objects: &[Value], columns: &[&str]) -> String {
    let filled = |column: &&&str| objects.iter().any(|object| !cell(&object[**column]).is_empty());
    let columns: Vec<&str> = columns.iter().filter(filled).copied().collect();
    let row = |object: &Value| columns.iter().map(|column| cell(&object[*column])).collect();
    table(columns.iter().map(|column| column.replace('_', " ")), objects.iter().map(row))
}

/// A value in few characters, on one line: texts without their quotes, nothing for nothing.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text, LONGEST_CELL),
        Value::Null => String::new(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            one_line(&items.join(", "), LONGEST_CELL)
        }
        other => one_line(&other.to_string(), LONGEST_CELL),
    }
}

/// Tools with what they do; those of upstreams with their server.
pub fn of_tools(tools: &[Arc<KnownTool>]) -> String {
    table(["tool", "what it does"], tools.iter().map(|tool| vec![tool.name.clone(), tool.about.clone()]))
}

/// One tool: what it is for, and its arguments.
pub fn of_tool(tool: &Value) -> String {
    let description = nexus_core::text::clean(tool["description"].as_str().unwrap_or_default()).into_owned();
    let mut out = format!("{}\n\n{}\n", one_line(tool["name"].as_str().unwrap_or_default(), 100), description.trim());
    if let Some(server) = server_of(&description) {
        out.push_str(&format!("\nIt belongs to the upstream server {server}.\n"));
    }
    let schema = &tool["inputSchema"];
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let rows = schema["properties"].as_object().into_iter().flatten().map(|(name, field)| {
        let need = if required.contains(&name.as_str()) { "required" } else { "" };
        vec![one_line(name, 100), kind(field), need.to_owned(), cell(&field["description"])]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        out.push_str(&format!("\n{}\n", table(["argument", "type", "", "what it is"], rows)));
    }
    out
}

fn kind(field: &Value) -> String {
    match (&field["type"], &field["enum"]) {
        (_, Value::Array(choices)) => choices.iter().map(cell).collect::<Vec<_>>().join(" | "),
        (Value::Array(kinds), _) => {
            kinds.iter().filter(|kind| *kind != "null").map(cell).collect::<Vec<_>>().join(" | ")
        }
        (kind, _) => cell(kind),
    }
}

/// The record: a line of what matters for each row.
pub fn of_audit(rows: &[Value]) -> String {
    let row = |row: &Value| {
        let ended = match (&row["outcome"], &row["decision"]) {
            (Value::Null, decision) => cell(decision),
            (outcome, _) => cell(outcome),
        };
        let took = row["duration_ms"].as_f64().map_or_else(String::new, |took| format!("{took:.1} ms"));
        let about = [&row["summary"], &row["detail"], &row["arguments"]].into_iter().map(cell);
        let about = about.into_iter().find(|about| !about.is_empty()).unwrap_or_default();
        let at = cell(&row["at"]).chars().take("2026-07-28T12:00:00".len()).collect::<String>().replace('T', " ");
        vec![
            at,
            cell(&row["event"]),
            cell(&row["key"]),
            cell(&row["tool"]),
            ended,
            took,
            about.chars().take(120).collect(),
        ]
    };
    table(["at (UTC)", "event", "key", "tool", "ended", "took", "what"], rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_become_rows_and_empty_columns_go() {
        let objects = [
            json!({ "name": "a", "tools": 3, "why": null, "list": ["x", "y"] }),
            json!({ "name": "b\u{1b}[2J\nc", "tools": 0 }),
        ];
        let shown = of_objects(&objects, &["name", "tools", "why", "list"]);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [vec!["name", "tools", "list"], vec!["a", "3", "x,", "y"], vec!["b", "c", "0"]]);
    }

    #[test]
    fn a_row_of_the_record_is_one_line() {
        let rows = [json!({ "at": "2026-07-28T12:00:00.123Z", "event": "call", "key": "default", "tool": "read_file",
                            "outcome": "ok", "duration_ms": 1.25, "summary": "read /etc/hostname" })];
        let shown = of_audit(&rows);
        assert!(shown.lines().nth(1).unwrap().contains("2026-07-28 12:00:00"), "{shown}");
        assert!(shown.contains("1.2 ms") && shown.contains("read /etc/hostname"), "{shown}");
    }

    #[test]
    fn a_tool_is_shown_with_its_arguments() {
        let tool = json!({ "name": "mcp_git_log", "description": "[MCP:git] Shows the log.", "inputSchema": {
            "properties": { "path": { "type": "string", "description": "Where." }, "n": { "type": ["integer", "null"] },
                            "mode": { "enum": ["fast", "slow"] } },
            "required": ["path"],
        } });
        let shown = of_tool(&tool);
        assert!(shown.contains("upstream server git"), "{shown}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = shown.lines().map(words).collect();
        assert!(lines.contains(&words("path string required Where.")), "{shown}");
        assert!(lines.contains(&words("n integer")), "{shown}");
        assert!(lines.contains(&words("mode fast | slow")), "{shown}");
    }
}
