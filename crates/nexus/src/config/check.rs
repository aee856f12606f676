//! From what was written to what the program uses: one function that looks at everything.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use nexus_core::name::NodeName;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use super::env::{Env, EnvVar, Secret};
use super::faults::{Faults, Problem, did_you_mean, shown};
use super::section::{Setting, Value, repeated};
use super::sections::{
    Agents, Ansible, Approval, Audit, Docker, File, Integrations, Key, Links, Loki, Mcp, NodeAccess, Server, Shell,
    Topology,
};
use super::tree::Node;
use super::values::net::HttpUrl;
use super::values::remote::PostgresUrl;
use super::values::{FilePath, Text};
use crate::keyring::{LOCAL, OPERATOR};

/// What a secret must be that travels in a header.
struct Demand {
    what: &'static str,
    /// Characters.
    shortest: usize,
    hint: &'static str,
}

/// 32 characters, made by a machine, are out of reach of guessing.
const KEY: Demand = Demand { what: "a key", shortest: 32, hint: "openssl rand -hex 32" };

/// Somebody may have to type it at a computer's keyboard.
const LINK_TOKEN: Demand = Demand { what: "a token", shortest: 8, hint: "openssl rand -hex 16" };

/// The configuration that the program runs with: file, environment and defaults together.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    pub server: Server,
    pub keys: Vec<Key>,
    pub approval: Approval,
    /// None: SQLite in the data folder.
    pub store: Option<PostgresUrl>,
    pub audit: Audit,
    pub loki: Loki,
    pub shell: Shell,
    pub topology: Topology,
    pub nodes: BTreeMap<NodeName, NodeAccess>,
    pub docker: Docker,
    pub ansible: Option<Ansible>,
    pub mcp: Mcp,
    pub agents: Agents,
    pub links: Links,
    /// Whether somebody said where the listener for computers is: what was asked for must be there.
    #[serde(skip)]
    pub links_chosen: bool,
    pub integrations: Integrations,
    /// What only the environment can say.
    pub environment: Environment,
}

/// What only the environment can say. Secrets are shown as `[set]`.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The key named `default`.
    pub api_key: Option<Secret>,
    /// Beats `server.log_level`.
    pub log_filter: Option<LogFilter>,
    pub link_token: Option<Secret>,
    pub loki_url: Option<HttpUrl>,
    pub loki_user: Option<Text>,
    pub loki_password: Option<Secret>,
    pub git_token: Option<Secret>,
    pub cloudflare_api_token: Option<Secret>,
    pub ntfy_url: Option<HttpUrl>,
    pub ntfy_token: Option<Secret>,
    pub dockerhub_token: Option<Secret>,
    pub telegram_bot_token: Option<Secret>,
    /// For `nexus agent`.
    pub agent_key: Option<Secret>,
    pub webhook_secret: Option<Secret>,
}

/// A filter that `tracing` understands.
#[derive(Clone, Debug, Serialize)]
pub struct LogFilter(String);

impl Config {
    /// The fault of a listener that others can reach while no key is configured. Only a serving
    /// hub asks, and only when its store holds no key either.
    pub fn keyless_listener(&self) -> Option<Faults> {
        let host = self.server.http_host;
        if host.to_canonical().is_loopback() || self.environment.api_key.is_some() || !self.keys.is_empty() {
            return None;
        }
        let mut faults = Faults::default();
        let problem = Problem::new(format!("the MCP listener on {host} would be reachable without a key"));
        faults.start(problem.hint("MCP_API_KEY=$(openssl rand -hex 32), or listen on 127.0.0.1"));
        Some(faults)
    }
}

impl AsRef<str> for LogFilter {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Value for LogFilter {
    fn kind() -> String {
        "a log filter".to_owned()
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        match EnvFilter::builder().parse(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(Problem::not(text, "a log filter").hint("info, or nexus=debug,warn")),
        }
    }
}

/// Checks everything, faulty parts included, so that all faults come to light together.
/// Paths that are not absolute start at `base`.
pub fn check(root: &Node, base: &Path, env: &Env, faults: &mut Faults) -> Option<Config> {
    let file = File::read(root, faults);
    let environment = environment(env, faults);
    check_keys(root, env, faults);
    check_agents(root, faults);
    check_store(root, faults);
    let links_chosen = are_links_chosen(root, env);
    let mut file = file.or_else(File::absent)?;
    overrule(&mut file, env, faults);
    resolve_paths(&mut file, base, env);
    Some(Config {
        server: file.server,
        keys: file.keys,
        approval: file.approval,
        store: file.store,
        audit: file.audit,
        loki: file.loki,
        shell: file.shell,
        topology: file.topology,
        nodes: file.nodes,
        docker: file.docker,
        ansible: file.ansible,
        mcp: file.mcp,
        agents: file.agents,
        links: file.links,
        links_chosen,
        integrations: file.integrations,
        environment,
    })
}

fn environment(env: &Env, faults: &mut Faults) -> Environment {
    Environment {
        api_key: in_header(env, EnvVar::McpApiKey, &KEY, faults),
        log_filter: env.value(EnvVar::NexusLog, faults),
        link_token: in_header(env, EnvVar::CcLinkToken, &LINK_TOKEN, faults),
        loki_url: env.value(EnvVar::LokiUrl, faults),
        loki_user: env.value(EnvVar::LokiUser, faults),
        loki_password: env.secret(EnvVar::LokiPassword, faults),
        git_token: env.secret(EnvVar::GitToken, faults),
        cloudflare_api_token: env.secret(EnvVar::CloudflareApiToken, faults),
        ntfy_url: env.value(EnvVar::NtfyUrl, faults),
        ntfy_token: env.secret(EnvVar::NtfyToken, faults),
        dockerhub_token: env.secret(EnvVar::DockerhubToken, faults),
        telegram_bot_token: env.secret(EnvVar::TelegramBotToken, faults),
        agent_key: env.secret(EnvVar::NexusAgentKey, faults),
        webhook_secret: env.secret(EnvVar::NexusWebhookSecret, faults),
    }
}

fn in_header(env: &Env, variable: EnvVar, demand: &Demand, faults: &mut Faults) -> Option<Secret> {
    let secret = env.secret(variable, faults)?;
    let (length, Demand { what, shortest, hint }) = (secret.expose().chars().count(), demand);
    let problem = if length < *shortest {
        Problem::new(format!("is {length} characters long; {what} has at least {shortest}"))
    } else if secret.expose().chars().any(|c| !c.is_ascii_graphic()) {
        // Clients would send anything else each in its own way.
        Problem::new("holds something else than visible ASCII characters")
    } else {
        return Some(secret);
    };
    faults.environment(variable.name(), problem.hint(*hint));
    None
}

/// Also where it is the default that was said.
fn are_links_chosen(root: &Node, env: &Env) -> bool {
    let in_file = root.get("links").is_some_and(|links| ["host", "port"].iter().any(|key| links.get(key).is_some()));
    in_file || env.is_set(EnvVar::CcLinkHost) || env.is_set(EnvVar::CcLinkPort)
}

/// What the environment says in place of the file.
fn overrule(file: &mut File, env: &Env, faults: &mut Faults) {
    set::<IpAddr>(&mut file.server.http_host, env.value(EnvVar::McpHost, faults));
    set(&mut file.server.http_port, env.value(EnvVar::McpPort, faults));
    set::<IpAddr>(&mut file.links.host, env.value(EnvVar::CcLinkHost, faults));
    set(&mut file.links.port, env.value(EnvVar::CcLinkPort, faults));
    set(&mut file.links.probe_timeout_ms, env.value(EnvVar::CcProbeTimeoutMs, faults));
    if let Some(url) = env.secret(EnvVar::NexusStore, faults) {
        match PostgresUrl::parse(url.expose()) {
            Ok(url) => file.store = Some(url),
            Err(problem) => faults.environment(EnvVar::NexusStore.name(), problem),
        }
    }

    fn set<T>(setting: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *setting = value;
        }
    }
}

/// Names are unique, `default` belongs to the environment, and an agent's key to a target.
fn check_keys(root: &Node, env: &Env, faults: &mut Faults) {
    let keys = || root.get("keys").map(Node::items).unwrap_or_default().iter();
    for (name, spot) in repeated(keys().filter_map(|key| key.get("name"))) {
        faults
            .at(spot, Problem::new(format!("the key name `{}` is used twice", shown(name))).hint("rename one of them"));
    }
    for (hash, spot) in repeated(keys().filter_map(|key| key.get("sha256"))) {
        if hash.len() == 64 {
            faults.at(spot, Problem::new("the same key has two names").hint("make a key of its own for each"));
        }
    }
    for name in keys().filter_map(|key| key.get("name")) {
        if name.text() == Some("default") && env.is_set(EnvVar::McpApiKey) {
            let problem = Problem::new("the key name `default` is that of MCP_API_KEY, which is set");
            faults.at(name.spot, problem.hint("rename this one, or unset MCP_API_KEY"));
        }
    }
    for name in keys().filter_map(|key| key.get("name")) {
        let whose = match name.text() {
            Some(LOCAL) => "the process behind `nexus stdio`",
            Some(OPERATOR) => "the operator's command line",
            _ => continue,
        };
        let problem = Problem::new(format!("the key name `{}` is that of {whose}", name.text().unwrap_or_default()));
        faults.at(name.spot, problem.hint("rename it"));
    }
    for target in keys().filter_map(|key| key.get("target")) {
        check_target(root, target, faults);
    }
}

/// A password does not belong in a file.
fn check_store(root: &Node, faults: &mut Faults) {
    let Some(store) = root.get("store") else { return };
    let url = store.text().and_then(|text| PostgresUrl::parse(text).ok());
    if url.is_some_and(|url| url.password().is_some()) {
        let problem = Problem::new("the URL of the store must not hold a password");
        faults.at(store.spot, problem.hint("put the whole URL into NEXUS_STORE, or its path into NEXUS_STORE_FILE"));
    }
}

/// The default is one of the targets, and each target is reached in exactly one way.
fn check_agents(root: &Node, faults: &mut Faults) {
    let Some(agents) = root.get("agents") else { return };
    if let Some(default) = agents.get("default") {
        check_target(root, default, faults);
    }
    for target in agents.get("targets").map(Node::entries).unwrap_or_default() {
        let ways = ["worker", "telegram", "webhook"].iter().filter(|way| target.value.get(way).is_some()).count();
        let is_map = target.value.text().is_none() && target.value.items().is_empty();
        if ways != 1 && is_map {
            let name = shown(&target.key);
            let problem =
                Problem::new(format!("the target `{name}` is reached in {ways} ways; it must be exactly one"));
            faults.at(target.spot, problem.hint("worker: {}, telegram: { chat_id: … } or webhook: { url: … }"));
        }
    }
}

fn check_target(root: &Node, named: &Node, faults: &mut Faults) {
    let targets = root.get("agents").and_then(|agents| agents.get("targets")).map(Node::entries).unwrap_or_default();
    let Some(name) = named.text() else { return };
    if targets.iter().all(|target| target.key != name) {
        let known = targets.iter().map(|target| target.key.as_str());
        let hint = did_you_mean(name, known).unwrap_or_else(|| "declare it below agents.targets".to_owned());
        faults.at(named.spot, Problem::not(name, "one of the targets").hint(hint));
    }
}

fn resolve_paths(file: &mut File, base: &Path, env: &Env) {
    let home = env.home();
    let ansible = file.ansible.iter_mut().flat_map(|ansible| [&mut ansible.local_path, &mut ansible.ssh_key_path]);
    let webhooks = file.agents.targets.values_mut().filter_map(|target| target.webhook.as_mut());
    let webhooks = webhooks.map(|webhook| &mut webhook.secret_file);
    let paths: Vec<&mut FilePath> =
        [&mut file.topology.static_file, &mut file.docker.compose_dir, &mut file.agents.telegram.credentials_file]
            .into_iter()
            .chain(ansible)
            .chain(file.nodes.values_mut().map(|node| &mut node.key))
            .chain(webhooks)
            .flatten()
            .chain(&mut file.mcp.files)
            .collect();
    for path in paths {
        path.resolve(base, home.as_deref());
    }
}
