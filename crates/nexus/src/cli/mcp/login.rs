//! `nexus mcp login` and `nexus mcp logout`: the operator's own login at a server that wants one (OAuth).
//!
//! The token ends up in a file of the data folder, where a running hub finds it by itself within seconds.

use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use futures_util::future::BoxFuture;
use nexus_core::audit::{Nowhere, Sink};
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::client::{Client, Listed, Options};
use nexus_mcp::upstream::config::{Endpoint, HttpEndpoint};
use nexus_mcp::upstream::error::UpstreamError;
use nexus_mcp::upstream::log::ServerLog;
use nexus_mcp::upstream::oauth::{
    Browser, Callback, Identity, InMemory, OAuth, OAuthError, PATIENCE_MINUTES, Registered, TokenStore, Url, Web,
};
use nexus_mcp::upstream::transport::http::HttpConnector;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::record::Record;
use crate::cli::{one_line, say};
use crate::config::{Env, Loaded, mcp};
use crate::logins;
use crate::upstreams::orders::{McpAnswer, McpOrder};

/// A request waits for the person at the page, who has [`PATIENCE_MINUTES`], and for what comes before and after.
const REQUEST: Duration = Duration::from_secs((PATIENCE_MINUTES + 2) * 60);

/// Requests that still run at the end are not waited for longer.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Login {
    /// The server, as it is named in mcp.json
    name: String,
    /// A client that you have registered at the authorization server, for one that takes no new clients by itself
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The file with that client's secret
    #[arg(long, value_name = "FILE", requires = "client_id")]
    client_secret_file: Option<PathBuf>,
    /// Ask for this scope instead of those the server suggests; may be given several times
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Logout {
    /// The server, as it is named in mcp.json
    name: String,
}

impl Login {
    pub async fn run(self, loaded: Loaded, env: &Env) -> Result<ExitCode> {
        let endpoint = address(&self.name, &loaded, env)?;
        if endpoint.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            bail!("the entry of {} has an `Authorization` of its own, which comes before any login", self.name);
        }
        let registered = match self.client_id {
            None => None,
            Some(id) => Some(Registered { id, secret: secret(self.client_secret_file)?, issuer: None }),
        };
        let identity = Identity { name: "Nexus".into(), metadata_url: None, registered, scopes: self.scopes };
        // Kept aside until the server has accepted it: an old login stays good when a new one fails.
        let kept = Arc::new(InMemory::default());
        let record = Record::open(&loaded).await?;
        let audit: Arc<dyn Sink> = record.journal.clone();
        let file = logins::Login::at(&loaded.data, Web::new(&endpoint, audit.clone())?.server().as_str());
        let tried = visit(endpoint, audit, identity, kept.clone()).await;
        // What was asked of whom is kept, however it ended.
        record.close().await;
        let Some(grant) = kept.load()? else {
            tried?;
            say(&format!("{} lets us in without a login.", self.name));
            return Ok(ExitCode::SUCCESS);
        };
        tried.context("the server does not accept the login")?;
        file.save(&grant).context("keeping the login")?;
        say(&format!("Logged in at {}.", one_line(&grant.issuer)));
        // A hub that waits for its next try need not. One that does not run, or waits for a yes, has nothing to do now.
        if let Ok(McpAnswer::Told(status)) = super::ask(&loaded, McpOrder::Connect { name: self.name, yes: None }).await
        {
            say(&format!("The running hub uses it: {}.", status["state"].as_str().unwrap_or("connecting")));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Logout {
    pub fn run(&self, loaded: &Loaded, env: &Env) -> Result<ExitCode> {
        let web = Web::new(&address(&self.name, loaded, env)?, Arc::new(Nowhere))?;
        match logins::Login::at(&loaded.data, web.server().as_str()).forget()? {
            true => say("The login is forgotten here. To end it for good, take it back where you logged in."),
            false => say(&format!("There is no login at {}.", self.name)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The address of a server in mcp.json.
fn address(name: &str, loaded: &Loaded, env: &Env) -> Result<HttpEndpoint> {
    let places = mcp::Places::of(&loaded.config, env)?;
    let mut reading = mcp::read(&places, &mcp::allow_private(&loaded.config), env);
    if let Some(broken) = reading.broken.get(name) {
        bail!("the entry of {name} cannot be used: {}", broken.why);
    }
    match reading.servers.remove(name).map(|server| server.config.endpoint) {
        Some(Some(Endpoint::Http(endpoint))) => Ok(endpoint),
        Some(Some(Endpoint::Stdio(_))) => {
            bail!("{name} is a program and not an address: there is nothing to log in to")
        }
        Some(None) => bail!("the entry of {name} has no url"),
        None => bail!("no server `{name}` is configured; `nexus mcp list` shows those that are"),
    }
}

fn secret(file: Option<PathBuf>) -> Result<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let secret = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?.trim().to_owned();
    nexus_core::redact::learn([&secret]);
    Ok(Some(secret))
}

/// Goes to the server with a person at hand who can log in.
async fn visit(endpoint: HttpEndpoint, audit: Arc<dyn Sink>, identity: Identity, kept: Arc<InMemory>) -> Result<()> {
    let (web, tasks) = (Web::new(&endpoint, audit.clone())?, Tasks::new());
    let browser = Arc::new(Terminal { callback: Callback::listen().await? });
    let oauth = OAuth::new(web, identity, kept, tasks.clone()).with_browser(browser);
    let greeted = greet(endpoint, audit, oauth, tasks.clone()).await;
    tasks.finish(LAST_REQUESTS).await;
    Ok(greeted?)
}

/// Connects and asks for the tools, for which every server that wants a login wants it.
async fn greet(endpoint: HttpEndpoint, audit: Arc<dyn Sink>, oauth: OAuth, tasks: Tasks) -> Result<(), UpstreamError> {
    let log = Arc::new(ServerLog::default());
    let connector = HttpConnector::new(endpoint, audit, Some(Arc::new(oauth)), log, tasks.clone());
    let client = Client::connect(Arc::new(connector), Options { timeout: REQUEST, ..Options::new(tasks) }).await?;
    let tools = match client.server().has("tools") {
        true => client.list(Listed::Tools).await.map(drop).map_err(|failed| failed.error),
        false => Ok(()),
    };
    client.close().await;
    tools
}

/// A person at a terminal, with a browser here or on another machine.
#[derive(Debug)]
struct Terminal {
    callback: Callback,
}

impl Browser for Terminal {
    fn redirect_uri(&self) -> String {
        self.callback.url().to_string()
    }

    fn visit<'a>(&'a self, page: &'a Url, state: &'a str) -> BoxFuture<'a, Result<Url, OAuthError>> {
        say(&format!("Log in here, within {PATIENCE_MINUTES} minutes:\n\n  {page}\n"));
        if std::io::stdin().is_terminal() {
            say("With a browser on another machine: paste the address it ends up at here.");
        }
        Box::pin(async move {
            tokio::select! {
                came_to = self.callback.visited(state) => came_to,
                came_to = pasted(state) => Ok(came_to),
            }
        })
    }
}

/// The address somebody types. Never comes back where nobody can type.
async fn pasted(state: &str) -> Url {
    if std::io::stdin().is_terminal() {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match Url::parse(line.trim()) {
                Ok(url) if url.query_pairs().any(|(name, value)| name == "state" && value == state) => return url,
                _ => say("That is not the address the login ends at: it has `code` and `state` in it."),
            }
        }
    }
    std::future::pending().await
}
