//! The record in Loki: every row, once, whatever happens to either side meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::ConnectOptions;

use crate::support::loki::{Loki, Say, State};
use crate::support::{Ask, DEADLINE, Hub, Program, Setup, Stdio, signal};

const PASSWORD: &str = "correct-horse-battery-staple";

fn hub(loki: &Loki) -> Setup {
    Hub::start().env("LOKI_URL", &loki.url())
}

/// A call that leaves one row, which names `path`.
async fn list(hub: &Hub, path: &str) {
    hub.modern(&hub.key).call("list_directory", json!({ "path": path })).await;
}

async fn sql(data: &Path, query: &'static str) -> Vec<(i64, String)> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(data.join("nexus.db")).read_only(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::query_as(query).fetch_all(&mut connection).await.unwrap()
}

/// The rows that Loki is to have: all but those of the pushes themselves.
async fn recorded(data: &Path) -> Vec<Value> {
    let rows = sql(data, "SELECT pos, body FROM audit ORDER BY pos").await;
    let rows = rows.iter().map(|(_, body)| serde_json::from_str::<Value>(body).unwrap());
    rows.filter(|row| row["event"] != "outbound").collect()
}

/// Waits until no row is left to do anything about, those of the pushes included.
async fn seen_to(hub: &Hub, loki: &Loki) {
    let started = Instant::now();
    loop {
        let unwritten = health(hub).await["unwritten"].as_i64().unwrap();
        let waiting =
            unwritten + sql(&hub.data, "SELECT COALESCE(SUM(head_seq - shipped_seq), 1), '' FROM chain").await[0].0;
        let told =
            sql(&hub.data, "SELECT COUNT(*), '' FROM audit WHERE body LIKE '%\"event\":\"outbound\"%'").await[0].0;
        if waiting == 0 && usize::try_from(told).unwrap() >= loki.state().answered {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{waiting} rows wait; the hub said {}", hub.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until Loki has all that was recorded, and nothing is left to do.
async fn settled(hub: &Hub, loki: &Loki) -> State {
    seen_to(hub, loki).await;
    has_all(&hub.data, loki, &[]).await
}

/// Loki has each row of the record once and whole, but for those named here.
async fn has_all(data: &Path, loki: &Loki, without: &[&str]) -> State {
    let state = loki.state();
    assert!(state.faults.is_empty(), "{:#?}", state.faults);
    let mut missing: Vec<Value> = recorded(data).await;
    for row in &state.rows {
        let at = missing.iter().position(|body| body["id"] == row.metadata["id"].as_str());
        let body = missing.remove(at.unwrap_or_else(|| panic!("not in the store, or twice in Loki: {row:?}")));
        for (name, value) in body.as_object().unwrap() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert_eq!(row.metadata[name], text, "{name} of {body}");
        }
        assert_eq!(row.metadata.len(), body.as_object().unwrap().len(), "{row:?}");
    }
    missing.retain(|body| !without.iter().any(|word| body.to_string().contains(word)));
    assert!(missing.is_empty(), "not in Loki: {missing:#?}");
    state
}

async fn health(hub: &Hub) -> Value {
    hub.ask(&Ask::get("/health")).await.json()["audit"].clone()
}

/// How often it said something.
fn times(hub: &Hub, words: &str) -> usize {
    hub.said().matches(words).count()
}

#[tokio::test]
async fn rows_arrive_once_and_whole_with_labels_tenant_and_login() {
    let loki = Loki::start().await;
    let setup = hub(&loki).env("LOKI_USER", "nexus").env("LOKI_PASSWORD", PASSWORD);
    let mut hub = setup.yaml("loki: { audit_labels: { env: lab, site: attic }, tenant: family }").await;
    for n in 0..5 {
        list(&hub, &format!("/nowhere/{n}")).await;
    }
    let state = settled(&hub, &loki).await;
    let labels = [("env", "lab"), ("job", "mcp-audit"), ("site", "attic")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(state.labels, labels.into());
    assert_eq!(state.headers["x-scope-orgid"], "family");
    // base64 of `nexus:` and the password.
    assert_eq!(state.headers["authorization"], "Basic bmV4dXM6Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==");
    let called: Vec<_> = state.rows.iter().filter(|row| row.metadata["event"] == "call").collect();
    assert_eq!(called.len(), 5);
    assert_eq!(called[0].metadata["tool"], "list_directory");
    assert_eq!(called[0].metadata["arguments"], r#"{"path":"/nowhere/0"}"#);
    assert!(called[0].line.starts_with("call list_directory failed: "), "{}", called[0].line);
    assert!(called.is_sorted_by_key(|row| row.nanoseconds), "{called:#?}");
    assert_eq!(state.again, 0);

    assert_eq!(hub.stop().await.code(), Some(0));
    let state = has_all(&hub.data, &loki, &[]).await;
    assert!(state.lines().last().unwrap().starts_with("hub_stopped: "), "the end itself arrives: {:?}", state.lines());
    for file in std::fs::read_dir(&hub.data).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes()), "in {}", file.display());
    }
    assert!(!hub.said().contains(PASSWORD));
}

#[tokio::test]
async fn every_push_is_recorded_and_none_of_these_rows_is_pushed() {
    let loki = Loki::start().await;
    let hub = hub(&loki).await;
    let mut pushes = settled(&hub, &loki).await.pushes;
    for n in 0..3 {
        list(&hub, &format!("/nowhere/{n}")).await;
        loki.reaches("the row", |state| state.lines().iter().any(|line| line.contains(&format!("/nowhere/{n}")))).await;
        // All is seen to, the row of the push itself too: nothing is left that could make another.
        let state = settled(&hub, &loki).await;
        assert_eq!(state.pushes, pushes + 1, "one burst, one push");
        pushes = state.pushes;
    }
    let rows = sql(&hub.data, "SELECT pos, body FROM audit WHERE body LIKE '%\"event\":\"outbound\"%'").await;
    assert_eq!(rows.len(), pushes);
    let row: Value = serde_json::from_str(&rows.last().unwrap().1).unwrap();
    let told = row["detail"].as_str().unwrap();
    assert!(told.starts_with(&format!("POST {}/loki/api/v1/push 204, 1 row, ", loki.url())), "{told}");
    assert_eq!(health(&hub).await["unshipped"], 0);
    assert_eq!(health(&hub).await["lag_s"], 0);
}

#[tokio::test]
async fn a_loki_that_comes_later_gets_everything_and_the_hub_complains_once() {
    let mut loki = Loki::away().await;
    let hub = hub(&loki).await;
    for n in 0..50 {
        list(&hub, &format!("/nowhere/{n}")).await;
    }
    hub.says("the audit record does not get to Loki at").await;
    // Tried at least once more, in silence.
    hub.audit_reaches(|rows| rows.iter().filter(|row| row.event == "outbound").count() >= 2).await;
    assert_eq!(times(&hub, "does not get to Loki"), 1, "{}", hub.said());
    assert!(hub.said().contains("it did not answer: connection refused"), "{}", hub.said());
    assert!(health(&hub).await["unshipped"].as_i64().unwrap() >= 50);
    assert_eq!(health(&hub).await["aside"], 0);
    loki.come_back().await;
    let state = settled(&hub, &loki).await;
    assert!(state.rows.len() > 50 && state.again == 0);
    hub.says("gets to Loki").await;
    assert_eq!(times(&hub, "gets to Loki at"), 1, "{}", hub.said());
}

#[tokio::test]
async fn an_outage_in_the_middle_leaves_no_gap_and_nothing_twice() {
    let mut loki = Loki::start().await;
    let hub = hub(&loki).await;
    list(&hub, "/before").await;
    settled(&hub, &loki).await;
    // It keeps the rows and does not say so: they come again, and are the same.
    for answers in [[Say::RetryAfter(1), Say::KeepAndClose], [Say::Status(500, "empty ring\n"), Say::KeepAndClose]] {
        loki.next(answers);
        for n in 0..10 {
            list(&hub, &format!("/meanwhile/{n}")).await;
        }
        settled(&hub, &loki).await;
    }
    loki.next([Say::Close]);
    list(&hub, "/nobody/says/a/word").await;
    let before = loki.state().pushes;
    loki.reaches("a try", |state| state.pushes > before).await;
    loki.go_away();
    list(&hub, "/nobody/listens").await;
    hub.audit_reaches(|rows| rows.iter().any(|row| row.detail.as_deref().is_some_and(|told| told.contains("refused"))))
        .await;
    loki.come_back().await;
    let state = settled(&hub, &loki).await;
    assert!(state.again >= 20, "{}", state.again);
    assert!(state.lines().iter().any(|line| line.contains("/nobody/listens")));
}

#[tokio::test]
async fn a_kill_in_the_middle_of_shipping_leaves_no_gap() {
    let loki = Loki::start().await;
    let first = hub(&loki).await;
    let data = first.data.clone();
    let mut hubs = vec![first];
    for round in 0..3 {
        let running = hubs.last_mut().unwrap();
        settled(running, &loki).await;
        loki.next([Say::KeepAndHang]);
        let before = loki.state().rows.len();
        for n in 0..10 {
            list(running, &format!("/round/{round}/{n}")).await;
        }
        // Loki has the rows, and the hub will never know.
        loki.reaches("rows of the push that hangs", |state| state.rows.len() > before).await;
        signal(running.pid, rustix::process::Signal::KILL);
        running.ended().await;
        hubs.push(hub(&loki).data(&data).await);
    }
    let last = hubs.last().unwrap();
    let state = settled(last, &loki).await;
    assert!(state.again >= 3, "what was pushed before the kill came again, the same: {}", state.again);
    assert_eq!(state.lines().iter().filter(|line| line.contains("/round/")).count(), 30);
}

#[tokio::test]
async fn what_loki_refuses_is_set_aside_and_everything_else_goes_on() {
    let loki = Loki::start().await;
    loki.refuse(|row| row.line.contains("/poison/"));
    let hub = hub(&loki).await;
    for n in 0..40 {
        let place = if n % 15 == 7 { "poison" } else { "food" };
        list(&hub, &format!("/{place}/{n}")).await;
    }
    seen_to(&hub, &loki).await;
    let state = has_all(&hub.data, &loki, &["/poison/"]).await;
    assert_eq!(state.lines().iter().filter(|line| line.contains("/food/")).count(), 37);
    let aside =
        sql(&hub.data, "SELECT aside.at_ms, aside.reason || ' ' || body FROM aside JOIN audit USING (pos)").await;
    assert_eq!(aside.len(), 3);
    for (_, told) in aside {
        assert!(told.starts_with("HTTP 400: entry for stream") && told.contains("/poison/"), "{told}");
    }
    assert_eq!(health(&hub).await["aside"], 3);
    assert_eq!(times(&hub, "Loki refused audit rows for good"), 1, "{}", hub.said());

    // Refused whole: few pushes, and then it is over.
    loki.refuse(|_| true);
    let before = loki.state().pushes;
    for n in 0..100 {
        list(&hub, &format!("/poison/{n}")).await;
    }
    seen_to(&hub, &loki).await;
    assert_eq!(health(&hub).await["aside"], 103);
    let pushes = loki.state().pushes - before;
    assert!(pushes <= 100, "{pushes}");
}

#[tokio::test]
async fn a_wrong_password_is_named_and_tried_again_for_ever() {
    let loki = Loki::start().await;
    loki.always(Some(Say::Status(401, "no credentials provided\n")));
    let hub = hub(&loki).await;
    let said = hub.says("look at LOKI_USER, LOKI_PASSWORD and loki.tenant").await;
    assert!(said.contains("HTTP 401: no credentials provided"), "{said}");
    loki.reaches("another try", |state| state.pushes >= 2).await;
    loki.always(Some(Say::Status(404, "404 page not found\n")));
    hub.says("look at LOKI_URL").await;
    loki.always(None);
    settled(&hub, &loki).await;
}

#[tokio::test]
async fn what_a_door_beside_the_hub_records_gets_to_loki_too() {
    let loki = Loki::start().await;
    let hub = hub(&loki).await;
    let mut door = Stdio::legacy(&hub.program(&["stdio"])).await;
    door.request("tools/call", json!({ "name": "list_directory", "arguments": { "path": "/from/the/door" } })).await;
    let arrived = |state: &State| state.rows.iter().any(|row| row.line.contains("/from/the/door"));
    let state = loki.reaches("the row of the door", arrived).await;
    let row = state.rows.iter().find(|row| row.line.contains("/from/the/door")).unwrap();
    assert_eq!(row.metadata["transport"], "stdio");
    assert!(state.rows.iter().any(|other| other.metadata["chain"] != row.metadata["chain"]));
    assert_eq!(door.end().await.1, Some(0));
    settled(&hub, &loki).await;
}

#[tokio::test]
async fn a_door_that_holds_the_folder_ships_and_its_last_rows_go_with_its_end() {
    let loki = Loki::start().await;
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("data");
    let program = Program::new(&["stdio"]).data(&data).current_dir(folder.path()).env("LOKI_URL", &loki.url());
    let mut door = Stdio::legacy(&program).await;
    door.request("tools/call", json!({ "name": "list_directory", "arguments": { "path": "/alone" } })).await;
    assert_eq!(door.end().await.1, Some(0));
    let state = has_all(&data, &loki, &[]).await;
    assert!(state.lines().iter().any(|line| line.contains("/alone")), "{:?}", state.lines());
    assert!(state.lines().last().unwrap().starts_with("hub_stopped"), "{:?}", state.lines());
}

#[tokio::test]
async fn a_loki_that_never_answers_does_not_hold_up_the_end() {
    let loki = Loki::start().await;
    loki.always(Some(Say::KeepAndHang));
    let mut hub = hub(&loki).await;
    loki.reaches("a push that hangs", |state| state.pushes > 0).await;
    let started = Instant::now();
    assert_eq!(hub.stop().await.code(), Some(0), "{}", hub.said());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let given_up = sql(&hub.data, "SELECT pos, body FROM audit WHERE body LIKE '%\"event\":\"outbound\"%'").await;
    assert!(given_up.iter().any(|(_, body)| body.contains("was given up")), "{given_up:?}");
}

#[tokio::test]
async fn a_long_backlog_goes_in_batches_of_a_bounded_size() {
    let mut loki = Loki::away().await;
    let hub = hub(&loki).yaml("server: { rate_limit: { per_second: 100000, burst: 100000 } }").await;
    let client = hub.modern(&hub.key);
    let long = "x".repeat(700);
    for round in 0..30 {
        let paths = (0..50).map(|n| json!({ "path": format!("/{round}/{n}/{long}") }));
        futures_util::future::join_all(paths.map(|path| client.call("list_directory", path))).await;
    }
    loki.come_back().await;
    let state = settled(&hub, &loki).await;
    assert!(state.largest.0 <= 1_000 && state.largest.1 < 4_000_000, "{:?}", state.largest);
    assert_eq!(state.again, 0);
}
