//! Servers that want a login: how the operator gives it, and what becomes of it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Hub, Notes, Web, text_of, within};

use super::echo;

/// A hub with a server that wants a login, and the requests that server has had.
async fn guarded(options: &str) -> (Hub, Web, Notes) {
    let setup = Hub::start().robot();
    let notes = setup.notes("requests");
    let web = Web::start(format!("guarded {} {options}", notes.named("record")).trim_end()).await;
    let hub = setup.upstreams(&json!({ "lab": { "url": web.url } })).await;
    (hub, web, notes)
}

/// Asks for a page, and for where it leads, as a browser does. Gives the last answer.
async fn browse(address: &str) -> String {
    let mut address = address.to_owned();
    loop {
        let (host, path) = address.trim_start_matches("http://").split_once('/').unwrap();
        let mut stream = within("the page", TcpStream::connect(host)).await.unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        within("the page's answer", stream.read_to_string(&mut answer)).await.unwrap();
        match answer.lines().find_map(|line| line.strip_prefix("Location: ")) {
            Some(location) => address = location.trim().to_owned(),
            None => return answer,
        }
    }
}

/// `nexus mcp login lab`, with somebody at the browser.
async fn log_in(hub: &Hub) {
    let (mut child, mut talk) = hub.program(&["mcp", "login", "lab"]).spawn_talking();
    let said = within("the page to visit", talk.wait_for(|said| said.contains("/authorize?"))).await.unwrap().clone();
    let page = said.split_whitespace().find(|word| word.contains("/authorize?")).unwrap();
    let last = browse(page).await;
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("close this window"), "{last}");
    let status = within("the login to end", child.wait()).await.unwrap();
    assert!(status.success(), "{}", talk.borrow().clone());
}

fn logins(hub: &Hub) -> Vec<PathBuf> {
    let files = std::fs::read_dir(hub.data.join("oauth")).into_iter().flatten();
    files.map(|file| file.unwrap().path()).collect()
}

#[tokio::test]
async fn a_server_that_wants_a_login_says_so_and_is_used_after_it() {
    let (hub, _web, _) = guarded("").await;
    hub.upstream_is("lab", "waiting").await;
    let listed = hub.listed("lab").await;
    assert!(listed.to_string().contains("nexus mcp login lab"), "{listed}");
    log_in(&hub).await;
    hub.upstream_is("lab", "ready").await;
    assert_eq!(text_of(&echo(&hub.robot(), "lab", "let in").await), "let in");

    let files = logins(&hub);
    let mode = |path: &PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(files.iter().map(mode).collect::<Vec<_>>(), [0o600]);
    assert!(!hub.said().contains("secret-"), "{}", hub.said());
    // Whom the login asked is on record, as with everything that goes out.
    assert!(format!("{:?}", hub.audit().await).contains("/token"));
}

#[tokio::test]
async fn a_token_that_runs_out_is_renewed_without_anybody_noticing() {
    let (hub, _web, notes) = guarded("seconds=2").await;
    log_in(&hub).await;
    hub.upstream_is("lab", "ready").await;
    let renewed = || notes.lines().iter().filter(|line| line.contains(r#""said": "refresh_token""#)).count();
    let before = renewed();
    while renewed() < before + 2 {
        assert_eq!(text_of(&echo(&hub.robot(), "lab", "again").await), "again");
    }
}

#[tokio::test]
async fn a_login_belongs_to_an_address_and_not_to_a_name() {
    let (hub, _web, _) = guarded("").await;
    log_in(&hub).await;
    hub.upstream_is("lab", "ready").await;
    let elsewhere = hub.folder.path().join("elsewhere");
    let other = Web::start(&format!("good record={}", elsewhere.display())).await;
    hub.configures(&json!({ "lab": { "url": other.url } }));
    let other_is_used = |now: &Value| now["state"] == "ready" && elsewhere.exists();
    hub.upstream_reaches("lab", other_is_used).await;
    assert_eq!(text_of(&echo(&hub.robot(), "lab", "elsewhere").await), "elsewhere");
    assert!(!std::fs::read_to_string(&elsewhere).unwrap().contains("secret-"));
}

#[tokio::test]
async fn a_logout_forgets_the_login() {
    let (hub, _web, _) = guarded("").await;
    log_in(&hub).await;
    assert_eq!(logins(&hub).len(), 1);
    assert_eq!(hub.mcp(&["logout", "lab"]).await.code, Some(0));
    assert!(logins(&hub).is_empty());
    let again = hub.mcp(&["logout", "lab"]).await;
    assert!(again.stderr.contains("There is no login"), "{again:?}");
}

#[tokio::test]
async fn what_cannot_be_logged_in_to_is_told() {
    let keyed = json!({ "url": "http://127.0.0.1:1/mcp", "headers": { "authorization": "Bearer x" } });
    let hub = Hub::start().robot().upstreams(&json!({ "program": { "command": "true" }, "keyed": keyed })).await;
    for (name, expected) in [
        ("program", "not an address"),
        ("nobody", "no server `nobody`"),
        ("keyed", "has an `Authorization` of its own"),
    ] {
        let ran = hub.mcp(&["login", name]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}
