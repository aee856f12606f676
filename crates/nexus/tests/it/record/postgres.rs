//! The record in PostgreSQL: the same promises, for several hubs at once, whatever becomes of the connection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nexus_core::tasks::Tasks;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::support::{AuditRow, Client, Hub, Program, Setup, parsed, secret};

const PASSWORD: &str = "pg-passw0rd-4711";

/// A database of its own.
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    #[allow(clippy::disallowed_methods, reason = "where the database for tests is")]
    pub async fn new() -> Self {
        let url = std::env::var("NEXUS_TEST_POSTGRES").expect("tests/with_postgres.sh starts one and sets it");
        let name = format!("it{}", uuid::Uuid::new_v4().simple());
        let server = url.rsplit_once('/').unwrap().0.rsplit_once('@').unwrap().1.to_owned();
        let database = Self { server, name };
        let mut admin = database.connect("postgres").await;
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {}", database.name))).await.unwrap();
        database
    }

    async fn connect(&self, name: &str) -> PgConnection {
        let url = format!("postgres://postgres@{}/{name}", self.server);
        url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
    }

    /// Its URL with a password, which this server does not look at.
    pub fn url(&self) -> String {
        self.url_at(&self.server)
    }

    fn url_at(&self, server: &str) -> String {
        format!("postgres://postgres:{PASSWORD}@{server}/{}", self.name)
    }
}

fn hub(url: &str) -> Setup {
    Hub::start().env("NEXUS_STORE", url).key("guest", "level: sandboxed").key("robot", "level: yolo")
}

/// The rows as the program itself writes them out.
async fn rows(hub: &Hub) -> Vec<AuditRow> {
    parsed(&hub.nexus(&["audit", "export"]).await.ok())
}

async fn rows_reach(hub: &Hub, so: impl Fn(&[AuditRow]) -> bool) -> Vec<AuditRow> {
    let look = async {
        loop {
            let rows = rows(hub).await;
            if so(&rows) {
                return rows;
            }
        }
    };
    crate::support::within("the record to be so", look).await
}

#[tokio::test]
async fn the_whole_program_runs_on_postgresql_and_its_password_is_nowhere() {
    let database = Database::new().await;
    let mut hub = hub(&database.url()).await;
    let key = hub.nexus(&["key", "new", "made"]).await.ok();
    hub.modern(key.trim()).does("list_directory", json!({ "path": "/" })).await;
    hub.modern(&secret("robot")).does("write_file", json!({ "path": hub.path("x"), "content": "x" })).await;
    let told = hub.modern(&hub.key).does("get_audit_log", json!({ "outcome": "key_made" })).await;
    assert_eq!(told["rows"].as_array().unwrap().len(), 1, "{told}");
    let read = hub.modern(&secret("robot")).call("get_env", json!({ "key": "NEXUS_STORE" })).await;
    let ran = hub.modern(&secret("robot")).call("run_command", json!({ "cmd": "env" })).await;
    rows_reach(&hub, |rows| rows.iter().any(|row| row.is("call run_command allowed ok"))).await;
    let tail = hub.nexus(&["audit", "tail", "--tool", "write_file"]).await.ok();
    assert_eq!(tail.lines().count(), 2, "{tail}");
    let status: Value = serde_json::from_str(&hub.nexus(&["audit", "status", "--json"]).await.ok()).unwrap();
    assert_eq!((&status["store"], &status["hub"]["ok"]), (&json!("PostgreSQL"), &json!(true)));
    let check = hub.nexus(&["check"]).await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
    hub.stop().await;
    let kept = rows(&hub).await;
    assert_eq!(kept.last().unwrap().event, "hub_stopped");
    assert_eq!(hub.findings().await, Vec::<String>::new());
    assert!(!hub.data.join("nexus.db").exists());
    let all = format!("{kept:?}{}{check:?}{status}{tail}{read}{ran}", hub.said());
    assert!(!all.contains(PASSWORD), "{all}");
}

#[tokio::test]
async fn a_password_in_the_file_is_refused_and_in_no_error() {
    let refused = Hub::start().yaml(&format!("store: 'postgres://nexus:{PASSWORD}@127.0.0.1/nexus'")).refused().await;
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("password") && refused.stderr.contains("NEXUS_STORE"), "{refused:?}");
    assert!(!refused.stderr.contains(PASSWORD), "{refused:?}");
    for url in [
        format!("postgres://nexus:{PASSWORD}@127.0.0.1:1/nexus"),
        format!("postgres://nexus:{PASSWORD}@nowhere.invalid/nexus?sslmode=nonsense"),
        format!("postgres://nexus:{PASSWORD}@[::bad/nexus"),
        format!("mysql://nexus:{PASSWORD}@127.0.0.1/nexus"),
    ] {
        let folder = tempfile::TempDir::new().unwrap();
        let ran = [&["serve"][..], &["audit", "verify"], &["audit", "tail"], &["key", "list"]].map(|args| {
            Program::new(args).data(&folder.path().join("data")).env("NEXUS_STORE", &url).env("MCP_PORT", "0").run()
        });
        for refused in futures_util::future::join_all(ran).await {
            assert!(matches!(refused.code, Some(1 | 2)) && !refused.stderr.is_empty(), "{refused:?}");
            assert!(!format!("{refused:?}").contains(PASSWORD), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn two_hubs_share_one_database_and_both_chains_verify() {
    let database = Database::new().await;
    let both = [hub(&database.url()).yaml(super::OPERATOR).await, hub(&database.url()).yaml(super::OPERATOR).await];
    let [mut one, mut other] = both;
    let robots = [one.modern(&secret("robot")), other.modern(&secret("robot"))];
    let working = robots.iter().map(|client| async move {
        for n in 0..40 {
            client.does("run_command", json!({ "cmd": format!("true {n}") })).await;
            client.does("list_directory", json!({ "path": "/" })).await;
        }
    });
    futures_util::future::join_all(working).await;
    assert_eq!(one.findings().await, Vec::<String>::new(), "while both run");
    let ended = |rows: &[AuditRow]| rows.iter().filter(|row| row.is("call run_command allowed ok")).count() == 80;
    let rows = rows_reach(&one, ended).await;
    let chains: BTreeSet<&str> = rows.iter().map(|row| row.chain.as_str()).collect();
    assert_eq!(chains.len(), 2, "one for each hub");
    // One of them dies; the other is not the one to say what became of its writes.
    let (client, file) = (other.modern(&secret("robot")), other.path("started"));
    let cmd = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 300", file.display());
    let arguments = json!({ "cmd": cmd, "timeout": 300 });
    let call = client.message("tools/call", json!({ "name": "run_command", "arguments": arguments }));
    let _wire = client.start(&call).await;
    crate::support::until("the command to start", || file.exists()).await;
    crate::support::signal(other.pid, rustix::process::Signal::KILL);
    other.ended().await;
    // What it was running goes on.
    let left = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    crate::support::signal(left, rustix::process::Signal::KILL);
    let again = hub(&database.url()).data(&other.data).await;
    rows_reach(&again, |rows| rows.iter().any(|row| row.is("call run_command allowed abandoned"))).await;
    one.stop().await;
    assert_eq!(again.findings().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_mixed_load_on_postgresql_verifies_and_a_changed_row_is_named() {
    let database = Database::new().await;
    let mut hub = hub(&database.url()).yaml("approval: { mode: operator }").await;
    // The part of the load that looks into the file of SQLite is not for this store.
    let client = hub.legacy(&hub.key).await;
    client.does("list_directory", json!({ "path": "/" })).await;
    super::unknown(&client, "no_such_tool").await;
    client.call("run_command", json!({ "cmd": "true" })).await;
    hub.modern(&secret("guest")).call("write_file", json!({ "path": "/x", "content": "" })).await;
    hub.ask(&Client::hello("2025-11-25").key("nobody's")).await;
    hub.stop().await;
    assert_eq!(hub.findings().await, Vec::<String>::new());
    let mut connection = database.connect(&database.name).await;
    let pos: i64 = sqlx::query_scalar("SELECT pos FROM audit WHERE body LIKE '%unknown_tool%'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let change = format!("UPDATE audit SET body = replace(body, 'no_such', 'no_sach') WHERE pos = {pos}");
    connection.execute(AssertSqlSafe(change)).await.unwrap();
    let found = hub.findings().await;
    assert!(found.iter().any(|finding| finding.contains(&format!("at {pos}"))), "{found:?}");
}

/// A way to the database that can be cut.
struct Way {
    address: String,
    open: Arc<Mutex<Option<CancellationToken>>>,
}

impl Way {
    async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(Mutex::new(Some(CancellationToken::new())));
        let (state, server, tasks) = (open.clone(), server.to_owned(), Tasks::new());
        tasks.clone().spawn("the way", async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Some(cut) = state.lock().clone() else { continue };
                let server = server.clone();
                tasks.spawn("a connection", async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
        });
        Self { address, open }
    }

    /// Everything that is open breaks, and nothing new comes through.
    fn cut(&self) {
        self.open.lock().take().unwrap().cancel();
    }

    fn mend(&self) {
        *self.open.lock() = Some(CancellationToken::new());
    }
}

#[tokio::test]
async fn a_database_that_goes_away_and_comes_back_loses_nothing_and_has_nothing_twice() {
    let database = Database::new().await;
    let way = Way::to(&database.server).await;
    let mut hub = hub(&database.url_at(&way.address)).await;
    let (robot, reader) = (secret("robot"), hub.modern(&hub.key));
    let answered: Mutex<BTreeSet<String>> = Mutex::default();
    let (mut reads, mut refused) = (0, 0);
    for round in 0..3 {
        // In the middle of writing.
        let writing = (0..4).map(|writer| {
            let (client, answered, hub) = (hub.modern(&robot), &answered, &hub);
            async move {
                for n in 0.. {
                    let name = format!("note-{round}-{writer}-{n}-");
                    let note = json!({ "path": hub.path(&name), "content": "x" });
                    let done = client.call("write_file", note).await;
                    if done["isError"] == true {
                        assert!(!hub.path(&name).exists(), "{done}");
                        return;
                    }
                    answered.lock().insert(name);
                }
            }
        });
        let cutting = async {
            tokio::time::sleep(Duration::from_millis(40 + 30 * round)).await;
            way.cut();
        };
        tokio::join!(futures_util::future::join_all(writing), cutting);
        refused += 4;
        hub.is_recording(false).await;
        for _ in 0..5 {
            reader.does("list_directory", json!({ "path": "/" })).await;
            reads += 1;
        }
        way.mend();
        hub.is_recording(true).await;
    }
    // The server may also end connections by itself.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nexus' AND datname = ";
    let mut admin = database.connect("postgres").await;
    admin.execute(AssertSqlSafe(format!("{end} '{}'", database.name))).await.unwrap();
    let client = hub.modern(&robot);
    let note = json!({ "path": hub.path("after"), "content": "x" });
    let first = client.call("write_file", note.clone()).await;
    if first["isError"] == true {
        hub.is_recording(true).await;
        client.does("write_file", note).await;
    }
    hub.stop().await;

    let rows = rows(&hub).await;
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "no row twice");
    let meanwhile = rows.iter().filter(|row| row.is("call list_directory allowed ok")).count();
    assert_eq!(meanwhile, reads);
    let failed = rows.iter().filter(|row| row.is("call write_file allowed failed")).count();
    assert!(failed >= refused, "{failed} of {refused}");
    let begun: Vec<&AuditRow> = rows.iter().filter(|row| row.event == "begun").collect();
    for name in answered.lock().iter() {
        let named = |row: &&&AuditRow| row.arguments.as_ref().is_some_and(|given| given.contains(name.as_str()));
        assert_eq!(begun.iter().filter(named).count(), 1, "{name}");
    }
    assert!(!answered.lock().is_empty());
    assert_eq!(hub.findings().await, Vec::<String>::new());
    assert!(!hub.said().contains(PASSWORD));
}
