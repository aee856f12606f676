//! The registry over servers in memory.

use serde_json::json;

use nexus_core::tasks::Tasks;

use super::*;
use crate::upstream::config::Source;
use crate::upstream::introduction;
use crate::upstream::pins::InMemory;
use crate::upstream::supervisor::tests::fake::{Fake, Fakes, stdio, tool};

struct Lab {
    registry: Registry,
    a: Fake,
    b: Fake,
}

impl Lab {
    fn new() -> Self {
        let (a, b) = (Fake::with_tools([tool("echo", "Echoes.")]), Fake::with_tools([tool("add", "Adds.")]));
        let fakes = Fakes::new([("a", a.clone()), ("b", b.clone())]);
        let parts = Parts::new(fakes, Arc::new(InMemory::default()), Tasks::new());
        Self { registry: Registry::new(parts), a, b }
    }

    async fn apply(&self, entries: impl IntoIterator<Item = Entry>) {
        self.registry.apply(entries.into_iter().collect()).await;
        for upstream in self.registry.all() {
            upstream.ready().await.unwrap();
        }
    }
}

/// As if read from a file.
fn entry(name: &str) -> Entry {
    let mut config = stdio(name);
    config.source = Source::Home { file: "/home/mcp.json".into(), line: 1 };
    Entry::agreed(config)
}

fn named(name: &str) -> ServerName {
    ServerName::new(name)
}

fn agent(name: &str) -> PrincipalId {
    PrincipalId::new(name)
}

fn private(name: &str) -> Visibility {
    Visibility::Private(agent(name))
}

fn caller(name: &str) -> Caller {
    Caller { agent: agent(name), level: Some(Level::Trusted), session: Uuid::nil() }
}

#[tokio::test(start_paused = true)]
async fn without_permission_nothing_is_connected_and_nothing_called() {
    let lab = Lab::new();
    for level in [None, Some(Level::Sandboxed)] {
        let refused = lab.registry.connect(stdio("a"), Visibility::Shared, level).await;
        assert!(matches!(refused, Err(ConfigurationError::Denied { .. })), "{refused:?}");
    }
    assert_eq!(lab.a.starts(), 0);
    let upstream = lab.registry.connect(stdio("a"), Visibility::Shared, Some(Level::Yolo)).await.unwrap();
    upstream.ready().await.unwrap();
    for level in [None, Some(Level::Sandboxed)] {
        let refused = lab.registry.call(&Caller { level, ..caller("x") }, "mcp_a_echo", &json!({})).await;
        assert!(matches!(refused, Err(CallError::Denied(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_off_or_leads_nowhere_is_a_configuration_error() {
    let lab = Lab::new();
    let (mut off, mut nowhere, mut unagreed) = (entry("a"), entry("b"), entry("c"));
    off.config.enabled = false;
    nowhere.config.endpoint = None;
    unagreed.agreement = Agreement::Missing;
    lab.apply([off, nowhere, unagreed]).await;
    let of = |name: &'static str| {
        let registry = lab.registry.clone();
        async move { registry.connect_known(&named(name), Visibility::Shared, Some(Level::Yolo)).await.unwrap_err() }
    };
    assert_eq!(of("a").await, ConfigurationError::Disabled("a".into()));
    assert_eq!(of("b").await, ConfigurationError::Nowhere("b".into()));
    assert!(matches!(of("c").await, ConfigurationError::Unagreed { .. }));
    assert_eq!(of("d").await, ConfigurationError::Unknown("d".into()));
    let states: Vec<_> = lab.registry.statuses(None).iter().map(|status| status.state).collect();
    assert_eq!(states, ["stopped", "stopped", "denied"]);
    assert_eq!(lab.a.starts() + lab.b.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_private_server_is_seen_by_its_owner_alone() {
    let lab = Lab::new();
    let registry = &lab.registry;
    registry.connect(stdio("a"), private("me"), Some(Level::Trusted)).await.unwrap().ready().await.unwrap();
    registry.connect(stdio("b"), Visibility::Shared, Some(Level::Trusted)).await.unwrap().ready().await.unwrap();
    let seen = |who: &str| registry.list_for(&agent(who)).iter().map(|up| up.name().to_string()).collect::<Vec<_>>();
    assert_eq!((seen("me"), seen("you")), (vec!["a".to_owned(), "b".into()], vec!["b".to_owned()]));
    assert!(registry.is_connected(&named("a"), &agent("me")) && !registry.is_connected(&named("a"), &agent("you")));
    assert!(registry.find_by_tool("mcp_a_echo", &agent("you")).is_none());
    assert_eq!(registry.find_by_tool("mcp_a_echo", &agent("me")).unwrap().1.original, "echo");
    assert_eq!(registry.info(&named("b"), &agent("you")).unwrap().name, "fake");
    let said = registry.call(&caller("me"), "mcp_a_echo", &json!({ "m": "hi" })).await.unwrap();
    assert!(said.text().contains("hi"));
    let refused = registry.call(&caller("you"), "mcp_a_echo", &json!({})).await;
    assert!(matches!(refused, Err(CallError::Unknown(_))), "{refused:?}");
    let statuses = registry.statuses(Some(&agent("you")));
    assert!(statuses.iter().all(|status| status.visibility == "shared"), "{statuses:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_known_from_a_private_connection_is_for_its_owner_alone() {
    let lab = Lab::new();
    lab.apply([entry("a")]).await;
    lab.registry.disconnect(&named("a"), &agent("me")).await.unwrap();
    let mine = lab.registry.connect_known(&named("a"), private("me"), Some(Level::Trusted)).await.unwrap();
    mine.ready().await.unwrap();
    mine.log().note("mine alone");
    let read = |who: &str| {
        let lines = lab.registry.log(&named("a"), &agent(who)).unwrap().last(100);
        lines.iter().any(|line| line.text == "mine alone")
    };
    assert!(read("me") && !read("you"));
    let told = introduction::known(&lab.registry, &named("a")).unwrap();
    assert!(told.contains("its tools are not known yet"), "{told}");

    lab.registry.disconnect(&named("a"), &agent("me")).await.unwrap();
    assert!(read("me") && !read("you"), "also when it is gone");
    lab.registry.connect_known(&named("a"), Visibility::Shared, Some(Level::Trusted)).await.unwrap();
    assert!(!read("you"), "also when it is shared later");
    let all = lab.registry.log_lines(&named("a"), 1_000).unwrap();
    assert!(all.iter().any(|line| line.text == "mine alone"), "the operator sees everything");
}

#[tokio::test(start_paused = true)]
async fn a_server_is_shared_or_private_never_both() {
    let lab = Lab::new();
    let connect = |visibility| lab.registry.connect(stdio("a"), visibility, Some(Level::Trusted));
    for who in ["me", "you"] {
        connect(private(who)).await.unwrap().ready().await.unwrap();
    }
    assert_eq!(lab.a.alive(), 2);
    connect(Visibility::Shared).await.unwrap().ready().await.unwrap();
    assert_eq!((lab.a.alive(), lab.registry.all().len()), (1, 1));
    assert!(matches!(connect(private("me")).await, Err(ConfigurationError::Shared(_))));
    connect(Visibility::Shared).await.unwrap();
    assert_eq!(lab.a.starts(), 3, "what is there is not started again");
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_in_the_configuration_is_touched() {
    let lab = Lab::new();
    lab.apply([entry("a"), entry("b")]).await;
    let mut changes = lab.registry.changes();
    changes.mark_unchanged();
    let mut slower = entry("b");
    slower.config.timeout += std::time::Duration::from_secs(1);
    lab.apply([entry("a"), slower.clone()]).await;
    assert_eq!((lab.a.starts(), lab.b.starts(), lab.b.alive()), (1, 2, 1));
    assert!(changes.has_changed().unwrap());
    lab.apply([slower]).await;
    assert_eq!((lab.a.alive(), lab.b.alive(), lab.registry.entries().len()), (0, 1, 1));
    let mut off = entry("b");
    off.config.enabled = false;
    lab.apply([entry("a"), off]).await;
    assert_eq!((lab.a.alive(), lab.b.alive()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_connected_by_a_program_survives_another_configuration() {
    let lab = Lab::new();
    lab.registry.connect(stdio("a"), Visibility::Shared, Some(Level::Yolo)).await.unwrap().ready().await.unwrap();
    lab.apply([entry("b")]).await;
    lab.apply([]).await;
    assert_eq!((lab.a.alive(), lab.b.alive()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_agreement_starts_what_waited_for_it() {
    let lab = Lab::new();
    let mut waiting = entry("a");
    waiting.agreement = Agreement::Missing;
    lab.apply([waiting.clone()]).await;
    assert_eq!((lab.a.starts(), lab.registry.statuses(None)[0].state), (0, "denied"));
    lab.apply([entry("a")]).await;
    assert_eq!((lab.a.alive(), lab.registry.statuses(None)[0].state), (1, "ready"));
    lab.apply([waiting]).await;
    assert_eq!(lab.a.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_disconnected_stays_so_until_it_is_connected() {
    let lab = Lab::new();
    lab.apply([entry("a")]).await;
    lab.registry.disconnect(&named("a"), &agent("me")).await.unwrap();
    lab.apply([entry("a")]).await;
    assert_eq!((lab.a.alive(), lab.registry.statuses(None)[0].state), (0, "stopped"));
    let unknown = lab.registry.disconnect(&named("z"), &agent("me")).await;
    assert_eq!(unknown, Err(ConfigurationError::Unknown("z".into())));
    let known = lab.registry.connect_known(&named("a"), private("me"), Some(Level::Trusted)).await.unwrap();
    known.ready().await.unwrap();
    assert_eq!(lab.a.alive(), 1);
}

#[tokio::test(start_paused = true)]
async fn arguments_are_checked_before_they_are_sent() {
    let lab = Lab::new();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    lab.a.conduct.lock().tools = vec![json!({ "name": "strict", "inputSchema": schema })];
    lab.apply([entry("a")]).await;
    let refused = lab.registry.call(&caller("me"), "mcp_a_strict", &json!({ "n": "secret" })).await.unwrap_err();
    assert!(matches!(&refused, CallError::Misfits(_)), "{refused:?}");
    assert!(refused.to_string().contains("/n") && !refused.to_string().contains("secret"), "{refused}");
    assert!(lab.registry.call(&caller("me"), "mcp_a_strict", &json!({ "n": 1 })).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn all_are_checked_at_once_and_all_are_closed() {
    let lab = Lab::new();
    lab.b.conduct.lock().refuses = true;
    lab.registry.apply(vec![entry("a"), entry("b")]).await;
    lab.registry.all()[0].ready().await.unwrap();
    lab.b.conduct.lock().refuses = false;
    let states: Vec<_> = lab.registry.check_connections().await.iter().map(|status| status.state).collect();
    assert_eq!(states, ["ready", "ready"]);
    lab.registry.close_all().await;
    assert_eq!((lab.a.alive(), lab.b.alive(), lab.registry.all().len()), (0, 0, 0));
    assert_eq!(lab.registry.statuses(None).len(), 2, "what is configured is still known");
}

#[tokio::test(start_paused = true)]
async fn servers_whose_names_read_alike_have_tools_of_different_names() {
    let fake = || Fake::with_tools([tool("x", "X.")]);
    let fakes = Fakes::new([("Git Hub", fake()), ("git-hub", fake())]);
    let registry = Registry::new(Parts::new(fakes, Arc::new(InMemory::default()), Tasks::new()));
    registry.apply(vec![entry("git-hub"), entry("Git Hub")]).await;
    let mut names = Vec::new();
    for upstream in registry.all() {
        upstream.ready().await.unwrap();
        names.push(upstream.offer().tools[0].exposed.to_string());
    }
    assert_eq!(names[0], "mcp_git_hub_x");
    assert!(names[1].starts_with("mcp_git_hub_") && names[1].ends_with("_x") && names[1] != names[0], "{names:?}");
}

/// What all tools are called, by server.
fn exposed(registry: &Registry) -> Vec<(String, String)> {
    let all = registry.all();
    let of = |up: &Upstream| (up.name().to_string(), up.offer().tools[0].exposed.to_string());
    all.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn names_of_tools_are_the_same_whenever_their_servers_came() {
    let fakes = ["A-B", "a_b"].map(|name| (name, Fake::with_tools([tool("add", "Adds.")])));
    let starts = || fakes.iter().map(|(_, fake)| fake.starts()).collect::<Vec<_>>();
    let parts = Parts::new(Fakes::new(fakes.clone()), Arc::new(InMemory::default()), Tasks::new());
    let lab = Lab { registry: Registry::new(parts), a: fakes[0].1.clone(), b: fakes[1].1.clone() };
    lab.apply([entry("A-B")]).await;
    assert_eq!(exposed(&lab.registry), [("A-B".into(), "mcp_a_b_add".into())]);
    let mut unagreed = entry("a_b");
    unagreed.agreement = Agreement::Missing;
    lab.apply([entry("A-B"), unagreed]).await;
    assert_eq!(exposed(&lab.registry)[0].1, "mcp_a_b_add", "what nobody agreed to changes nothing");

    lab.apply([entry("A-B"), entry("a_b")]).await;
    let later = exposed(&lab.registry);
    assert_eq!(later[1], ("a_b".into(), "mcp_a_b_add".into()));
    assert!(later[0].1.ends_with("_add") && later[0].1 != "mcp_a_b_add", "{later:?}");
    assert_eq!(starts(), [1, 1], "another name is no reason to start it again");
    assert!(lab.registry.call(&caller("me"), &later[0].1, &json!({})).await.is_ok());

    lab.registry.close_all().await;
    lab.apply([]).await;
    lab.apply([entry("a_b"), entry("A-B")]).await;
    assert_eq!(exposed(&lab.registry), later, "at once or one after the other");
    lab.apply([entry("A-B")]).await;
    assert_eq!(exposed(&lab.registry), [("A-B".into(), "mcp_a_b_add".into())]);
}

#[tokio::test(start_paused = true)]
async fn names_of_our_own_tools_are_never_a_servers() {
    let lab = Lab::new();
    lab.registry.reserve([ToolName::parse("echo").unwrap()]);
    let mut plain = entry("a");
    plain.config.prefix = Some(String::new());
    lab.apply([plain]).await;
    let name = exposed(&lab.registry)[0].1.clone();
    assert!(name.starts_with("echo_") && name.len() == "echo_123456".len(), "{name}");
}
