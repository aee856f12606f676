//! The REPL without a terminal: a script of commands, here or against a hub elsewhere.

use serde_json::json;

use crate::support::{Hub, Program, Ran, hostile, secret, test_server};

async fn hub() -> Hub {
    let lazy = json!({ "command": [env!("CARGO_BIN_EXE_nexus"), "test-server"], "lazy": true });
    let hub = Hub::start().robot().upstreams(&json!({ "t": test_server(), "lazy": lazy, "h": hostile("good") })).await;
    hub.upstream_is("t", "ready").await;
    hub.upstream_is("h", "ready").await;
    hub
}

async fn typed(hub: &Hub, lines: &[&str]) -> Ran {
    hub.program(&["repl"]).run_with(&(lines.join("\n") + "\n")).await
}

#[tokio::test]
async fn servers_are_connected_called_and_let_go_by_a_script() {
    let hub = hub().await;
    let ran = typed(
        &hub,
        &[
            "/mcp",
            "/mcp connect t --allow-all",
            "/mcp tools t",
            "/tools",
            "/call mcp_t_add a=2 b=3",
            "/call mcp_t_echo {\"message\": \"grüße\"}",
            "/mcp logs h",
            "/approve",
            "/mcp disconnect t",
            "/audit",
            "/help",
            "/quit",
        ],
    );
    let out = ran.await.ok();
    for part in ["mcp_t_add", "5", "grüße", "started as process", "/mcp connect", "list_upstreams"] {
        assert!(out.contains(part), "no {part} in {out}");
    }
    hub.upstream_reaches("t", |now| now["state"] != "ready").await;
}

#[tokio::test]
async fn the_first_failure_ends_the_script_with_a_failure() {
    let cases: &[&[&str]] = &[
        &["/call no_such_tool", "/call mcp_t_echo message=unreached"],
        &["/nonsense", "/call mcp_t_echo message=unreached"],
        &["/mcp connect nobody --allow-all", "/call mcp_t_echo message=unreached"],
        &["/mcp connect t --allow-all", "/call mcp_t_add a=two b=3", "/call mcp_t_echo message=unreached"],
        // Nobody is there to be asked.
        &["/call mcp_t_add a=2 b=3", "/call mcp_t_echo message=unreached"],
        &["/mcp connect t --per-tool", "/call mcp_t_add a=2 b=3", "/call mcp_t_echo message=unreached"],
    ];
    for lines in cases {
        // What one run is allowed is its key's for a while, whoever comes with it.
        let hub = hub().await;
        let ran = typed(&hub, lines).await;
        assert!(!matches!(ran.code, Some(0) | None), "{lines:?}: {ran:?}");
        assert!(!ran.stdout.contains("unreached"), "{lines:?}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{lines:?}: {ran:?}");
    }
}

#[tokio::test]
async fn it_works_against_a_hub_elsewhere_by_url_and_key() {
    let hub = hub().await;
    let (url, key) = (format!("http://{}/mcp", hub.address), secret("robot"));
    let ran =
        Program::new(&["repl", "--url", &url, "--key", &key]).env("HOME", hub.path("elsewhere").to_str().unwrap());
    let out =
        ran.run_with("/mcp disconnect lazy\n/mcp connect lazy --private\n/call mcp_lazy_add a=2 b=3\n").await.ok();
    assert!(out.contains('5'), "{out}");
    let wrong = Program::new(&["repl", "--url", &url, "--key", &secret("nobody")]).run_with("/tools\n").await;
    assert!(!matches!(wrong.code, Some(0) | None), "{wrong:?}");
    assert!(!format!("{wrong:?}").contains(&secret("nobody")), "{wrong:?}");
}
