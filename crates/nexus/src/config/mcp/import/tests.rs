//! What each program writes becomes what we read.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::*;

#[test]
fn each_program_has_its_own_way() {
    let claude = json!({ "command": "npx", "args": ["-y", "x"], "env": { "K": "${TOKEN}" } });
    check(
        Program::ClaudeCode,
        "home/.claude.json",
        r#"{"history": [1], "mcpServers": {"a": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"K": "${TOKEN}"}}}}"#,
        &claude,
        &[],
    );
    check(
        Program::ClaudeCode,
        "home/.claude.json",
        r#"{"projects": {"$HERE": {"mcpServers": {"a": {"type": "http", "url": "https://x/mcp", "headers": {"A": "b"}}}}, "/other": {"mcpServers": {"o": {"command": "o"}}}}}"#,
        &json!({ "url": "https://x/mcp", "headers": { "A": "b" } }),
        &[],
    );
    check(
        Program::ClaudeDesktop,
        "home/.config/Claude/claude_desktop_config.json",
        r#"{"globalShortcut": "", "mcpServers": {"a": {"command": "sh", "args": ["-c", "echo ${HOME}"]}}}"#,
        &json!({ "command": "sh", "args": ["-c", "echo $${HOME}"] }),
        &[],
    );
    check(
        Program::Codex,
        "home/.codex/config.toml",
        "[mcp_servers.a]\nurl = 'https://x/mcp'\nbearer_token_env_var = 'T'\nhttp_headers = { X = 'y' }\nenv_http_headers = { Z = 'ZV' }\ntool_timeout_sec = 60\nenabled_tools = ['r*']\nenabled = true\nscopes = ['a']\n",
        &json!({ "url": "https://x/mcp", "headers": { "Authorization": "Bearer ${T}", "X": "y", "Z": "${ZV}" },
                 "timeout": 60, "tools": { "allow": ["r*"] } }),
        &["`scopes` is left out"],
    );
    check(
        Program::Codex,
        "home/.codex/config.toml",
        "[mcp_servers.a]\ncommand = 'x'\nenv_vars = ['A', { name = 'B' }]\nenv = { C = '${D}' }\n",
        &json!({ "command": "x", "env_passthrough": ["A", "B"], "env": { "C": "$${D}" } }),
        &[],
    );
    check(
        Program::Cursor,
        "home/project/.cursor/mcp.json",
        r#"{"mcpServers": {"a": {"command": "${workspaceFolder}/run", "env": {"K": "${env:KEY}"}, "envFile": ".env"}}}"#,
        &json!({ "command": "$HERE/run", "env": { "K": "${KEY}" } }),
        &["`envFile` is left out"],
    );
    check(
        Program::VsCode,
        "home/.config/Code/User/mcp.json",
        "{ // mine\n \"inputs\": [{\"id\": \"my-key\"}],\n \"servers\": {\"a\": {\"type\": \"sse\", \"url\": \"https://x/sse\", \"headers\": {\"K\": \"${input:my-key}\"}},},}",
        &json!({ "transport": "sse", "url": "https://x/sse", "headers": { "K": "${MY_KEY}" } }),
        &["set the variable MY_KEY where the hub starts"],
    );
    check(
        Program::VsCode,
        "home/.config/Code/User/settings.json",
        r#"{"mcp": {"servers": {"a": {"command": "x", "disabled": true}}}}"#,
        &json!({ "command": "x", "enabled": false }),
        &[],
    );
    check(
        Program::Opencode,
        "home/.config/opencode/opencode.jsonc",
        r#"{"mcp": {"a": {"type": "local", "command": ["bun", "x"], "environment": {"K": "{env:KEY}"}, "enabled": true, "timeout": 5000}}}"#,
        &json!({ "command": ["bun", "x"], "env": { "K": "${KEY}" } }),
        &[],
    );
    check(
        Program::Nexus3,
        "home/.nexus3/config.json",
        r#"{"mcp_servers": [{"name": "a", "command": ["py", "s.py"], "env_passthrough": ["X"], "enabled": false}, {"nameless": 1}]}"#,
        &json!({ "command": ["py", "s.py"], "env_passthrough": ["X"], "enabled": false }),
        &[],
    );
    check(
        Program::Nexus3,
        "home/project/.nexus3/mcp.json",
        r#"{"servers": {"a": {"url": "https://x"}}}"#,
        &json!({ "url": "https://x" }),
        &[],
    );

    #[track_caller]
    fn check(program: Program, file: &str, text: &str, entry: &Value, notes: &[&str]) {
        let lab = lab(&[(file, text)]);
        let finds = look(&lab, &[program]);
        assert!(finds.problems.is_empty(), "{finds:?}");
        let [found] = finds.servers.as_slice() else { panic!("{finds:?}") };
        let here = lab.path().join("home/project").display().to_string();
        assert_eq!((found.name.as_str(), found.program), ("a", program));
        assert_eq!(found.entry.to_string(), entry.to_string().replace("$HERE", &here));
        assert_eq!(found.notes, notes);
        assert!(look(&lab, &[]).servers.is_empty());
    }
}

#[test]
fn the_same_server_is_found_once_and_another_of_its_name_gets_its_own() {
    let lab = lab(&[
        ("home/.claude.json", r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}"#),
        ("home/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#),
    ]);
    let finds = look(&lab, &Program::ALL);
    let names: Vec<&str> = finds.servers.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "b-cursor"]);
}

#[test]
fn what_a_project_brings_is_known_as_the_projects() {
    let lab = lab(&[
        ("home/project/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "evil"}, "c": {"command": "c"}}}"#),
        ("home/.nexus3/mcp.json", r#"{"servers": {"a": {"command": "x"}, "c": {"command": "c"}}}"#),
    ]);
    let finds = look(&lab, &Program::ALL);
    let found: Vec<_> = finds.servers.iter().map(|found| (found.name.as_str(), found.whose)).collect();
    assert_eq!(found, [("a", Whose::Person), ("c", Whose::Person), ("a-cursor", Whose::Project)]);
}

#[test]
fn a_file_that_cannot_be_read_is_told_and_stops_no_other() {
    let lab = lab(&[
        ("home/.cursor/mcp.json", "{\n\"mcpServers\": {"),
        ("home/.codex/config.toml", "[mcp_servers.a"),
        ("home/.nexus3/mcp.json", r#"{"servers": {"a": {"command": "x"}}}"#),
    ]);
    let finds = look(&lab, &Program::ALL);
    assert_eq!((finds.servers.len(), finds.problems.len()), (1, 2), "{finds:?}");
    assert!(finds.problems[0].contains("config.toml:1: not TOML"), "{finds:?}");
    assert!(finds.problems[1].contains("mcp.json:2:"), "{finds:?}");
}

#[allow(clippy::disallowed_methods, reason = "a test's own files")]
fn lab(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("home/project");
    fs::create_dir_all(&here).unwrap();
    for (file, text) in files {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text.replace("$HERE", &here.display().to_string())).unwrap();
    }
    folder
}

fn look(lab: &TempDir, programs: &[Program]) -> Finds {
    let home = lab.path().join("home");
    let places = Places { here: home.join("project"), extra: Vec::new(), home: Some(home.clone()) };
    find(programs, &places, &Env::from_pairs([("HOME", home.display().to_string().as_str())]))
}
