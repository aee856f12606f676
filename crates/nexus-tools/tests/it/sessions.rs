//! `get_session_info` and `get_env`.

use nexus_core::gate::Writes;
use nexus_tools::Settings;
use nexus_tools::session::GetSessionInfo;
use nexus_tools::shell::GetEnv;
use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn a_model_learns_who_it_is_and_what_a_write_needs() {
    let mut bench = Bench::with(Settings { version: "9.9.9", ..Settings::default() });
    bench.cx.client_name = Some("inspector/1.0".into());
    let info = bench.call::<GetSessionInfo>(json!({})).await.unwrap();
    assert_eq!(
        (&info["principal"], &info["level"], &info["writes"]),
        (&json!("tester"), &json!("trusted"), &json!("locked"))
    );
    assert_eq!(
        (&info["client"], &info["transport"], &info["era"]),
        (&json!("inspector/1.0"), &json!("http"), &json!("modern"))
    );
    assert_eq!(
        (&info["nodes"], &info["version"], &info["read_only"]),
        (&json!(["local"]), &json!("9.9.9"), &json!(false))
    );
    assert_eq!(info["session"], bench.cx.session.id.to_string());
    assert!(info["a_write_needs"].as_str().unwrap().starts_with("a human's approval"));

    bench.cx.session.grants.lock().writes = Writes::Approved;
    let info = bench.call::<GetSessionInfo>(json!({})).await.unwrap();
    assert_eq!(info["writes"], "approved");
    assert!(info["a_write_needs"].as_str().unwrap().starts_with("nothing more"));
}

#[tokio::test]
async fn a_read_only_hub_says_so_whatever_the_key() {
    let bench = Bench::with(Settings { read_only: true, ..Settings::default() });
    let info = bench.call::<GetSessionInfo>(json!({})).await.unwrap();
    assert_eq!(info["read_only"], true);
    assert!(info["a_write_needs"].as_str().unwrap().contains("refused"));
}

#[tokio::test]
async fn variables_are_named_and_only_the_listed_are_shown() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let env = vec![pair("PATH", "/bin"), pair("MCP_API_KEY", "hunter2"), pair("LANG", "C")];
    let bench = Bench::with(Settings { env, ..Settings::default() });
    let all = bench.call::<GetEnv>(json!({})).await.unwrap();
    assert_eq!(all, json!({ "names": ["LANG", "MCP_API_KEY", "PATH"], "values": { "LANG": "C", "PATH": "/bin" } }));
    let one = bench.call::<GetEnv>(json!({ "key": "PATH" })).await.unwrap();
    assert_eq!(one, json!({ "names": ["PATH"], "values": { "PATH": "/bin" } }));
    let unset = bench.call::<GetEnv>(json!({ "key": "TZ" })).await.unwrap();
    assert_eq!(unset, json!({ "names": [], "values": {} }));
    for key in ["MCP_API_KEY", "path", "NOT_THERE"] {
        let said = bench.refusal::<GetEnv>(json!({ "key": key })).await;
        assert!(said.contains("is not shown") && said.contains("shell.readable_env"), "{said}");
        assert!(!said.contains("hunter2"));
    }
}
