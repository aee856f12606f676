//! Secrets on other lines than their names, in pairs and in lists; and names that only talk about secrets.

use super::*;

#[test]
fn blocks_under_a_secret_name_are_hidden() {
    check("password: |\n  a\n\n  b c\nuser: x", "password: |\n  [redacted]\nuser: x");
    check("x:\n  - token: >-\n      a\n    b: c", "x:\n  - token: >-\n      [redacted]\n    b: c");
    check("x:\n  \"secret\": |2+ # it\r\n    a\r\n  b: c", "x:\n  \"secret\": |2+ # it\r\n    [redacted]\r\n  b: c");
    check("+  password: |\n+    a\n+  b: c\n", "+  password: |\n+    [redacted]\n+  b: c\n");
    check("password: |\nuser: x", "password: |\nuser: x");
    check("| token: |\n| --- |", "| token: |\n| --- |");
    check("private_key: |\n  a", "private_key: |\n  [redacted]");
}

#[test]
fn the_value_of_a_pair_is_hidden() {
    check(
        "env:\n- name: X_TOKEN\n  value: a b\n- name: PORT\n  value: 80",
        "env:\n- name: X_TOKEN\n  value: [redacted]\n- name: PORT\n  value: 80",
    );
    check(r#"{"name": "DB_PASSWORD", "value": "a b"}"#, r#"{"name": "DB_PASSWORD", "value": "[redacted]"}"#);
    check(
        r#"[{\"Name\":\"DB_PASSWORD\",\"Value\":\"a b\"}]"#,
        r#"[{\"Name\":\"DB_PASSWORD\",\"Value\":\"[redacted]\"}]"#,
    );
    check("- name: X_TOKEN\n  value: |\n    a\n- b", "- name: X_TOKEN\n  value: |\n    [redacted]\n- b");
    check("<password>a b</password>", "<password>[redacted]</password>");
    for plain in [
        "- name: X_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: x",
        "- name: TOKEN_FILE\n  value: /run/x",
        "use <token> and <url> here",
        "secrets:\n  - db_password\n  - value",
    ] {
        check(plain, plain);
    }
}

#[test]
fn variables_in_lists_are_hidden_to_the_end_of_their_item() {
    check(
        r#"{"Env": ["DB_PASSWORD=correct horse", "PATH=/bin"]}"#,
        r#"{"Env": ["DB_PASSWORD=[redacted]", "PATH=/bin"]}"#,
    );
    check(r#"[\"A_TOKEN=a;b c\",\"B=c\"]"#, r#"[\"A_TOKEN=[redacted]\",\"B=c\"]"#);
    check(r#""token=" + x"#, r#""token=" + x"#);
    let given = json!({ "env": ["DB_PASSWORD=a b", "X=y"], "vars": [{ "value": "a b", "name": "X_TOKEN" }] });
    let shown = json!({ "env": ["DB_PASSWORD=[redacted]", "X=y"], "vars": [{ "value": HIDDEN, "name": "X_TOKEN" }] });
    assert_eq!(Value::Object(arguments(given.as_object().unwrap(), &[])), shown);
    assert_eq!(crate::redact::json(&given.to_string()).unwrap(), shown.to_string());
}

#[test]
fn names_that_only_talk_about_a_secret_hide_nothing() {
    for plain in [
        "max_tokens: 4096",
        r#"{"max_tokens":4096,"total_tokens": 12}"#,
        r#"{"token":null,"secret": true}"#,
        "token_env: GITHUB",
        "token_env=GITHUB_X",
        "secretName: tls-cert",
        "passwordless: yes",
        "tokenizer: llama",
        "PASSWORD_FILE=/run/secrets/db",
        "docker login --password-stdin registry.lan",
        "token_type: bearer",
        "tokenEndpoint: /x",
        "expires: token_expires_at=5",
        "the token is invalid",
        "no such secret, and the password was wrong",
        "secret not found: db",
        "cookieDomain: lan",
        "the secretary: hello",
    ] {
        check(plain, plain);
    }
    check(r#"{"token":5,"a":{"pin_token": 7}}"#, r#"{"token":[redacted],"a":{"pin_token": [redacted]}}"#);
    for told in ["token: 5", "tokens: abc", "secretKey: abc", "MY_SECRET_ID=abc", "accessKeyId: abc", "password2=abc"] {
        assert!(text(told).contains(HIDDEN), "{told}");
    }
}
