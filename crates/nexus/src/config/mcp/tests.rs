//! Layers, faults with their places, and what is kept when a file becomes faulty.

use std::fs;
use std::time::Duration;

use nexus_mcp::upstream::config::{Endpoint, EraChoice, HttpKind, Program};
use nexus_mcp::upstream::supervisor::endpoint_of;
use tempfile::TempDir;

use super::*;

/// A home folder, a project in it, and a folder in that.
struct Lab {
    folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("home/project/deep")).unwrap();
        Self { folder }
    }

    #[allow(clippy::disallowed_methods, reason = "a test's own files")]
    fn file(self, path: &str, text: &str) -> Self {
        let file = self.folder.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        self
    }

    fn places(&self) -> Places {
        let home = self.folder.path().join("home");
        let extra = vec![self.folder.path().join("extra.json")];
        let extra = extra.into_iter().filter(|file| file.exists()).collect();
        Places { here: home.join("project/deep"), home: Some(home), extra }
    }

    fn read(&self) -> Reading {
        let home = self.folder.path().join("home").display().to_string();
        let env = Env::from_pairs([
            ("HOME", home.as_str()),
            ("PATH", "/bin"),
            ("TOKEN", "tok-1234567890abcdef"),
            ("PASSED", "yes"),
            ("OTHER", "no"),
        ]);
        read(&self.places(), &["tools.lan:8080".to_owned()], &env)
    }
}

fn command(reading: &Reading, name: &str) -> String {
    match &reading.servers[name].config.endpoint {
        Some(Endpoint::Stdio(program)) => program.command.clone(),
        other => panic!("{other:?}"),
    }
}

fn only(text: &str) -> Reading {
    Lab::new().file("home/.nexus/mcp.json", text).read()
}

#[test]
fn the_nearer_entry_replaces_the_whole_of_the_farther_one() {
    let lab = Lab::new()
        .file(
            "home/.nexus/mcp.json",
            r#"{"servers": {"a": {"command": ["home"], "lazy": true}, "h": {"command": "h"}}}"#,
        )
        .file("extra.json", r#"{"mcpServers": {"a": {"command": "extra"}, "e": {"command": "e"}}}"#)
        .file("home/project/.mcp.json", r#"{"mcpServers": {"a": {"command": "plain"}, "p": {"command": "p"}}}"#)
        .file("home/project/.nexus/mcp.json", r#"{"mcpServers": {"a": {"command": "beside"}}}"#)
        .file("home/project/deep/.mcp.json", r#"{"mcpServers": {"p": {"command": "near"}}}"#);
    let reading = lab.read();
    assert!(reading.faults.is_empty() && reading.warnings.is_empty(), "{reading:?}");
    assert_eq!(["a", "e", "h", "p"].map(|name| command(&reading, name)), ["beside", "e", "h", "near"]);
    assert!(!reading.servers["a"].config.lazy);
    assert!(matches!(&reading.servers["h"].config.source, Source::Home { line: 1, .. }));
    assert!(matches!(&reading.servers["e"].config.source, Source::Home { .. }));
    assert!(matches!(&reading.servers["a"].config.source, Source::Project { .. }));
}

#[test]
fn the_operators_own_file_is_theirs_also_where_it_lies_above_the_project() {
    let reading = only(r#"{"servers": {"a": {"command": "x"}}}"#);
    assert!(matches!(&reading.servers["a"].config.source, Source::Home { .. }));
}

#[test]
fn a_nearer_enabled_false_alone_switches_off() {
    let off = r#"{"mcpServers": {"a": {"enabled": false}, "gone": {"disabled": true}}}"#;
    let lab = Lab::new()
        .file("home/.nexus/mcp.json", r#"{"servers": {"a": {"command": "x"}}}"#)
        .file("home/project/.mcp.json", off);
    let reading = lab.read();
    assert_eq!(command(&reading, "a"), "x");
    assert!(!reading.servers["a"].config.enabled);
    assert!(reading.servers["a"].switched_off().unwrap().ends_with("home/project/.mcp.json:1"));
    assert!(!reading.servers["gone"].config.enabled && reading.servers["gone"].config.endpoint.is_none());
}

#[test]
fn a_programs_paths_start_at_the_folder_of_its_project() {
    let lab = Lab::new().file(
        "home/project/.mcp.json",
        r#"{"mcpServers": {"a": {"command": "./run", "args": ["${CLAUDE_PROJECT_DIR:-.}/x"]}, "b": {"command": "npx"},
            "c": {"command": "/bin/c", "cwd": "sub"}}}"#,
    );
    let reading = lab.read();
    let project = lab.folder.path().join("home/project");
    let program = |name: &str| match &reading.servers[name].config.endpoint {
        Some(Endpoint::Stdio(program)) => program.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(Path::new(&program("a").command), project.join("./run"));
    assert_eq!(program("a").args, [project.join("x").display().to_string()]);
    assert_eq!((program("a").cwd, program("b").cwd), (Some(project.clone()), Some(project.clone())));
    assert_eq!((program("b").command.as_str(), program("c").command.as_str()), ("npx", "/bin/c"));
    assert_eq!(program("c").cwd, Some(project.join("sub")));
    let home = only(r#"{"servers": {"a": {"command": "./run"}}}"#);
    assert_eq!(command(&home, "a"), "./run");
}

#[test]
fn an_entry_with_something_twice_is_faulty_and_the_others_are_not() {
    let reading = only(
        r#"{"servers": {"a": {"command": "x"}, "b": {"command": "x", "command": "y"}, "c": {"command": "x"},
            "c": {"command": "y"}, "d": {"command": "x"}}, "mcpServers": {"d": {"command": "y"}}}"#,
    );
    assert_eq!(reading.servers.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(reading.broken.keys().collect::<Vec<_>>(), ["b", "c", "d"]);
    assert!(reading.broken.values().all(|broken| broken.why.contains("given twice")), "{reading:#?}");
    assert_eq!(reading.faults.len(), 3, "{reading:#?}");
}

#[test]
fn an_unset_variable_in_a_command_is_the_only_fault() {
    let reading = only(r#"{"servers": {"a": {"command": "${GONE}/x"}, "b": {"command": ["${GONE}"]}}}"#);
    assert_eq!(reading.faults.len(), 2, "{reading:#?}");
    assert!(reading.faults.iter().all(|fault| fault.contains("`GONE` is not set")), "{reading:#?}");
}

#[test]
fn a_file_that_is_named_and_not_there_is_a_fault() {
    let lab = Lab::new();
    let places = Places { extra: vec![lab.folder.path().join("gone.json")], ..lab.places() };
    let reading = read(&places, &[], &Env::from_pairs([]));
    assert!(matches!(reading.faults.as_slice(), [fault] if fault.contains("gone.json")), "{reading:#?}");
}

#[test]
fn an_entry_that_is_asked_about_hides_nothing() {
    let written = "{ // harmless\n \"command\": \"sh\", /* \u{202e} */ \"args\": [\"a\\nb\u{202e}c\u{200b}\"] }";
    let reading = only(&format!("{{\"servers\": {{\"a\": {written}}}}}"));
    let shown = reading.servers["a"].shown();
    assert_eq!(shown, "{\n  \"command\": \"sh\",\n  \"args\": [\n    \"a\\nb\\u202ec\\u200b\"\n  ]\n}");
}

#[test]
fn every_field_is_read() {
    let reading = only(
        r#"{"servers": {
        "full": {"command": ["npx", "-y"], "args": ["pkg", "${GONE:-x}", 7], "env": {"KEY": "${TOKEN}", "N": 5, "PATH": "/own"},
                 "env_passthrough": ["PASSED", "UNSET"], "cwd": "sub", "type": "stdio", "era": "legacy", "timeout": 5,
                 "lazy": true, "isolate": true, "tools": {"allow": ["read_*"], "deny": ["*_all"]}, "prefix": ""},
        "web": {"url": "https://tools.example/mcp?x=1", "headers": {"Authorization": "Bearer ${TOKEN}"}, "transport": "sse",
                "allow_private": ["10.0.0.0/8"], "timeout": 90000, "era": "modern", "enabled": false},
        "bare": {"url": "http://127.0.0.1:9000/mcp", "allow_private": true, "timeout": "2m"},
        "none": {"lazy": true}
    }}"#,
    );
    assert!(reading.faults.is_empty() && reading.warnings.is_empty(), "{reading:#?}");
    let full = &reading.servers["full"].config;
    let Some(Endpoint::Stdio(Program { command, args, env, cwd })) = &full.endpoint else { panic!("{full:?}") };
    assert_eq!((command.as_str(), args.join(" ")), ("npx", "-y pkg x 7".to_owned()));
    let home = cwd.as_ref().unwrap().parent().unwrap().display().to_string();
    let expected = [("HOME", &*home), ("PASSED", "yes"), ("KEY", "tok-1234567890abcdef"), ("N", "5"), ("PATH", "/own")];
    assert_eq!(env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(), expected);
    assert!(cwd.as_ref().unwrap().ends_with("home/sub"));
    assert_eq!((full.era, full.timeout), (EraChoice::Legacy, Duration::from_secs(5)));
    assert!(full.lazy && full.isolate && full.enabled);
    assert!(full.allow.matches("read_it") && !full.allow.matches("write") && full.deny.matches("read_all"));
    assert_eq!(full.prefix.as_deref(), Some(""));

    let web = &reading.servers["web"].config;
    let Some(Endpoint::Http(http)) = &web.endpoint else { panic!("{web:?}") };
    assert_eq!((http.kind, web.timeout, web.enabled), (HttpKind::Sse, Duration::from_secs(90), false));
    assert_eq!(http.headers, [("Authorization".to_owned(), "Bearer tok-1234567890abcdef".to_owned())]);
    assert_eq!(http.allow_private.some, ["tools.lan:8080", "10.0.0.0/8"]);
    assert!(nexus_core::redact::text("it was tok-1234567890abcdef!").contains('['), "the token is hidden from now on");

    let bare = &reading.servers["bare"].config;
    let Some(Endpoint::Http(http)) = &bare.endpoint else { panic!("{bare:?}") };
    assert!(http.allow_private.all && http.kind == HttpKind::Auto && bare.timeout == Duration::from_secs(120));
    assert!(reading.servers["none"].config.endpoint.is_none());
}

#[test]
fn what_is_shown_of_an_entry_holds_no_value_of_a_variable() {
    let reading = only(
        r#"{"servers": {
        "program": {"command": ["${TOKEN}", "-y"], "args": ["${TOKEN}", "$${x}", 7]},
        "web": {"url": "https://tools.example/${TOKEN}/mcp?key=${TOKEN}"}
    }}"#,
    );
    assert!(reading.faults.is_empty(), "{reading:#?}");
    let shown = |name: &str| endpoint_of(&reading.servers[name].config);
    assert_eq!(shown("program"), "${TOKEN} -y ${TOKEN} $${x} 7");
    assert_eq!(shown("web"), "https://tools.example/${TOKEN}/mcp");
}

#[test]
fn one_bad_entry_is_told_with_its_place_and_stops_no_other() {
    check(r#"{"servers": {"ok": {"command": "x"}, "bad": {"command": "x", "url": "http://x/"}}}"#, 1, 62, "not both");
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"url\": \"https://x/${GONE}\"}}}",
        2,
        27,
        "`GONE` is not set",
    );
    check("{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"url\": \"${env:X}\"}}}", 2, 17, "is no variable");
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"url\": \"ftp://x\"}}}",
        2,
        16,
        "an http or https URL",
    );
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"url\": \"http://u:p@x/\"}}}",
        2,
        16,
        "credentials",
    );
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"command\": []}}}",
        2,
        20,
        "`command` is a program",
    );
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"command\": \"x\", \"timeout\": 0}}}",
        2,
        36,
        "`timeout`",
    );
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"command\": \"x\", \"type\": \"tcp\"}}}",
        2,
        33,
        "transport",
    );
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"command\": \"x\", \"type\": \"http\"}}}",
        2,
        9,
        "by HTTP",
    );
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"command\": \"x\", \"enabled\": \"no\"}}}",
        2,
        36,
        "true or false",
    );
    check("{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": 7}}", 2, 8, "a map of fields");
    check("{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"command\" \"x\"}}}", 2, 19, "a `:` belongs");
    check(
        "{\"servers\": {\"ok\": {\"command\": \"x\"},\n\"bad\": {\"url\": \"http://x/\", \"headers\": {\"Host\": \"y\"}}}}",
        2,
        41,
        "written by the hub",
    );

    #[track_caller]
    fn check(text: &str, line: usize, col: usize, words: &str) {
        let reading = only(text);
        assert_eq!(reading.servers.keys().collect::<Vec<_>>(), ["ok"], "{reading:#?}");
        let fault = &reading.faults[0];
        assert!(fault.contains(&format!("mcp.json:{line}:{col}: ")) && fault.contains(words), "{fault}");
    }
}

#[test]
fn a_fault_never_shows_a_secret() {
    let faults = only(r#"{"servers": {"bad": {"url": "x${TOKEN}", "headers": {"Authorization": "Bearer abc", "X-Api-Key": "def", "bad header": "ghi"}}}}"#).faults.join("\n");
    assert!(!faults.contains("tok-123") && !faults.contains("abc") && !faults.contains("def"), "{faults}");
}

#[test]
fn unknown_fields_warn() {
    let reading = only(r#"{"servers": {"a": {"command": "x", "tmieout": 5}}, "$schema": "x", "more": 1}"#);
    assert!(reading.faults.is_empty() && reading.servers.contains_key("a"));
    assert_eq!(reading.warnings.len(), 2, "{:?}", reading.warnings);
    assert!(reading.warnings[0].contains("did you mean `timeout`?"), "{:?}", reading.warnings);
}

#[test]
fn what_becomes_faulty_stays_as_it_was() {
    let lab = Lab::new().file(
        "home/.nexus/mcp.json",
        r#"{"servers": {"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}}"#,
    );
    let last = lab.read();
    let lab = lab.file("home/.nexus/mcp.json", r#"{"servers": {"a": {"command": "new"}, "b": {"command": 7}}}"#);
    let mut reading = lab.read();
    reading.keep(&last);
    assert_eq!(["a", "b"].map(|name| command(&reading, name)), ["new", "b"]);
    assert!(!reading.servers.contains_key("c"), "what was taken out is gone");
    for broken in ["", "  \n", "{\"servers\": {", "\u{0}", "[]x"] {
        let lab = Lab::new().file("home/.nexus/mcp.json", r#"{"servers": {"a": {"command": "a"}}}"#);
        let last = lab.read();
        let mut reading = lab.file("home/.nexus/mcp.json", broken).read();
        reading.keep(&last);
        assert!(reading.servers.contains_key("a") && !reading.faults.is_empty(), "{broken:?}");
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_keeps_nobody_waiting() {
    let lab = Lab::new();
    let pipe = lab.folder.path().join("home/project/.mcp.json");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(lab.read().faults[0].contains("is not a file"));
}

#[test]
fn the_example_loads() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/mcp.json");
    let places = Places { home: None, extra: vec![file], here: PathBuf::from("/") };
    let reading = read(&places, &[], &Env::default());
    assert!(reading.faults.is_empty() && reading.warnings.is_empty(), "{reading:?}");
    assert_eq!(reading.servers.keys().collect::<Vec<_>>(), ["filesystem", "tools"]);
}
