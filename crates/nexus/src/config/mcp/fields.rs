//! Every field of an entry: what `nexus docs` shows of it.

/// A field as the reference page describes it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub holds: &'static str,
    pub default: &'static str,
    pub meaning: &'static str,
}

const fn field(name: &'static str, holds: &'static str, default: &'static str, meaning: &'static str) -> Field {
    Field { name, holds, default, meaning }
}

pub const FIELDS: [Field; 18] = [
    field(
        "command",
        "text, or list of texts",
        "",
        "Program to start, or program and arguments. Not beside `url`. In a project folder, a path such as `./run` starts at that folder. Variables.",
    ),
    field("args", "list of texts", "[]", "Arguments, behind those of `command`. Variables."),
    field("url", "text", "", "Address to call, `http` or `https`. Not beside `command`. Variables."),
    field(
        "env",
        "map of texts",
        "{}",
        "Variables of the program. It gets these, those of `env_passthrough`, and of the hub's own only `PATH HOME USER LOGNAME LANG LC_ALL LC_CTYPE TERM SHELL TMPDIR TMP TEMP`. Variables.",
    ),
    field(
        "env_passthrough",
        "list of names",
        "[]",
        "Further variables that the program gets from the hub's environment.",
    ),
    field(
        "cwd",
        "folder",
        "the hub's, or the project's",
        "Where the program runs; starts at the folder that the file belongs to, which is where programs of a project folder run. Variables.",
    ),
    field("headers", "map of texts", "{}", "Sent with each request to the host of `url`, and to no other. Variables."),
    field(
        "transport",
        "stdio, http, streamable-http or sse",
        "guessed",
        "How it is reached; `http` tries the older SSE where Streamable HTTP is not known.",
    ),
    field("type", "as `transport`", "", "The same under another name."),
    field(
        "era",
        "auto, legacy or modern",
        "auto",
        "Which protocol is spoken: up to 2025-11-25, from 2026-07-28, or what the server offers.",
    ),
    field(
        "timeout",
        "number, or text with a unit",
        "30",
        "A request without answer or progress for so long has failed. Numbers below 1000 are seconds, others milliseconds.",
    ),
    field(
        "enabled",
        "true or false",
        "true",
        "Switched off it is only listed. `{\"enabled\": false}` alone switches off a server of a farther file.",
    ),
    field("disabled", "true or false", "false", "The opposite of `enabled`, as other programs write it."),
    field(
        "lazy",
        "true or false",
        "false",
        "Started when first needed. One that was never met is started once, to learn its tools.",
    ),
    field("isolate", "true or false", "false", "A process of its own for every session."),
    field(
        "allow_private",
        "true, false, or list of hosts, addresses and networks",
        "false",
        "Private addresses it may be at beside localhost; `mcp.allow_private` of nexus.yaml holds for all servers.",
    ),
    field(
        "tools",
        "map of `allow` and `deny`, or list",
        "all",
        "Which of its tools are offered, as lists of patterns over the server's own names; a list alone is `allow`.",
    ),
    field("prefix", "text", "mcp_{server}_", "What its tools' names start with instead; may be empty."),
];

pub fn is_known(field: &str) -> bool {
    FIELDS.iter().any(|known| known.name == field)
}

pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// `docs/reference/mcp-json.md`.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Fields of an entry\n\n| field | holds | default | meaning |\n|---|---|---|---|\n");
    for Field { name, holds, default, meaning } in FIELDS {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        page.push_str(&format!("| `{name}` | {holds} | {default} | {meaning} |\n"));
    }
    page
}

const INTRODUCTION: &str = "\
# mcp.json

Written by `nexus docs` from the declarations in `crates/nexus/src/config/mcp`; do not edit.

Upstream MCP servers, in the shape of most programs or in our own:

```json
{ \"mcpServers\": { \"files\": { \"command\": \"npx\", \"args\": [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"] } } }
```

```json
{ \"servers\": { \"files\": { \"command\": [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"] } } }
```

## Files

From far to near; an entry in a nearer file replaces the whole entry of that name in a farther one:

1. `~/.nexus/mcp.json`
2. the files of `mcp.files` in nexus.yaml
3. for each folder from `/` down to the hub's working folder: `.mcp.json`, then `.nexus/mcp.json` beside it

Servers of the first two start with the hub. A server that a project folder brings waits until somebody has agreed to its
entry (`nexus mcp connect NAME`); the yes is remembered for that very entry in that very file.

Files may have comments and a comma too many. They are read again when they change: what is unchanged stays connected. A
faulty entry is told with its place (`nexus check`, `nexus mcp list`), has the state `faulty` and stops no other; a server
that runs stays as it was while its entry is faulty. A file of `mcp.files` that does not exist is a fault.

## Variables

`${NAME}` and `${NAME:-default}` are filled in from the hub's environment; a default also stands in for an empty variable,
and `$${` stands for `${` itself. A variable that is not set and has no default is a fault. In files of a project folder
`${CLAUDE_PROJECT_DIR}` is that folder, which their programs also find in their environment.
";
