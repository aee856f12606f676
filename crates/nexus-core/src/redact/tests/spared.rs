//! What is no secret though a telling name announces it: what a shell would run, and source code.

use super::*;

#[test]
fn what_a_shell_would_run_is_shown() {
    for plain in [
        r#"password="$(echo pwned > /tmp/x)"; true"#,
        "password=$(id)",
        "password=`id`; true",
        "PGPASSWORD=\"a`id`\" psql",
        "curl http://user:$(id)@host",
        "curl http://user:`id`@host",
        "curl \"http://user:$(cat x)@host\"",
        "curl -u me:$(id) x",
        "curl -u \"me:$(cat x)\" y",
        "curl -ume:$(id) x",
        "mysql -p$(id) db",
        "sshpass -p $(id) ssh host",
        "sshpass -p \"$(cat x)\" ssh host",
        "docker login -p $(id)",
        "redis-cli -a`id` x",
        "openssl x -passin pass:$(id)",
        "machine h login me password $(id)",
        "DB_PASS=\"a`echo \"b c\"`\"",
        "password=${x:-$(id)}",
        "export PASSWORD=abc$(id)def; x",
        "psk=\"x$(id)\" y",
        "--token \"a\"\"$(id)\" y",
        "<password>$(id)</password>",
        "- name: X_TOKEN\n  value: $(id)",
        "curl -H \"Authorization: Bearer $(cat x)\" y",
        "Authorization: Bearer $(id)",
        "curl -H \"X-Api-Key: `id`\" y",
        r#"x --password "$(echo pwned)""#,
        "x --password $(id)",
        "x --token=<(id) y",
        "token=>(id)",
        r#"{"command":"password=\"$(echo pwned)\"; true"}"#,
        "password: |\n  $(id)\nuser: x",
        r#"DB_PASSWORD="$(curl -u me:pw x)""#,
    ] {
        check(plain, plain);
    }
}

#[test]
fn other_secrets_beside_what_a_shell_would_run_are_hidden() {
    let token = format!("ghp_{}", "a".repeat(36));
    check(&format!("password=\"$(x {token})\""), "password=\"$(x [redacted])\"");
    check("token=\"$(x)\" password=hunter2", "token=\"$(x)\" password=[redacted]");
    check("token=\"$(x\npassword=hunter2", "token=\"$(x\npassword=[redacted]");
    check("password: hunter2 # see `docs`", "password: [redacted] `docs`");
    check("password='hunter2'$(id)", "password='[redacted]'$(id)");
    check("Cookie: sid=hunter2; b=c `x`", "Cookie: [redacted] `x`");
    learn(["spared-own-value-1"]);
    check("password=\"$(x spared-own-value-1)\"", "password=\"$(x [redacted])\"");
}

#[test]
fn a_script_is_not_hidden_for_the_variable_it_begins_with() {
    check(r#"sh -c "PASSWORD=x; rm -rf y""#, r#"sh -c "PASSWORD=[redacted]; rm -rf y""#);
    check(r#"["sh", "-c", "PASSWORD=x; rm y"]"#, r#"["sh", "-c", "PASSWORD=[redacted]; rm y"]"#);
    let given = json!({ "argv": ["sh", "-c", "PASSWORD=x; rm y"], "env": ["PASSWORD=$(id)", "PASSWORD=a b"] });
    let shown =
        json!({ "argv": ["sh", "-c", "PASSWORD=[redacted]; rm y"], "env": ["PASSWORD=$(id)", "PASSWORD=[redacted]"] });
    assert_eq!(Value::Object(arguments(given.as_object().unwrap(), &[])), shown);
    assert_eq!(crate::redact::json(&given.to_string()).unwrap(), shown.to_string());
}

#[test]
fn names_of_variables_are_shown() {
    for plain in [
        "password=$DB_PASS",
        "password=\"${DB_PASS}\" x",
        "x --password $DB_PASS y",
        "password: ${DB_PASS}\nuser: x",
        "token: ${{ secrets.GITHUB_TOKEN }}",
        "curl -u me:$PW x",
        "git clone https://me:${PW}@host/x",
        "curl -H \"Authorization: Bearer $TOKEN\" x",
    ] {
        check(plain, plain);
    }
    for told in ["password=$a-b", "password='$1abc'", "password=hunter$x", "password=${A:-hunter2}", "password=$"] {
        assert!(text(told).contains(HIDDEN), "{told}: {}", text(told));
    }
}

#[test]
fn source_code_is_shown() {
    for plain in [
        "pub token: Token, pub next_token: Option<Token>",
        "struct A {\n    pub token: Token,\n    next_token: Option<Token>,\n    secret: Vec<u8>\n}",
        "let token = lexer.next();",
        "let token = self.lexer.next()?;",
        "let token = Token::new(kind);",
        "if password == other {",
        "password != x",
        "if (token === other)",
        "function f(token: string, secret: string)",
        "fn f(token: &str, password: &mut String, secret: &'a str) -> bool",
        "def f(token: str, password: str = None, secret=None):",
        "interface A {\n  token: string;\n  password: string | null;\n  secrets: string[];\n}",
        "password = getpass.getpass(\"x\")",
        "token = os.environ.get(\"TOKEN\")",
        "let token = other_token;",
        "f(token = other)",
        "const token = await load(x);",
        "self.token = self.tokens[0];",
        "tokens.map(token => token.id)",
        "password: SecretString\n",
    ] {
        check(plain, plain);
    }
}

#[test]
fn configuration_that_looks_a_little_like_code_is_hidden() {
    check("password = hunter2", "password = [redacted]");
    check("password = hunter\nuser = me", "password = [redacted]\nuser = me");
    check("password: hunter2", "password: [redacted]");
    check("password: Summer\nuser: x", "password: [redacted]\nuser: x");
    check("password: Hunter2, x", "password: [redacted]");
    check("password=hunter;", "password=[redacted];");
    check("password=Summer(2024)", "password=[redacted])");
    check("password = a.b", "password = [redacted]");
    check("password: string of pearls", "password: [redacted]");
    check("if password == \"hunter2\" {", "if password == \"[redacted]\" {");
    check("let token = \"hunter\";", "let token = \"[redacted]\";");
    check("token: String::from(\"hunter2\"),", "token: [redacted]");
}
