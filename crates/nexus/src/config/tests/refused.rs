//! Faulty files and variables: every fault is shown, with its place, and no secret ever.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{HASH, KEY, faults, faults_of_bytes, load_text};

#[test]
fn every_fault_is_shown_at_once_with_its_place() {
    let file = "\
server:
  http_port: eighty
  log_levle: info
  protocol: duel
keys:
  - { name: Laptop, sha256: hunter2, level: trustd }
  - { name: default, sha256: 6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090, expires: soon }
ansible:
  repo_url: git@github.com/you/playbooks
audit: { keep: 365 }
agents: { default: homlab, targets: { homelab: { worker: {}, telegram: { chat_id: 1 } } } }
store: postgres://nexus:hunter2@db/nexus
";
    let env = [("MCP_API_KEY", "hunter2"), ("LOKI_URL", "loki:3100"), ("MCP_PORT", "99999")];
    check(
        file,
        &env,
        "\
nexus.yaml:2:14: `eighty` is not a port (0 to 65535)
  |
2 |   http_port: eighty
  |              ^

nexus.yaml:3:3: unknown key `log_levle`
  |
3 |   log_levle: info
  |   ^
hint: did you mean `log_level`?

nexus.yaml:4:13: `duel` is not one of `dual` | `legacy` | `modern`
  |
4 |   protocol: duel
  |             ^
hint: did you mean `dual`?

nexus.yaml:6:13: `Laptop` is not a name of 1 to 64 characters out of `a-z`, `0-9`, `_` and `-`
  |
6 |   - { name: Laptop, sha256: *******, level: trustd }
  |             ^

nexus.yaml:6:29: a SHA-256 is 64 hexadecimal digits; these are 7 characters
  |
6 |   - { name: Laptop, sha256: *******, level: trustd }
  |                             ^
hint: printf %s \"$KEY\" | sha256sum

nexus.yaml:6:45: `trustd` is not one of `sandboxed` | `trusted` | `yolo`
  |
6 |   - { name: Laptop, sha256: *******, level: trustd }
  |                                             ^
hint: did you mean `trusted`?

nexus.yaml:7:13: the key name `default` is that of MCP_API_KEY, which is set
  |
7 |   - { name: default, sha256: ****************************************************************, expires: soon }
  |             ^
hint: rename this one, or unset MCP_API_KEY

nexus.yaml:7:105: `soon` is not a date or an RFC 3339 time
  |
7 |   - { name: default, sha256: ****************************************************************, expires: soon }
  |                                                                                                         ^
hint: 2027-01-31 or 2027-01-31T18:00:00Z

nexus.yaml:9:13: `git@github.com/you/playbooks` is not a git remote
  |
9 |   repo_url: git@github.com/you/playbooks
  |             ^ a colon belongs between host and path
hint: git@github.com:you/playbooks.git

nexus.yaml:10:16: `365` is not a time with a unit (`ms`, `s`, `m`, `h`, `d`)
   |
10 | audit: { keep: 365 }
   |                ^
hint: 90s, 30m, 24h or 365d

nexus.yaml:11:20: `homlab` is not one of the targets
   |
11 | agents: { default: homlab, targets: { homelab: { worker: {}, telegram: { chat_id: 1 } } } }
   |                    ^
hint: did you mean `homelab`?

nexus.yaml:11:39: the target `homelab` is reached in 2 ways; it must be exactly one
   |
11 | agents: { default: homlab, targets: { homelab: { worker: {}, telegram: { chat_id: 1 } } } }
   |                                       ^
hint: worker: {}, telegram: { chat_id: … } or webhook: { url: … }

nexus.yaml:12:8: the URL of the store must not hold a password
   |
12 | store: postgres://nexus:*******@db/nexus
   |        ^
hint: put the whole URL into NEXUS_STORE, or its path into NEXUS_STORE_FILE

environment: LOKI_URL `loki:3100` is not a URL
hint: http://loki:3100

environment: MCP_API_KEY is 7 characters long; a key has at least 32
hint: openssl rand -hex 32

environment: MCP_PORT `99999` is not a port (0 to 65535)
16 faults; nothing was started",
    );
}

#[test]
fn broken_files_say_where_they_break() {
    check(
        "server:\n  http_port: 1\n  http_port: 2\n",
        &[],
        "\
nexus.yaml:3:3: `http_port` is given twice
  |
3 |   http_port: 2
  |   ^ first on line 2
1 fault; nothing was started",
    );
    check(
        "server: [1, 2]\nkeys: laptop\nnodes: 5\nshell: { readable_env: { a: b }, output_cap: [1] }\nlinks: { port: ~ }",
        &[],
        "\
nexus.yaml:1:9: a map of keys belongs here
  |
1 | server: [1, 2]
  |         ^
hint: http_host: …

nexus.yaml:2:7: a list belongs here
  |
2 | keys: laptop
  |       ^
hint: [laptop]

nexus.yaml:3:8: a map belongs here
  |
3 | nodes: 5
  |        ^
hint: name: …

nexus.yaml:4:24: a list belongs here
  |
4 | shell: { readable_env: { a: b }, output_cap: [1] }
  |                        ^

nexus.yaml:4:46: a whole number above 0 belongs here, not a list
  |
4 | shell: { readable_env: { a: b }, output_cap: [1] }
  |                                              ^
5 faults; nothing was started",
    );
    check(
        "server: { http_prot: 1 }\nkeys: [\n",
        &[("GIT_TOKEN", "")],
        "\
nexus.yaml:1:11: unknown key `http_prot`
  |
1 | server: { http_prot: 1 }
  |           ^
hint: did you mean `http_port`?

nexus.yaml:2:7: not YAML: unclosed bracket '['
  |
2 | keys: [
  |       ^

environment: GIT_TOKEN is set but empty
hint: unset it, or give it a value
3 faults; nothing was started",
    );
    check(
        "- a\n- b\n",
        &[],
        "\
nexus.yaml:1:1: a map of keys belongs here
  |
1 | - a
  | ^
hint: server: …
1 fault; nothing was started",
    );
}

#[test]
fn each_rule_refuses_what_breaks_it() {
    let key = |rest: &str| format!("keys: [{{ name: a, sha256: {HASH}, {rest} }}]");
    refuses("server: { http_host: nexus.lan }", "1:22: `nexus.lan` is not an IP address");
    refuses("server: { http_port: 65536 }", "1:22: `65536` is not a port");
    refuses("server: { http_port: -1 }", "1:22: `-1` is not a port");
    refuses("server: { read_only: yes }", "1:22: `yes` is not `true` or `false`");
    refuses("server: { public_url: nexus.lan }", "hint: http://nexus.lan");
    refuses("server: { public_url: 'ftp://nexus.lan' }", "^ `http` or `https`");
    refuses("server: { public_url: 'https://u:hunter2@nexus.lan' }", "`https://u:*******@nexus.lan` holds credentials");
    refuses("server: { public_url: 'https://nexus.lan/?x' }", "is not a URL");
    refuses("server: { allowed_hosts: ['https://nexus.lan'] }", "hint: only the host, without scheme");
    refuses("server: { allowed_hosts: ['nexus.lan:0'] }", "is not a host");
    refuses("server: { allowed_hosts: ['*'] }", "is not a host");
    refuses("server: { allowed_origins: ['nexus.lan'] }", "is not an origin");
    refuses("server: { allowed_origins: ['https://nexus.lan/'] }", "hint: https://nexus.lan\n");
    refuses("server: { allowed_origins: ['*'] }", "is not an origin");
    refuses("server: { trusted_proxies: [10.0.0.0/33] }", "is not an IP address or a network");
    refuses("server: { trusted_proxies: [proxy] }", "is not an IP address or a network");
    refuses("server: { trusted_proxies: ['::1/129'] }", "is not an IP address or a network");
    refuses("server: { trusted_proxies: [10.0.0.0/] }", "is not an IP address or a network");
    refuses("server: { log_level: verbose }", "is not one of `off`");
    refuses("server: { rate_limit: { per_second: 0 } }", "`0` is not a whole number above 0");
    refuses("server: { limits: { session_idle: 0s } }", "`0s` is not between 1ms and 36500d");
    refuses("keys: [{ name: a }]", "1:8: `sha256` is missing");
    refuses(&format!("keys: [{{ name: a, sha256: {} }}]", HASH.replace('6', "g")), "^ not hexadecimal");
    refuses(&key("allow: ['run command']"), "is not a tool pattern");
    refuses(&key("allow: ['[a-z]']"), "is not a tool pattern");
    refuses(&key("session: none"), "is not one of `auto` | `lease`");
    refuses(&key("expires: 2027-02-30"), "is not a date");
    refuses(&key("target: homelab"), "hint: declare it below agents.targets");
    refuses(
        &format!("keys: [{{ name: a, sha256: {HASH} }}, {{ name: a, sha256: {KEY}{KEY} }}]"),
        "the key name `a` is used twice",
    );
    refuses(
        &format!("keys: [{{ name: a, sha256: {HASH} }}, {{ name: b, sha256: {HASH} }}]"),
        "the same key has two names",
    );
    for (name, whose) in [("local", "the process behind `nexus stdio`"), ("operator", "the operator's command line")] {
        let expected = format!("the key name `{name}` is that of {whose}");
        refuses(&format!("keys: [{{ name: {name}, sha256: {HASH} }}]"), &expected);
    }
    refuses("approval: { mode: always }", "is not one of `ask` | `chat` | `operator`");
    refuses("store: sqlite.db", "not a `postgres://` URL");
    refuses("audit: { max_size: 10 }", "is not a size");
    refuses("loki: { audit_labels: { 1a: b } }", "is not a label name");
    refuses("shell: { program: sh }", "hint: /bin/sh");
    refuses("nodes: { -oProxyCommand: { ssh: a@b } }", "is not a node's name");
    refuses("nodes: { n: { ssh: -oProxyCommand=x@b } }", "is not an ssh target");
    refuses("nodes: { n: { ssh: 'a@b:22' } }", "hint: port: 22");
    refuses("nodes: { n: {} }", "1:13: `ssh` is missing");
    refuses("docker: { remote_contexts: { n: admin@host } }", "is not a Docker host");
    refuses("ansible: {}", "1:10: `repo_url` is missing");
    refuses("ansible: { repo_url: /srv/p, review_branch_prefix: 'a b' }", "is not the start of a git branch name");
    refuses("mcp: { allow_private: ['http://x'] }", "is not a host");
    refuses("mcp: { files: [''] }", "is not a path");
    refuses("agents: { targets: { a: {} } }", "is reached in 0 ways");
    refuses("agents: { default: a }", "is not one of the targets");
    refuses("agents: { targets: { 'a b': { worker: {} } } }", "is not a target's name");
    refuses("agents: { targets: { telegram bot: { worker: {} } } }", "is not a target's name");
    refuses("agents: { targets: { a: { worker: { x: 1 } } } }", "hint: no keys belong here");
    refuses("links: { probe_timeout_ms: 0 }", "is not a whole number above 0");
    refuses("integrations: { cloudflare_zone_id: abc }", "is not a Cloudflare zone id");
    refuses("mcp_api_key: hunter2", "1 | mcp_api_key: *******");
    refuses("a: &x 1\n<<: *x", "merge keys are not supported");
    refuses("server: !!map {}", "the tag");
    refuses("server: {}\n---\nserver: {}", "a second document starts here");
    refuses("? [a]\n: b", "a key must be plain text");
    refuses("server: \u{1b}[31m", "not YAML");

    #[track_caller]
    fn refuses(text: &str, expected: &str) {
        let printed = faults(text, &[]);
        assert!(printed.contains(expected), "{text}\n{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(!printed.contains('\u{1b}'), "{printed}");
    }
}

#[test]
fn each_variable_is_checked() {
    refuses(&[("MCP_HOST", "nexus")], "MCP_HOST `nexus` is not an IP address");
    refuses(&[("MCP_PORT", "")], "MCP_PORT is set but empty");
    refuses(&[("MCP_API_KEY", "0123456789abcdef 0123456789abcdef")], "MCP_API_KEY holds something else than visible");
    refuses(&[("CC_LINK_TOKEN", "hunter2")], "CC_LINK_TOKEN is 7 characters long; a token has at least 8");
    refuses(&[("CC_LINK_TOKEN", "my hunter2")], "CC_LINK_TOKEN holds something else than visible");
    refuses(&[("NEXUS_STORE", "mysql://u:hunter2@db/x")], "NEXUS_STORE is not a `postgres://` URL");
    refuses(&[("NEXUS_LOG", "nexus=loud")], "NEXUS_LOG `nexus=loud` is not a log filter");
    refuses(&[("LOKI_URL", "http://u:hunter2@loki")], "LOKI_URL `http://u:*******@loki` holds credentials");
    refuses(&[("NEXUS_DATA", "")], "NEXUS_DATA is set but empty");

    #[track_caller]
    fn refuses(env: &[(&str, &str)], expected: &str) {
        let printed = faults("", env);
        assert!(printed.contains(&format!("environment: {expected}")), "{printed}");
        assert!(!printed.contains("hunter2") && !printed.contains("0123"), "{printed}");
    }
}

#[test]
fn hostile_files_are_refused_in_bounded_time() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    check(laughs.as_bytes(), "unfolds to more than");
    check(b"a: &a [*a]", "this alias refers to itself");
    check("[".repeat(100_000).as_bytes(), "not YAML");
    check((0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth % 60))).collect::<String>().as_bytes(), "fault");
    check("- ".repeat(100_000).as_bytes(), "not YAML");
    check("x: 1\n".repeat(10_000).as_bytes(), "more\n10000 faults; nothing was started");
    check(&vec![b'#'; 2_000_000], "is larger than 1048576 bytes");
    check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0", "not YAML");
    check(b"server: {}\n\xff\xfe", "is not text in UTF-8");
    check(format!("server: {{ log_level: {} }}", "x".repeat(500_000)).as_bytes(), "is not one of");

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let started = Instant::now();
        let printed = faults_of_bytes(bytes, &[]);
        assert!(printed.contains(expected), "{printed}");
        assert!(printed.len() < 50_000, "{} bytes of faults", printed.len());
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_stumble(text in "([a-z]{1,8}|server|keys|nodes|agents|targets|[:\\[\\]{},&*!|>'\"%@#\\\\-]|: |- |\n|  |\t|é|[0-9]){0,60}") {
        // Loaded or refused; a panic fails the test.
        let printed = load_text(text.as_bytes(), &[]).map(|_| String::new()).unwrap_or_else(|faults| faults.to_string());
        prop_assert!(printed.is_empty() || printed.ends_with("nothing was started"));
    }
}

#[track_caller]
fn check(text: &str, env: &[(&str, &str)], expected: &str) {
    assert_eq!(faults(text, env), expected);
}
