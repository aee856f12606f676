//! Names, options and shapes of a home's servers, each with what only looks like it.

use super::*;

#[test]
fn short_names_count_as_the_last_part_of_a_name() {
    check("DB_PASS=hunter2 x", "DB_PASS=[redacted] x");
    check("SMTP_PASS: hunter2", "SMTP_PASS: [redacted]");
    check("db_pwd=hunter2", "db_pwd=[redacted]");
    check("pass: hunter2", "pass: [redacted]");
    check("x pwd=hunter2", "x pwd=[redacted]");
    check("x --pass hunter2", "x --pass [redacted]");
    check("smtpPass = 'hunter2'", "smtpPass = '[redacted]'");
    check("  psk=\"a b\"", "  psk=\"[redacted]\"");
    check("wpa_psk=abc", "wpa_psk=[redacted]");
    check("PresharedKey = abc/d=", "PresharedKey = [redacted]");
    check("encryption_key: abc", "encryption_key: [redacted]");
    check("signing-key: abc", "signing-key: [redacted]");
    check("credentials: abc", "credentials: [redacted]");
    check(r#"{"pass": "x", "fail": 1}"#, r#"{"pass": "[redacted]", "fail": 1}"#);
    for plain in [
        "compass: north",
        "bypass=1",
        "PWD=/home/me",
        "OLDPWD=/home",
        "pwd=/home/me",
        r#"{"pwd":"/home/me"}"#,
        "--- PASS: TestX (0.00s)",
        "PASS: TestX",
        "pass: 12",
        r#"{"pass":12,"fail":3}"#,
        "the first pass: all of it",
        "invalid credentials: try again",
        "fetch(x, { credentials: 'include' })",
        "monkey: x, keyboard=us",
        "public_key: abc",
        "pskreporter: on",
    ] {
        check(plain, plain);
    }
    let given = json!({ "DB_PASS": "x", "pass": 3, "pwd": "/home", "PWD": "/x", "compass": "n", "psk": "y" });
    let shown = json!({ "DB_PASS": HIDDEN, "pass": 3, "pwd": "/home", "PWD": "/x", "compass": "n", "psk": HIDDEN });
    assert_eq!(Value::Object(arguments(given.as_object().unwrap(), &[])), shown);
    assert_eq!(crate::redact::json(&given.to_string()).unwrap(), shown.to_string());
}

#[test]
fn stored_logins_are_hidden() {
    check(r#"{"auths":{"r":{"auth":"bWU6aHVudGVyMg=="}}}"#, r#"{"auths":{"r":{"auth":"[redacted]"}}}"#);
    check(r#"{\"auth\": \"bWU6aHVudGVyMg==\"}"#, r#"{\"auth\": \"[redacted]\"}"#);
    check("machine h login me password hunter2\n", "machine h login me password [redacted]\n");
    check("machine h\n  login me\n  password hunter2", "machine h\n  login me\n  password [redacted]");
    check("default login me password hunter2", "default login me password [redacted]");
    for plain in [
        r#"{"auth":"required","x":{"auth":"disabled"}}"#,
        r#"{"auth":"OAuth2Client"}"#,
        "login with password authentication",
        "a machine login: use password hunting",
    ] {
        check(plain, plain);
    }
    let given = json!({ "auth": "bWU6aHVudGVyMg==", "x": { "auth": "required" } });
    let shown = json!({ "auth": HIDDEN, "x": { "auth": "required" } });
    assert_eq!(Value::Object(arguments(given.as_object().unwrap(), &[])), shown);
    assert_eq!(crate::redact::json(&given.to_string()).unwrap(), shown.to_string());
}

#[test]
fn short_options_of_more_commands_are_hidden() {
    check("docker login -u me -p hunter2 r.lan", "docker login -u me -p [redacted] r.lan");
    check("podman login -phunter2 r.lan", "podman login -p[redacted] r.lan");
    check("redis-cli -h x -a hunter2 ping", "redis-cli -h x -a [redacted] ping");
    check("valkey-cli -a 'a b' ping", "valkey-cli -a '[redacted]' ping");
    check("sshpass -p hunter2 ssh x", "sshpass -p [redacted] ssh x");
    check("openssl rsa -passin pass:hunter2 -in x", "openssl rsa -passin pass:[redacted] -in x");
    for plain in [
        "docker run -p 80:80 x",
        "docker login r.lan && docker run -p 80:80 x",
        "the login -p x",
        "redis-cli ping; ls -a x",
        "ls -a x",
        "openssl rsa -passin file:x -in y",
    ] {
        check(plain, plain);
    }
}

#[test]
fn hashes_of_passwords_are_hidden() {
    let long = "aB3./".repeat(17);
    check(&format!("root:$6$salt${long}:19000:0:"), "root:[redacted]:19000:0:");
    check(&format!("root:$y$j9T$salt${}:19000", &long[..43]), "root:[redacted]:19000");
    check(&format!("me:$2b$12${}", &long[..53]), "me:[redacted]");
    check(&format!("x $argon2id$v=19$m=65536,t=3,p=4$c2FsdA${} y", &long[..43]), "x [redacted] y");
    check(&format!("users=me:$$apr1$$salt$${}", &long[..22]), "users=me:[redacted]");
    assert_eq!(beginning("root:$6$salt$abc"), "root:[redacted]");
    for plain in ["awk '{print $1$2}'", "$6$salt", "echo $y$x", "costs $5$ or $6", "$2b$12$short", "$argon2id$"] {
        check(plain, plain);
    }
}

#[test]
fn more_tokens_are_hidden_by_shape() {
    let (digits, letters) = ("0123456789", "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5kL7nP9rS1");
    for (before, token) in [
        ("12345678:", format!("AA{}", &letters[..33])),
        ("https://api.telegram.org/bot1234567890:", format!("AA{}", &letters[..33])),
        ("x ", format!("sk-{letters}")),
        ("x ", format!("sk-svcacct-{letters}")),
        ("x ", format!("sk-ant-{letters}")),
        ("x ", format!("hf_{}", &letters[..34])),
        ("x ", format!("SG.{}.{}", &letters[..22], &letters[..43])),
        ("x ", format!("hvs.{letters}")),
        ("x ", format!("xapp-1-{letters}")),
        ("https://hooks.slack.com/services/", format!("T{digits}/B{digits}/{}", &letters[..24])),
        ("x ", format!("glsa_{}_1a2b3c4d", &letters[..32])),
        ("x ", "shpat_0123456789abcdef0123456789abcdef".to_owned()),
        ("x ", format!("pypi-AgEIcHlwaS5vcmc{letters}")),
        ("x ", format!("npm_{}", &letters[..36])),
        ("x ", format!("glpat-{}", &letters[..20])),
        ("x ", format!("tskey-auth-{}", &letters[..20])),
    ] {
        check(&format!("{before}{token} y"), &format!("{before}[redacted] y"));
    }
    for plain in [
        "12345678:AAshort",
        "1234567:AA3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3h",
        "at 12:00:00 AA",
        "sk-learn-and-some-more-words-here",
        "task-0123456789abcdef0123456789",
        "hf_hub_download_with_a_long_name_and_more",
        "SG.a.b and SG.1",
        "hvs.short",
        "xapp-1",
        "https://hooks.slack.com/services/x",
        "glsa_one_two_three_four_five_six_seven_eight",
        "shpat_short",
        "pypi-server-with-a-long-name-and-even-more-words-behind-it",
        "npm_config_cache",
        "glpat-x",
        "tskey-x",
    ] {
        check(plain, plain);
    }
}
