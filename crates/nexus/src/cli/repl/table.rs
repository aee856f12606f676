//! Lists as tables, as wide as the terminal is.

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::known::server_of;
use super::schema::{self, Argument};
use super::show::one_line;

/// Characters of one cell.
const LONGEST_CELL: usize = 400;

/// Characters of a line in a pipe, and of what stands in it beside a tool's name and description.
const WIDEST: usize = 120;
const BESIDE: usize = 16;

/// Characters of what an argument may be.
const LONGEST_KIND: usize = 80;

/// Characters of a reason where nobody wraps it.
const LONGEST_WHY: usize = 80;

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

/// The servers behind the hub, a line each; [`of_server`] has the rest.
pub fn of_servers(servers: &[Value]) -> String {
    let longest = if width().is_some() { LONGEST_CELL } else { LONGEST_WHY };
    let row = |server: &Value| {
        let tools = match server["held"].as_array().map_or(0, Vec::len) {
            0 => cell(&server["tools"]),
            held => format!("{}, {held} held", cell(&server["tools"])),
        };
        let again = server["next_try"].as_str().map(|at| format!("next try at {}", moment(at)));
        let whose = server["visibility"].as_str().filter(|whose| *whose != "shared").map(|whose| one_line(whose, 60));
        let why = server["why"].as_str().map(|why| one_line(why, longest));
        let why: Vec<String> = [why, again, whose].into_iter().flatten().collect();
        vec![cell(&server["name"]), cell(&server["state"]), tools, cell(&server["era"]), why.join("; ")]
    };
    table(["name", "state", "tools", "era", "why"], servers.iter().map(row))
}

/// A time without the parts of a second.
pub fn moment(at: &str) -> String {
    let at = one_line(at, 40);
    at.get(..19).map(|short| format!("{short}Z")).unwrap_or(at)
}

/// What is to be said of one server beside its tools.
pub fn of_server(server: &Value) -> String {
    let fields = ["state", "why", "since", "next_try", "era", "endpoint", "source", "visibility", "last_error"];
    let lines = fields.iter().filter_map(|field| {
        let value = cell(&server[*field]);
        (!value.is_empty()).then(|| format!("{:11} {value}\n", field.replace('_', " ")))
    });
    lines.collect()
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

/// Tools as the hub lists them, with what they do.
pub fn of_tools<'a>(tools: impl IntoIterator<Item = &'a Value, IntoIter: Clone>) -> String {
    let tools = tools.into_iter();
    let widest = tools.clone().map(|tool| cell(&tool["name"]).chars().count()).max().unwrap_or_default();
    // A terminal wraps, a pipe does not.
    let longest = if width().is_some() { LONGEST_CELL } else { (WIDEST - BESIDE).saturating_sub(widest).max(20) };
    let rows = tools.map(|tool| {
        let about = tool["description"].as_str().unwrap_or_default();
        let first = one_line(about.lines().next().unwrap_or_default(), longest);
        vec![cell(&tool["name"]), access(tool, about).to_owned(), first]
    });
    table(["tool", "access", "what it does"], rows)
}

/// What a call of it means. Of a server's own words nothing depends: its tools are asked about.
fn access(tool: &Value, about: &str) -> &'static str {
    match (server_of(about), &tool["annotations"]["readOnlyHint"]) {
        (Some(_), _) => "asks",
        (None, Value::Bool(true)) => "read",
        (None, _) => "write",
    }
}

/// One tool: what it is for, and its arguments.
pub fn of_tool(tool: &Value) -> String {
    let description = nexus_core::text::clean(tool["description"].as_str().unwrap_or_default()).into_owned();
    let title = tool["title"].as_str().map_or_else(String::new, |title| format!(": {}", one_line(title, 200)));
    let mut out = format!("{}{title}\n\n{}\n", cell(&tool["name"]), description.trim());
    if let Some(server) = server_of(&description) {
        out.push_str(&format!("\nIt belongs to the upstream server {server}.\n"));
    }
    let row = |argument: Argument| {
        let need = if argument.required { "required" } else { "optional" };
        let kind = one_line(&argument.kind, LONGEST_KIND);
        vec![one_line(argument.name, 100), kind, need.to_owned(), one_line(argument.about, LONGEST_CELL)]
    };
    let rows: Vec<Vec<String>> = schema::arguments(&tool["inputSchema"]).into_iter().map(row).collect();
    if !rows.is_empty() {
        out.push_str(&format!("\n{}\n", table(["argument", "type", "", "what it is"], rows)));
    }
    out
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
    fn a_server_is_a_short_line_and_the_rest_is_told_with_its_tools() {
        let server = json!({ "name": "git", "state": "waiting", "tools": 3, "held": ["x"], "visibility": "private (robot)",
            "why": "could not be started: ".repeat(40), "endpoint": "npx ".repeat(100), "next_try": "12:00", "era": null });
        let shown = of_servers(std::slice::from_ref(&server));
        assert!(shown.lines().all(|line| line.chars().count() <= 160), "{shown}");
        assert!(shown.contains("3, 1 held") && shown.contains("private (robot)") && shown.contains("12:00"), "{shown}");
        assert!(!shown.contains("npx") && of_server(&server).contains("endpoint    npx npx"), "{shown}");
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
        assert!(lines.contains(&words("n integer optional")), "{shown}");
        assert!(lines.contains(&words("mode fast | slow optional")), "{shown}");
    }
}
