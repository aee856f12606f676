//! Lines, and what they mean.

use serde_json::{Value, json};

use super::*;

#[test]
fn lines_become_commands() {
    check("", None);
    check("  # a comment", None);
    check("/tools", Some(Command::Tools { tool: None }));
    check("/tools read_file", Some(Command::Tools { tool: Some("read_file".into()) }));
    check("  /mcp ", Some(Command::Upstreams));
    check("/mcp connect git", Some(connect(None, None)));
    check("/mcp connect git --allow-all", Some(connect(Some(Consent::AllowAll), None)));
    check("/mcp connect --private git", Some(connect(None, Some(Visibility::Private))));
    check(
        "/mcp connect git --per-tool --shared --shared",
        Some(connect(Some(Consent::PerTool), Some(Visibility::Shared))),
    );
    check("/mcp disconnect 'my server'", Some(Command::Disconnect { server: "my server".into() }));
    check("/mcp tools", Some(Command::UpstreamTools { server: None }));
    check("/mcp logs git", Some(Command::UpstreamLog { server: "git".into(), lines: None }));
    check("/mcp logs git 50", Some(Command::UpstreamLog { server: "git".into(), lines: Some(50) }));
    check("/approve", Some(Command::Approve { code: None, scope: None }));
    check("/approve AB12 once", Some(Command::Approve { code: Some("AB12".into()), scope: Some("once".into()) }));
    check("/revoke", Some(Command::Revoke));
    check("/audit limit=5", Some(Command::Audit { filters: vec![("limit".into(), "5".into())] }));
    check("/json", Some(Command::LastAsJson));
    check("/help", Some(Command::Help));
    check("/exit", Some(Command::Quit));

    #[track_caller]
    fn check(line: &str, expected: Option<Command>) {
        assert_eq!(parse(line), Ok(expected), "{line}");
    }

    fn connect(consent: Option<Consent>, visibility: Option<Visibility>) -> Command {
        Command::Connect { server: "git".into(), consent, visibility }
    }
}

#[test]
fn a_call_takes_json_or_pairs() {
    check(r#"/call echo {"message": "a b"}"#, &json!({ "message": "a b" }));
    check("/call get_time", &[][..]);
    check("/call add a=2 b=3", &[("a", "2"), ("b", "3")][..]);
    check("/call echo message='a b=c'", &[("message", "a b=c")][..]);

    #[track_caller]
    fn check<'a>(line: &str, expected: impl Into<Expected<'a>>) {
        let Ok(Some(Command::Call { arguments, .. })) = parse(line) else { panic!("{line}") };
        match (arguments, expected.into()) {
            (Given::Json(given), Expected::Json(expected)) => assert_eq!(Value::Object(given), expected, "{line}"),
            (Given::Pairs(given), Expected::Pairs(expected)) => {
                let given: Vec<_> = given.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                assert_eq!(given, expected, "{line}");
            }
            (given, _) => panic!("{line}: {given:?}"),
        }
    }

    enum Expected<'a> {
        Json(Value),
        Pairs(&'a [(&'a str, &'a str)]),
    }

    impl From<&Value> for Expected<'_> {
        fn from(value: &Value) -> Self {
            Expected::Json(value.clone())
        }
    }

    impl<'a> From<&'a [(&'a str, &'a str)]> for Expected<'a> {
        fn from(pairs: &'a [(&'a str, &'a str)]) -> Self {
            Expected::Pairs(pairs)
        }
    }
}

#[test]
fn mistakes_say_what_to_do() {
    check("hello", "commands begin with a slash: /help lists them, `/call TOOL …` calls a tool");
    check("/tolls", "there is no command `/tolls`; did you mean `/tools`?");
    check("/wherever", "there is no command `/wherever`; /help lists them");
    check("/mcp conect git", "there is no command `/mcp conect`; did you mean `/mcp connect`?");
    check("/call", "what is missing: /call TOOL key=value … | {json}");
    check("/mcp connect", "what is missing: /mcp connect NAME [--allow-all | --per-tool] [--shared | --private]");
    check("/mcp connect git --allow-all --per-tool", "`--allow-all` and `--per-tool` exclude each other");
    check(
        "/mcp connect a b",
        "`b` is one word too many: /mcp connect NAME [--allow-all | --per-tool] [--shared | --private]",
    );
    check(
        "/mcp connect a --all",
        "`--all` is one word too many: /mcp connect NAME [--allow-all | --per-tool] [--shared | --private]",
    );
    check("/mcp logs git many", "`many` is not a number of lines");
    check("/call echo [1]", "the arguments must be an object, as in {\"path\": \"/\"}");
    check("/call echo hello", "`hello` is not key=value; or give all arguments as one JSON object");
    check("/call echo =x", "`=x` is not key=value; or give all arguments as one JSON object");
    check("/call echo message='a", "the quote ' at character 9 is not closed");
    assert!(parse("/call echo {\"a\":").unwrap_err().to_string().starts_with("the arguments are not JSON: "));

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
    }
}

#[test]
fn every_command_of_the_table_can_be_typed() {
    for usage in &COMMANDS {
        let parsed = parse(usage.name);
        assert!(parsed == Err(Mistake::Missing(usage)) || parsed.is_ok(), "{}: {parsed:?}", usage.name);
    }
}
