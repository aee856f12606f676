mod lines;
mod output;
mod own;
mod skipping;
mod spared;
mod told;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::kept::{CUT, LONGEST, MOST};
use super::names::SECRET_WORDS;
use super::shapes::TOKENS;
use super::*;

#[test]
fn secrets_are_hidden_by_shape() {
    check(&format!("x ghp_{} y", "a".repeat(36)), "x [redacted] y");
    check("sk-ant-short", "sk-ant-short");
    check("a eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_x b", "a [redacted] b");
    check("keyJson.some.field", "keyJson.some.field");
    check("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY----- tail", "[redacted] tail");
    check("KEY_SECRET=-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", "KEY_SECRET=[redacted]");
    check("-----BEGIN RSA PRIVATE KEY-----\nabc", "[redacted]");
    let certificate = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----";
    check(certificate, certificate);
    check("got Bearer abcdefgh.", "got Bearer [redacted]");
    check("bearer of news", "bearer of news");
    check("basic authentication failed", "basic authentication failed");
}

#[test]
fn passwords_in_urls_are_hidden() {
    check("git clone https://me:hunter2@host/x", "git clone https://[redacted]@host/x");
    check("https://me:p@ss/w?o#rd@host/x", "https://[redacted]@host/x");
    check(r#"x "https://me:pw@host","a@b""#, r#"x "https://[redacted]@host","a@b""#);
    check(r#"https://me:p"'<w>@host"#, "https://[redacted]@host");
    check(&format!("https://me:{}@host", "x".repeat(5_000)), "https://[redacted]@host");
    for plain in [
        "https://host/a@b:c",
        "http://host:8080/@scope/pkg",
        "http://[::1]:8080/a@b",
        "https://me@host/x:y",
        "see https://host: it said me@host",
        "://",
    ] {
        check(plain, plain);
    }
}

#[test]
fn secrets_are_hidden_after_their_names() {
    check("mysql --password=hunter2 -e 1", "mysql --password=[redacted] -e 1");
    check("mysql --password hunter2 -e 1", "mysql --password [redacted] -e 1");
    check("x --password \\\n hunter2", "x --password \\\n [redacted]");
    check("PGPASSWORD='correct horse' psql", "PGPASSWORD='[redacted]' psql");
    check(r"PGPASSWORD='a'\''b c' psql", "PGPASSWORD=[redacted] psql");
    check(r#"PASS_TOKEN="a\"b" x"#, r#"PASS_TOKEN="[redacted]" x"#);
    check("docker run -e \"TOKEN=abc\" x", "docker run -e \"TOKEN=[redacted]\" x");
    check("x?api_key=abc&y=1", "x?api_key=[redacted]&y=1");
    check("user[password]=x", "user[password]=[redacted]");
    check("x password = hunter2, y", "x password = [redacted], y");
    check("x password => 'hunter2'", "x password => '[redacted]'");
    check("(x password: hunter2)", "(x password: [redacted])");
    check(
        "db:\n  password: correct horse\n  - token: a b\nuser: me",
        "db:\n  password: [redacted]\n  - token: [redacted]\nuser: me",
    );
    check(r#"Config { token: Some("a b"), n: 1 }"#, "Config { token: [redacted]), n: 1 }");
    check(r#"["--token", "abc", "x"]"#, r#"["--token", "[redacted]", "x"]"#);
    for plain in [
        "a token ring, token=",
        "reading /etc/passwd: permission denied",
        "./secrets:/run/secrets",
        "the token: expected a string",
        "token: invalid type: integer, expected a string",
        "--token --verbose",
        "secret::Key and secret://x",
        "max_tokens",
    ] {
        check(plain, plain);
    }
}

#[test]
fn secrets_are_hidden_in_json_however_often_it_was_escaped() {
    check(r#"{"client_secret": "abc"}"#, r#"{"client_secret": "[redacted]"}"#);
    check(r#"{"password":"a\\","x":"y"}"#, r#"{"password":"[redacted]","x":"y"}"#);
    check(r#""{\"password\":\"a\\\"b\",\"x\":1}""#, r#""{\"password\":\"[redacted]\",\"x\":1}""#);
    check(r#"{\\\"password\\\":\\\"x\\\"}"#, r#"{\\\"password\\\":\\\"[redacted]\\\"}"#);
    check(r#"{"tokens": ["a]", "b"], "x": 1}"#, r#"{"tokens": [redacted], "x": 1}"#);
    check("{\"password\":\n  \"x\"}", "{\"password\":\n  \"[redacted]\"}");
    check("{'token': 'x'}", "{'token': '[redacted]'}");
}

#[test]
fn secrets_are_hidden_in_headers() {
    check("Authorization: Bearer abcdefghijklmnop1234", "Authorization: Bearer [redacted]");
    check("x Authorization: Basic dXNl\nHost: x", "x Authorization: Basic [redacted]\nHost: x");
    check("Authorization: Digest a=\"b\", c=\"d\"\r\nx", "Authorization: [redacted]\r\nx");
    check("curl -H 'Authorization: Basic dXNl' https://x", "curl -H 'Authorization: Basic [redacted]' https://x");
    check("curl -H \"Cookie: sid=a; b=c\" x", "curl -H \"Cookie: [redacted]\" x");
    check("Cookie: sid=a; b=\"c\"\nx", "Cookie: [redacted]\nx");
    check(r#"["-H", "Cookie: a=b", "x"]"#, r#"["-H", "Cookie: [redacted]", "x"]"#);
    check("curl -H X-Api-Key:s3cr3t x", "curl -H X-Api-Key:[redacted] x");
    check("curl -H 'X-Api-Key: s3cr3t' x", "curl -H 'X-Api-Key: [redacted]' x");
    check("with X-Auth-Token: Bearer abc x", "with X-Auth-Token: Bearer [redacted] x");
}

#[test]
fn secrets_are_hidden_on_command_lines() {
    check("curl -u me:pw https://x", "curl -u me:[redacted] https://x");
    check("curl -sume:pw; curl -ume:pw x", "curl -sume:pw; curl -ume:[redacted] x");
    check("x --user 'me:p w' y", "x --user 'me:[redacted]' y");
    check("x --user=me:pw", "x --user=me:[redacted]");
    check("docker run -u 1000:1000 x", "docker run -u 1000:1000 x");
    check("curl -u 1000:1000 x", "curl -u 1000:[redacted] x");
    check("sudo -u me ls", "sudo -u me ls");
    check("sshpass -p pw ssh -p 22 host", "sshpass -p [redacted] ssh -p 22 host");
    check("sshpass -p'p w' ssh host", "sshpass -p'[redacted]' ssh host");
    check("sshpass -ppw ssh host", "sshpass -p[redacted] ssh host");
    check("/usr/bin/mysql -u root -pSECRET db", "/usr/bin/mysql -u root -p[redacted] db");
    check("mysqldump -p db", "mysqldump -p db");
    check("mysql x && mkdir -pfoo", "mysql x && mkdir -pfoo");
}

#[track_caller]
fn check(given: &str, expected: &str) {
    let shown = text(given);
    assert_eq!(shown, expected);
    assert_eq!(matches!(shown, Cow::Borrowed(_)), given == expected);
    assert_eq!(text(&shown), expected, "hidden twice");
}

#[test]
fn what_was_cut_through_is_hidden() {
    for given in ["https://me:hunt", "x ghp_hunt", "Bearer hunt", "eyJhunt", "eyJa.hunt", "https://me:hunt/e"] {
        assert!(!beginning(given).contains("hunt"), "{}", beginning(given));
        assert!(text(given).contains("hunt"));
    }
    assert_eq!(beginning("see http://host:80/x"), "see http://host:80/x");
}

#[test]
fn secrets_are_hidden_by_name_and_by_schema() {
    let given = json!({
        "user": "me", "password": "x", "pin": "1234", "nested": { "apiKey": "y", "n": 1, "pin": "no" },
        "logins": [{ "pin": 1, "name": "a" }], "argv": ["x", "--password", "hunter2", "-u", "me:pw", "--token", "-v"],
    });
    let secret = ["pin", "logins.pin"].map(str::to_owned);
    assert_eq!(
        Value::Object(arguments(given.as_object().unwrap(), &secret)),
        json!({
            "user": "me", "password": HIDDEN, "pin": HIDDEN, "nested": { "apiKey": HIDDEN, "n": 1, "pin": "no" },
            "logins": [{ "pin": HIDDEN, "name": "a" }],
            "argv": ["x", "--password", HIDDEN, "-u", HIDDEN, "--token", "-v"],
        })
    );
}

#[test]
fn a_schema_tells_its_secrets_at_any_depth() {
    let pin = json!({ "type": "string", "format": "secret" });
    let login = json!({ "type": "object", "properties": { "pin": pin, "name": {} } });
    check(&json!({ "properties": { "pin": pin, "name": {} } }), &["pin"]);
    check(&json!({ "properties": { "login": login } }), &["login.pin"]);
    check(&json!({ "properties": { "logins": { "items": login } } }), &["logins.pin"]);
    check(&json!({ "properties": { "pins": { "items": pin } } }), &["pins"]);
    check(&json!({ "properties": { "login": { "anyOf": [login, { "type": "null" }] } } }), &["login.pin"]);
    check(&json!({ "properties": { "by_name": { "additionalProperties": login } } }), &["by_name"]);
    check(&json!({ "additionalProperties": pin }), &[""]);
    check(&json!({ "properties": { "a": { "$ref": "#/$defs/L" } }, "$defs": { "L": login } }), &["a.pin"]);
    let tree = json!({ "properties": { "a": { "$ref": "#/$defs/T" }, "b": { "$ref": "#/$defs/T" } } });
    check(&json!({ "$ref": "#/$defs/T", "$defs": { "T": tree } }), &[]);
    check(&json!({ "$ref": "#/$defs/T", "$defs": { "T": tree }, "properties": { "pin": pin } }), &[""]);

    #[track_caller]
    fn check(schema: &Value, paths: &[&str]) {
        assert_eq!(secret_fields(schema.as_object().unwrap()), paths);
    }
}

#[test]
fn long_strings_are_cut_and_a_secret_at_the_cut_is_not_spared() {
    let long = format!("{}https://me:{}@host", "x".repeat(LONGEST - 20), "hunter2".repeat(1_000));
    let given = json!({ "a": long });
    let kept = arguments(given.as_object().unwrap(), &[]);
    let kept = kept["a"].as_str().unwrap();
    assert!(kept.chars().count() < LONGEST + 30);
    assert!(!kept.contains("hunter2"), "{}", &kept[LONGEST - 40..]);
    assert!(kept.ends_with(&format!("({} bytes)", long.len())));
}

#[test]
fn what_is_kept_of_one_call_is_small_and_quickly_found() {
    let name = |i: usize| format!("field_{i}");
    check(&(0..100_000).map(|i| (name(i), "x".repeat(40).into())).collect());
    check(&(0..100).map(|i| (name(i), "\u{1}".repeat(40_000).into())).collect());
    check(&[("a".to_owned(), (0..1_000_000).map(Value::from).collect())].into_iter().collect());
    check(
        &(0..4).map(|i| (name(i).repeat(1 << 17), Value::Null)).chain([(name(9), "x".repeat(9_999).into())]).collect(),
    );
    check(&(0..99).map(|i| (name(i), (0..99).fold(json!(1), |value, _| json!({ "a": [value] })))).collect());

    #[track_caller]
    fn check(given: &Map<String, Value>) {
        let started = Instant::now();
        let kept = Value::Object(arguments(given, &["pin".to_owned()])).to_string();
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        assert!(kept.len() < MOST + 4 * LONGEST, "{}", kept.len());
        assert!(kept.contains(CUT) || kept.contains("bytes)"), "{kept}");
    }
}

/// Pieces from which hostile texts are made.
const PIECES: &[&str] = &[
    "bearer ",
    "basic ",
    "ghp_",
    "ghp_abc ",
    "://",
    "a://b:c/",
    "a://b:1/@",
    "://u:p@",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----",
    "-----END ",
    "-----",
    "password=",
    "password: ",
    "--token ",
    "\"",
    "'",
    "`",
    "\\",
    "\\\"",
    "eyJ",
    "eyJa.",
    ".",
    "Cookie: ",
    "\"Cookie:",
    "Authorization:",
    "token",
    "secret",
    "-u ",
    "-u=",
    "-u \"",
    "--user ",
    "curl ",
    "mysql ",
    "sshpass ",
    "-p",
    "-pa ",
    "=",
    ":",
    "[",
    "]",
    "{",
    "}",
    "[redacted]",
    "\n",
    "\r\n",
    " ",
    "\t",
    ",",
    ";",
    "&",
    "|",
    "/",
    "@",
    "ä",
    "日",
    "…",
    "a",
    "1",
    "Z",
    "-",
    "_",
    "tokens\": [",
    "expected ",
    "not a ",
    "$(",
    "<(",
    "$6$",
    "12345678:AA",
    "docker login ",
    "redis-cli -a ",
    "DB_PASS=",
    "psk: ",
    "\"auth\":",
    "sk-",
    "hvs.",
    "Token<",
];

#[test]
fn hostile_texts_take_linear_time() {
    const LENGTH: usize = 4 << 20;
    for piece in ["bearer ", "basic ", "ghp_abc ", "://", "-----BEGIN ", "password=", "--token ", "\"", "eyJ", "eyJ.a "]
    {
        check(&piece.repeat(LENGTH / piece.len()));
    }
    for pieces in PIECES.windows(1).chain(PIECES.windows(2)).chain(PIECES.windows(3)) {
        let piece = pieces.concat();
        check(&piece.repeat(LENGTH / 64 / piece.len()));
    }
    check(&format!("{}.{}", "eyJ".repeat(LENGTH / 6), "a".repeat(LENGTH / 2)));
    check(&PIECES.concat().repeat(LENGTH / 400 / 4));
    check(&(1..2_000).map(|i| format!("-u {}\"password=a{0}\"b token: {0}\"", "\\".repeat(i))).collect::<String>());
    check(&"\"Cookie:\" ".repeat(LENGTH / 8 / 10));
    check(&"token: [\n".repeat(LENGTH / 8 / 9));
    check(&"password='' ".repeat(LENGTH / 8 / 12));
    for piece in [
        "password: |\n",
        "token: |\n\n",
        "X_TOKEN\n",
        "token\" , \"value",
        "<token>",
        "\"token=a ",
        "\\\"token=a '",
        "password=$(",
        "password=\"$(\n",
        "Authorization: `a` ",
        "://u:$(@",
        "token: Option<",
        "$6$a",
        " - \n",
    ] {
        check(&piece.repeat(LENGTH / 32 / piece.len()));
    }
    learn(["hostile-own-1", "hostile"]);
    check(&"hostile-own-".repeat(LENGTH / 32 / 12));
    check(&"hostile-own-1 b1N0aWxl".repeat(LENGTH / 32 / 22));

    #[track_caller]
    fn check(given: &str) {
        let started = Instant::now();
        let shown = text(given);
        let start: String = given.chars().take(60).collect();
        assert!(started.elapsed() < Duration::from_secs(10), "{start}: {:?}", started.elapsed());
        assert!(shown.len() <= 6 * given.len() + HIDDEN.len(), "{start}");
    }
}

fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => prop::sample::select(PIECES).prop_map(str::to_owned), 1 => "\\PC{0,3}"];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// A text with `%` where the secret goes.
fn forms() -> impl Strategy<Value = String> {
    let told = [
        "X-Api-Key: %",
        "Cookie: sid=%; b=c",
        "password: %",
        "PASSWORD=%",
        "db_password = \"%\"",
        "{\"password\":\"%\"}",
        "{\\\"password\\\":\\\"%\\\"}",
        "Authorization: Basic %",
        "-H 'Authorization: %'",
        "Bearer %",
        "basic %",
        "curl -u me:%",
        "curl -ume:%",
        "--user me:%",
        "--user 'me:%'",
        "sshpass -p %",
        "sshpass -p%",
        "mysql -p%",
        "mysql -u root -p'%'",
        "https://me:%@host/x",
        "\"postgres://me:%@host/x\"",
        "https://me:a/%?b#@host",
        "--password %",
        "--token=%",
        "DB_PASS=%",
        "docker login -p %",
        "redis-cli -a %",
        "machine h login me password %",
        "psk=%",
        "hvs.%%",
        "SG.%%.%%%",
        "x?token=%&a=b",
        "eyJ%.eyJ%.%",
        "-----BEGIN RSA PRIVATE KEY-----\n%\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n%",
    ];
    let known = TOKENS.iter().map(|(prefix, _)| format!("{prefix}%%%"));
    prop::sample::select(told.into_iter().map(str::to_owned).chain(known).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn no_secret_survives(
        before in "\\PC{0,40}",
        form in forms(),
        secret in "Q[0-9][A-Za-z0-9]{12}",
        after in "\\PC{0,40}",
    ) {
        let given = format!("{before}\n{} {after}", form.replace('%', &secret));
        prop_assert!(!text(&given).contains(&secret), "{}", text(&given));
    }

    #[test]
    fn odd_passwords_in_urls_do_not_survive(password in "Q[!-~äß]{8,60}Q") {
        // What a shell would run is shown.
        let given = format!("x https://me:{}@host/ y", password.replace(['`', '('], "'"));
        prop_assert_eq!(text(&given), "x https://[redacted]@host/ y");
    }

    #[test]
    fn any_text_is_taken(any in any::<String>(), hostile in hostile()) {
        let _ = (text(&any), beginning(&any), text(&hostile), beginning(&hostile));
    }

    // Of hostile texts a second look may hide more: without the blanks in a secret, two words can become a URL.
    #[test]
    fn hiding_twice_changes_nothing(
        texts in prop::collection::vec((forms(), "[ \n][A-Za-z0-9 .,:/äß\n-]{0,12}[ \n]"), 1..5),
        secret in "[A-Za-z0-9]{1,20}",
    ) {
        let given: String = texts.iter().map(|(form, between)| form.replace('%', &secret) + between).collect();
        let once = text(&given).into_owned();
        prop_assert_eq!(text(&once), once.as_str());
    }

    #[test]
    fn other_text_stays_as_it_is(plain in "([a-z]{1,7}[ ,.:\n=/()\"]){0,30}") {
        prop_assume!(!SECRET_WORDS.iter().any(|(word, _)| plain.contains(word)));
        prop_assume!(!plain.contains("basic") && !plain.contains("bearer"));
        prop_assert!(matches!(text(&plain), Cow::Borrowed(same) if same == plain));
    }
}
