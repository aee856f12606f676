//! What the store promises, on both databases: the same cases, the same text.

use std::io::Write;
use std::sync::Arc;

use nexus_core::audit::{CallRow, Event, Row};
use nexus_core::clock;
use nexus_core::principal::{Level, Patterns, SessionPolicy};
use nexus_core::tool::Access;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::body::Kept;
use super::chain::{Appended, Chain};
use super::rows::Filter;
use super::sheaf::List;
use super::*;

/// Runs a case on SQLite and on a database of its own in the PostgreSQL that `./test` has started.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let store = super::Store::open(folder.path(), None).await.unwrap();
                super::$name(store).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::own_database().await).await;
            })*
        }
    };
}

on_both! {
    keys_come_back_whole_and_names_are_unique
    a_raised_level_is_kept_until_it_is_lowered
    rows_of_any_number_are_all_kept_and_verify
    every_filter_finds_what_going_through_all_rows_finds
    the_chains_of_several_processes_verify_together
    whatever_is_changed_missing_or_moved_is_named
    what_is_pruned_is_vouched_for
    a_chain_that_is_written_anew_does_not_fit_the_next
    no_pruned_part_vouches_for_itself_or_is_left_without_a_word
    a_begun_write_is_known_until_it_ends
    rows_may_be_listed_later_and_by_the_next_process
    a_batch_whose_fate_was_unknown_is_not_written_twice
    a_position_that_is_taken_fails_once_and_not_again
    what_is_known_of_upstream_servers_is_kept_for_each_hub_alone
}

#[allow(clippy::disallowed_methods, reason = "where the database for tests is")]
pub(crate) async fn own_database() -> Store {
    let server =
        std::env::var("NEXUS_TEST_POSTGRES").expect("NEXUS_TEST_POSTGRES: `./test unit` starts one and sets it");
    let name = format!("t{}", Uuid::new_v4().simple());
    let admin = PgPool::connect(&server).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&admin).await.unwrap();
    admin.close().await;
    let (server, _) = server.rsplit_once('/').unwrap();
    Store::open(Path::new("/nonexistent"), Some(&format!("{server}/{name}"))).await.unwrap()
}

pub(crate) async fn tamper(store: &Store, sql: &str) {
    let changed =
        on_db!(store, |db| sqlx::query(AssertSqlSafe(sql.to_owned())).execute(db).await.unwrap().rows_affected());
    assert!(changed > 0, "{sql}");
}

/// For what changes no rows: a table that is not there for a while, say.
pub(crate) async fn alter(store: &Store, sql: &str) {
    on_db!(store, |db| sqlx::query(AssertSqlSafe(sql.to_owned())).execute(db).await.map(drop).unwrap());
}

fn call(tool: &str, outcome: &'static str, session: Uuid) -> Row {
    let call = CallRow {
        id: clock::new_id(),
        tool: tool.into(),
        origin: None,
        access: Some(Access::Read),
        node: None,
        summary: Some("a \"quoted\" thing".to_owned()),
        arguments: Arc::from(r#"{"a":1}"#),
        digest: [7; 32],
        decision: Some("allowed"),
        how: None,
        outcome: Some(outcome),
        duration_us: Some(12),
    };
    Row { session: Some(session), call: Some(call), ..Row::new(Event::Call) }
}

async fn findings(store: &Store) -> Vec<String> {
    store.verify(|_| {}).await.unwrap().findings
}

async fn filled(store: &Store, rows: usize) -> Chain {
    let mut chain = Chain::new("home");
    let rows: Vec<Row> = (0..rows).map(|n| Row::new(Event::HubStarted).detail(n)).collect();
    store.append(&mut chain, &rows, List::Now).await.unwrap();
    chain
}

async fn keys_come_back_whole_and_names_are_unique(store: Store) {
    let key = |name: &str| StoredKey {
        name: name.into(),
        sha256: std::array::from_fn(|i| name.as_bytes()[i % name.len()]),
        level: Level::Trusted,
        allow: Patterns::parse(["read_*".to_owned()]).unwrap(),
        deny: Patterns::default(),
        approved: Patterns::parse(["send_message".to_owned()]).unwrap(),
        read_only: true,
        session: SessionPolicy::Lease,
        created: clock::now(),
        expires: None,
        target: Some("homelab".to_owned()),
    };
    assert!(store.add_key(&key("a")).await.unwrap());
    assert!(!store.add_key(&key("a")).await.unwrap());
    let keys = store.keys().await.unwrap();
    assert_eq!(keys.len(), 1);
    let (kept, made) = (&keys[0], key("a"));
    assert_eq!((&kept.allow, &kept.approved, kept.sha256), (&made.allow, &made.approved, made.sha256));
    assert!(kept.read_only && kept.session == SessionPolicy::Lease && kept.target == made.target);
    assert!(store.set_level("a", Level::Sandboxed).await.unwrap());
    assert!(!store.set_level("b", Level::Sandboxed).await.unwrap());
    assert_eq!(store.keys().await.unwrap()[0].level, Level::Sandboxed);
    assert!(store.remove_key("a").await.unwrap());
    assert!(!store.remove_key("a").await.unwrap());
}

async fn a_raised_level_is_kept_until_it_is_lowered(store: Store) {
    let until = jiff::Timestamp::from_millisecond(1_900_000_000_000).unwrap();
    let raised = RaisedLevel { name: "a".into(), sha256: [1; 32], level: Level::Yolo, until };
    store.raise_level(&raised).await.unwrap();
    store.raise_level(&RaisedLevel { level: Level::Sandboxed, ..raised }).await.unwrap();
    let kept = store.raised_levels().await.unwrap();
    assert_eq!((kept.len(), kept[0].level, kept[0].until), (1, Level::Sandboxed, until));
    assert!(store.lower_level("a").await.unwrap());
    assert!(!store.lower_level("a").await.unwrap());
}

async fn rows_of_any_number_are_all_kept_and_verify(store: Store) {
    let mut chain = filled(&store, 147).await;
    store.append::<Row>(&mut chain, &[], List::Now).await.unwrap();
    store.append(&mut chain, &[Row::new(Event::HubStopped)], List::Now).await.unwrap();
    assert_eq!(store.audit_rows().await.unwrap(), 148);
    let verified = store.verify(|_| {}).await.unwrap();
    assert_eq!((verified.rows, verified.chains, verified.findings), (148, 1, Vec::new()));
    let all = store.following(&Filter::default(), -1, 1_000).await.unwrap();
    let seqs: Vec<i64> = all.iter().map(|entry| Kept::parse(&entry.body).unwrap().seq).collect();
    assert_eq!(seqs, (1..=148).collect::<Vec<_>>());
}

async fn every_filter_finds_what_going_through_all_rows_finds(store: Store) {
    let sessions: Vec<Uuid> = (0..3).map(|_| clock::new_id()).collect();
    let mut rows = Vec::new();
    for n in 0..400_usize {
        // Uneven on purpose: some pairs are common, some are rare, one session has only one tool.
        let tool = ["a", "a", "b", "c\"x"][n * n % 4];
        let outcome = ["ok", "ok", "ok", "refused", "failed"][n % 5];
        rows.push(if n % 7 == 0 { Row::new(Event::KeyRefused) } else { call(tool, outcome, sessions[n % 11 % 3]) });
    }
    store.append(&mut Chain::new("home"), &rows, List::Now).await.unwrap();
    let all = store.newest(&Filter::default(), None, 1_000).await.unwrap();
    assert_eq!(all.len(), 400);
    let kept: Vec<(i64, Kept)> = all.iter().map(|entry| (entry.pos, Kept::parse(&entry.body).unwrap())).collect();
    let some = |values: &[&str]| -> Vec<Option<String>> {
        [None].into_iter().chain(values.iter().map(|value| Some((*value).to_owned()))).collect()
    };
    let first = sessions[0].to_string();
    for session in some(&[&first, "unknown"]) {
        for tool in some(&["a", "c\"x", "none"]) {
            for outcome in some(&["ok", "refused", "key_refused"]) {
                for (before, limit) in [(None, 5), (None, 1_000), (Some(all[100].pos), 50)] {
                    let filter = Filter {
                        session: session.clone(),
                        tool: tool.clone(),
                        outcome: outcome.clone(),
                        since_ms: None,
                    };
                    let expected: Vec<i64> = kept
                        .iter()
                        .filter(|(pos, _)| before.is_none_or(|before| *pos < before))
                        .filter(|(_, row)| session.is_none() || row.session == session)
                        .filter(|(_, row)| tool.is_none() || row.tool == tool)
                        .filter(|(_, row)| {
                            outcome.as_ref().is_none_or(|wanted| row.outcome.as_ref().unwrap_or(&row.event) == wanted)
                        })
                        .map(|(pos, _)| *pos)
                        .take(limit as usize)
                        .collect();
                    let found = store.newest(&filter, before, limit).await.unwrap();
                    let found: Vec<i64> = found.iter().map(|entry| entry.pos).collect();
                    assert_eq!(found, expected, "{filter:?} before {before:?}");
                }
            }
        }
    }
    let later = Filter { since_ms: Some(clock::now_ms() + 60_000), tool: Some("a".into()), ..Filter::default() };
    assert!(store.newest(&later, None, 10).await.unwrap().is_empty());
}

async fn the_chains_of_several_processes_verify_together(store: Store) {
    let mut one = filled(&store, 3).await;
    let mut two = Chain::new("other home");
    for n in 0..20 {
        store.append(&mut two, &[Row::new(Event::HubStarted).detail(n)], List::Now).await.unwrap();
        store.append(&mut one, &[Row::new(Event::HubStarted).detail(n)], List::Now).await.unwrap();
    }
    let verified = store.verify(|_| {}).await.unwrap();
    assert_eq!((verified.rows, verified.chains, verified.findings), (43, 2, Vec::new()));
    assert_eq!(store.open_chains("home").await.unwrap(), [one.id.clone()]);
    store.close_chain(&one.id).await.unwrap();
    assert!(store.open_chains("home").await.unwrap().is_empty());
    tamper(&store, &format!("DELETE FROM audit WHERE body LIKE '%{}%'", one.id)).await;
    tamper(&store, &format!("DELETE FROM chain WHERE id = '{}'", one.id)).await;
    let missing = format!("chain {} is missing: another chain refers to it", one.id);
    assert_eq!(findings(&store).await, [missing]);
}

async fn whatever_is_changed_missing_or_moved_is_named(store: Store) {
    let chain = filled(&store, 30).await;
    let all = store.following(&Filter::default(), -1, 100).await.unwrap();
    let (at, id) = (|seq: usize| all[seq - 1].pos, &chain.id);
    let pos = at(5);
    let restore = async |pos: i64| {
        let entry = all.iter().find(|entry| entry.pos == pos).unwrap();
        tamper(&store, &format!("UPDATE audit SET body = '{}' WHERE pos = {pos}", entry.body)).await;
        assert_eq!(findings(&store).await, [""; 0]);
    };

    tamper(&store, &format!("UPDATE audit SET body = REPLACE(body, '\"4\"', '\"40\"') WHERE pos = {pos}")).await;
    assert_eq!(findings(&store).await, [format!("row 5 of chain {id} (at {pos}) was changed, or the one before it")]);
    restore(pos).await;

    tamper(&store, &format!("UPDATE audit SET body = 'nonsense' WHERE pos = {pos}")).await;
    let found = findings(&store).await;
    assert_eq!(found[0], format!("the row at {pos} is not a row any more: it was changed"));
    assert_eq!(found[1], format!("row 5 of chain {id} is missing"));
    restore(pos).await;

    // Nothing of the rows themselves, but how they are found.
    tamper(&store, "UPDATE audit_place SET outcome = 'ok'").await;
    assert!(findings(&store).await[0].starts_with("rows like the one at"), "{:?}", findings(&store).await);
    tamper(&store, "UPDATE audit_place SET outcome = 'hub_started'").await;
    assert_eq!(findings(&store).await, [""; 0]);
    let last = at(30);
    tamper(&store, &format!("UPDATE audit_place SET last = last + 1 WHERE last = {last}")).await;
    assert_eq!(findings(&store).await, [format!("the entry at {}, by which rows are found, was changed", last + 1)]);
    tamper(&store, &format!("UPDATE audit_place SET last = {last}")).await;

    // Moved behind the next one, and back.
    let (free, next) = (i64::MAX, at(6));
    tamper(&store, &format!("UPDATE audit SET pos = {free} WHERE pos = {pos}")).await;
    tamper(&store, &format!("UPDATE audit SET pos = {pos} WHERE pos = {next}")).await;
    tamper(&store, &format!("UPDATE audit SET pos = {next} WHERE pos = {free}")).await;
    let found = findings(&store).await;
    assert_eq!(found[0], format!("row 5 of chain {id} is missing"));
    assert_eq!(found[1], format!("row 5 of chain {id} (at {next}) is out of order: it came after 6"));
    tamper(&store, &format!("UPDATE audit SET pos = {free} WHERE pos = {next}")).await;
    tamper(&store, &format!("UPDATE audit SET pos = {next} WHERE pos = {pos}")).await;
    tamper(&store, &format!("UPDATE audit SET pos = {pos} WHERE pos = {free}")).await;
    assert_eq!(findings(&store).await, [""; 0]);

    tamper(&store, &format!("UPDATE audit SET pos = pos + 1 WHERE pos = {}", at(30))).await;
    let moved = format!("row 30 of chain {id} (at {}) was changed, or the one before it", at(30) + 1);
    assert_eq!(findings(&store).await, [moved]);

    tamper(&store, &format!("DELETE FROM audit WHERE pos IN ({}, {})", at(10), at(11))).await;
    tamper(&store, &format!("DELETE FROM audit WHERE pos > {}", at(28))).await;
    let found = findings(&store).await;
    assert_eq!(found[0], format!("rows 10 to 11 of chain {id} are missing"));
    assert_eq!(found[1], format!("rows 29 to 30, the newest of chain {id}, are missing"));

    tamper(&store, "DELETE FROM audit").await;
    assert_eq!(findings(&store).await, [format!("rows 1 to 30, the newest of chain {id}, are missing")]);
}

async fn what_is_pruned_is_vouched_for(store: Store) {
    let mut chain = filled(&store, 600).await;
    let all = store.following(&Filter::default(), -1, 1_000).await.unwrap();
    let cut = store.cut(all[520].pos).await.unwrap();
    assert_eq!((cut.rows, cut.marks.len(), cut.marks[0].seq), (520, 1, 520));
    let row = Row::new(Event::Pruned).detail(cut.marks[0].vouched());
    store.append_marked(&mut chain, &[row], &cut.marks, List::Now).await.unwrap();
    // Marked and not yet deleted is as good as deleted.
    assert_eq!(findings(&store).await, [""; 0]);
    assert_eq!(store.audit_rows().await.unwrap(), 81);
    assert_eq!(store.cut(all[520].pos).await.unwrap().rows, 0);
    while store.delete_before(all[520].pos).await.unwrap() {}
    let verified = store.verify(|_| {}).await.unwrap();
    assert_eq!((verified.rows, verified.pruned, verified.findings), (81, 520, Vec::new()));
    assert!(store.size().await.unwrap() > 0);
    assert_eq!(store.nth_position(1).await.unwrap(), all[520].pos);

    // Rows that go without a word are missed, also when the mark is moved.
    tamper(&store, &format!("DELETE FROM audit WHERE pos <= {}", all[530].pos)).await;
    assert!(findings(&store).await[0].starts_with("rows 521 to 531 of chain"));
    let hash = Kept::parse(&all[530].body).unwrap().hash;
    tamper(&store, &format!("UPDATE chain SET pruned_seq = 531, pruned_hash = '{hash}'")).await;
    assert!(findings(&store).await[0].contains("does not vouch for what was pruned"), "{:?}", findings(&store).await);
}

async fn a_chain_that_is_written_anew_does_not_fit_the_next(store: Store) {
    let mut one = Chain::new("home");
    let mut forged = one.clone_for_tests();
    let rows = |word: &str| -> Vec<Row> { (0..5).map(|_| Row::new(Event::HubStarted).detail(word)).collect() };
    store.append(&mut one, &rows("true"), List::Now).await.unwrap();
    filled(&store, 3).await;
    assert_eq!(findings(&store).await, [""; 0]);
    let last = store.following(&Filter::default(), -1, 5).await.unwrap()[4].pos;
    tamper(&store, &format!("DELETE FROM audit WHERE pos <= {last}")).await;
    tamper(&store, &format!("DELETE FROM audit_place WHERE last <= {last}")).await;
    tamper(&store, &format!("DELETE FROM chain WHERE id = '{}'", one.id)).await;
    store.append(&mut forged, &rows("false"), List::Now).await.unwrap();
    let unlike = format!("row 5 of chain {} is not the one that the next chain began behind", one.id);
    assert!(findings(&store).await.contains(&unlike), "{:?}", findings(&store).await);
}

async fn no_pruned_part_vouches_for_itself_or_is_left_without_a_word(store: Store) {
    let one = filled(&store, 20).await;
    let mut two = filled(&store, 5).await;
    let all = store.following(&Filter::default(), -1, 100).await.unwrap();
    let prune = async |two: &mut Chain, before: i64| {
        let cut = store.cut(before).await.unwrap();
        let vouching = |mark: &super::chain::Mark| Row { detail: Some(mark.vouched()), ..Row::new(Event::Pruned) };
        let rows: Vec<Row> = cut.marks.iter().map(vouching).collect();
        store.append_marked(two, &rows, &cut.marks, List::Now).await.unwrap();
        while store.delete_before(before).await.unwrap() {}
        cut.marks.len()
    };
    assert_eq!(prune(&mut two, all[20].pos).await, 1);
    assert_eq!(findings(&store).await, [""; 0]);
    // The second cut takes the row away that vouches for the first one.
    store.append(&mut two, &[Row::new(Event::HubStarted)], List::Now).await.unwrap();
    let newest = store.newest(&Filter::default(), None, 1).await.unwrap()[0].pos;
    assert_eq!(prune(&mut two, newest).await, 2);
    assert_eq!(findings(&store).await, [""; 0]);

    let vouching = format!("pruned_by_chain = '{}', pruned_by_seq = 1", one.id);
    tamper(&store, &format!("UPDATE chain SET {vouching} WHERE id = '{}'", one.id)).await;
    assert!(findings(&store).await[0].contains("it vouches for"), "{:?}", findings(&store).await);
}

async fn a_begun_write_is_known_until_it_ends(store: Store) {
    let mut chain = Chain::new("home");
    let write = |row: Row, event: Event, id: Uuid| {
        let mut row = Row { event, ..row };
        let call = row.call.as_mut().unwrap();
        (call.access, call.id) = (Some(Access::Write), id);
        call.outcome = (event == Event::Call).then_some("ok");
        row
    };
    let (session, id) = (clock::new_id(), clock::new_id());
    let begun = write(call("run_command", "ok", session), Event::Begun, id);
    store.append(&mut chain, &[begun], List::Now).await.unwrap();
    let unended = store.unended(&chain.id).await.unwrap();
    assert_eq!(unended.len(), 1);
    assert_eq!(Kept::parse(&unended[0]).unwrap().call, Some(id.to_string()));
    let ended = write(call("run_command", "ok", session), Event::Call, id);
    store.append(&mut chain, &[ended], List::Now).await.unwrap();
    assert!(store.unended(&chain.id).await.unwrap().is_empty());
}

async fn rows_may_be_listed_later_and_by_the_next_process(store: Store) {
    let session = clock::new_id();
    let by_tool = async |tool: &str| {
        let filter = Filter { tool: Some(tool.to_owned()), ..Filter::default() };
        store.newest(&filter, None, 100).await.unwrap().len()
    };
    let mut chain = Chain::new("home");
    store.append(&mut chain, &[call("a", "ok", session)], List::Later).await.unwrap();
    store.append(&mut chain, &[call("a", "ok", session)], List::Later).await.unwrap();
    assert_eq!((by_tool("a").await, findings(&store).await), (0, Vec::new()));
    store.append(&mut chain, &[call("a", "failed", session)], List::Now).await.unwrap();
    assert_eq!((by_tool("a").await, chain.has_unlisted()), (3, false));
    store.append(&mut chain, &[call("b", "ok", session)], List::Later).await.unwrap();
    store.list(&mut chain).await.unwrap();
    assert_eq!((by_tool("b").await, chain.has_unlisted()), (1, false));

    // A process that is killed here, while another goes on.
    let rows: Vec<Row> = (0..700).map(|_| call("c", "ok", session)).collect();
    store.append(&mut chain, &rows, List::Later).await.unwrap();
    let mut other = filled(&store, 3).await;
    store.append(&mut chain, &[call("c", "ok", session)], List::Later).await.unwrap();
    store.append(&mut other, &rows[..5], List::Now).await.unwrap();
    assert_eq!((by_tool("c").await, findings(&store).await), (5, Vec::new()));
    store.close_chain(&chain.id).await.unwrap();
    assert!(findings(&store).await[0].contains("are not found by session, tool and outcome"));
    store.relist(&chain.id).await.unwrap();
    store.relist(&chain.id).await.unwrap();
    let all = Filter { tool: Some("c".to_owned()), ..Filter::default() };
    assert_eq!(store.newest(&all, None, 10_000).await.unwrap().len(), 706);
    assert_eq!(findings(&store).await, [""; 0]);
}

async fn a_batch_whose_fate_was_unknown_is_not_written_twice(store: Store) {
    let mut chain = filled(&store, 3).await;
    let before = chain.clone_for_tests();
    let row = Row::new(Event::HubStopped);
    store.append(&mut chain, std::slice::from_ref(&row), List::Later).await.unwrap();
    // As if the answer to the last commit had not come.
    let mut unsure = before.unsure_of(&chain, vec![row.id]);
    let next = [Row::new(Event::HubStarted)];
    assert_eq!(store.append(&mut unsure, &next, List::Now).await.unwrap(), Appended::Earlier(vec![row.id]));
    assert!(unsure.has_unlisted(), "what the earlier batch had to list is looked up");
    store.list(&mut unsure).await.unwrap();
    assert_eq!(store.append(&mut unsure, &[Row::new(Event::HubStarted)], List::Now).await.unwrap(), Appended::Written);
    assert_eq!(store.audit_rows().await.unwrap(), 5);
    assert_eq!(findings(&store).await, [""; 0]);
}

async fn a_position_that_is_taken_fails_once_and_not_again(store: Store) {
    let mut chain = filled(&store, 1).await;
    let mut twin = Chain::new("home").in_step_with(&mut chain);
    store.append(&mut chain, &[Row::new(Event::HubStarted)], List::Now).await.unwrap();
    store.append(&mut twin, &[Row::new(Event::HubStarted)], List::Now).await.unwrap_err();
    store.append(&mut twin, &[Row::new(Event::HubStarted)], List::Now).await.unwrap();
    assert_eq!(findings(&store).await, [""; 0]);
}

#[tokio::test]
async fn doors_that_start_together_all_get_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let opened = futures_util::future::join_all((0..8).map(|_| Store::open(folder.path(), None))).await;
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
}

#[tokio::test]
async fn a_damaged_file_is_told_by_sqlite_itself() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), None).await.unwrap();
    filled(&store, 200).await;
    assert!(store.integrity().await.unwrap().is_empty());
    let Db::Sqlite(db) = &store.db else { panic!("it is SQLite") };
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(db).await.unwrap();
    store.close().await;
    let path = folder.path().join("nexus.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // A session in the middle of an index page: no row changes, but a filter would miss one.
    let at = bytes.windows(11).rposition(|window| window == b"hub_started").unwrap();
    bytes[at] ^= 1;
    std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
    let store = Store::open(folder.path(), None).await.unwrap();
    let told = !store.integrity().await.unwrap().is_empty() || !findings(&store).await.is_empty();
    assert!(told);
}

async fn what_is_known_of_upstream_servers_is_kept_for_each_hub_alone(store: Store) {
    use nexus_core::name::ServerName;
    use nexus_core::session::Era;
    use nexus_mcp::upstream::pins::{Memory, Pin};
    use serde_json::json;

    use super::upstreams::Upstreams;

    let (ours, others) = (Upstreams::new(store.clone(), "ours"), Upstreams::new(store, "others"));
    let (github, files) = (ServerName::new("GitHub API"), ServerName::new("files"));
    let pin = |tool: &str, words: &str| Pin::of(tool, &json!({ "name": tool, "description": words }));

    ours.allow(&github, vec![pin("a", "1"), pin("b", "1")]).await.unwrap();
    ours.allow(&github, vec![pin("b", "2"), pin("c", "1")]).await.unwrap();
    ours.remember_era(&github, Era::Legacy).await.unwrap();
    ours.remember_era(&github, Era::Modern).await.unwrap();
    let mut pins = ours.pins(&github).await.unwrap();
    pins.sort_by(|a, b| a.tool.cmp(&b.tool));
    assert_eq!(pins, [pin("a", "1"), pin("b", "2"), pin("c", "1")]);
    assert_eq!(ours.era(&github).await.unwrap(), Some(Era::Modern));
    assert!(ours.pins(&files).await.unwrap().is_empty() && others.pins(&github).await.unwrap().is_empty());
    assert_eq!(others.era(&github).await.unwrap(), None);
    assert!(!ours.met(&files).await.unwrap() && !others.met(&github).await.unwrap());
    ours.allow(&files, Vec::new()).await.unwrap();
    assert!(ours.met(&github).await.unwrap() && ours.met(&files).await.unwrap(), "also the one without a tool");

    ours.forget(&github).await.unwrap();
    assert!(!ours.met(&github).await.unwrap());
    assert!(ours.pins(&github).await.unwrap().is_empty() && ours.era(&github).await.unwrap().is_none());

    let file = Path::new("/p/.mcp.json");
    ours.agree(file, "x", "1").await.unwrap();
    ours.agree(file, "x", "2").await.unwrap();
    let agreed = ("/p/.mcp.json".to_owned(), "x".to_owned(), "2".to_owned());
    assert_eq!(ours.agreed().await.unwrap().into_iter().collect::<Vec<_>>(), [agreed]);
    assert!(others.agreed().await.unwrap().is_empty());
    assert!(ours.disagree("x").await.unwrap() && !ours.disagree("x").await.unwrap());
}
