//! All keys there are: from the environment, from nexus.yaml, from the store, and the one that the hub made itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::clock;
use nexus_core::principal::{Level, Patterns, Principal, PrincipalId, Raised, SessionPolicy};
use nexus_core::redact;
use nexus_mcp::front::auth::{Key, Keys, digest};

use crate::agents::AGENT_TOOLS;
use crate::audit::Journal;
use crate::config::Config;
use crate::private;
use crate::store::{RaisedLevel, Store, StoredKey};

/// The name of the key in `MCP_API_KEY`, and of the one the hub makes when there is none.
pub const DEFAULT: &str = "default";

/// The name of the process behind `nexus stdio`, which has no key.
pub const LOCAL: &str = "local";

/// The name by which the operator's command line is recorded, which has no key either.
pub const OPERATOR: &str = "operator";

/// After which a store that refused is looked at again.
const RETRY: Duration = Duration::from_secs(5);

/// Where a key comes from, which is also where it can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Environment,
    File,
    Store,
    Generated,
}

/// A key as `nexus key list` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    pub name: String,
    pub level: Level,
    pub source: Source,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub approved: Vec<String>,
    pub read_only: bool,
    pub session: SessionPolicy,
    pub expires: Option<Timestamp>,
    /// An agent's key: the target it serves.
    pub target: Option<String>,
    /// A level that holds for a time in place of its own.
    pub raised: Option<Level>,
    pub raised_until: Option<Timestamp>,
}

/// What `nexus key new` asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewKey {
    pub name: String,
    pub level: Level,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub approved: Vec<String>,
    pub read_only: bool,
    pub session: SessionPolicy,
    pub expires: Option<Timestamp>,
    /// Makes it an agent's key, good only for this target's tasks.
    pub target: Option<String>,
}

/// Gathers keys and keeps the door's table current.
#[derive(Debug)]
pub struct Keyring {
    config: Config,
    store: Store,
    generated: PathBuf,
    /// What the front door looks keys up in.
    pub keys: Arc<Keys>,
    /// A level was raised for a time.
    raised: Notify,
    /// Who reads keys to put them into force.
    turn: Semaphore,
}

impl Keyring {
    pub fn new(config: Config, store: Store, data: &Path, keys: Arc<Keys>) -> Self {
        Self { config, store, generated: data.join("key"), keys, raised: Notify::new(), turn: Semaphore::new(1) }
    }

    /// Whether anybody could come in at all.
    pub async fn is_empty(&self) -> Result<bool> {
        let now = clock::now();
        Ok(!self.all().await?.iter().any(|(key, _)| key.expires.is_none_or(|expires| expires > now)))
    }

    /// Makes the key named `default` and keeps it in the data folder, 0600.
    pub fn generate(&self) -> Result<String> {
        let key = new_secret();
        private::write_new(&self.generated, &key)
            .with_context(|| format!("keeping the new key in {}", self.generated.display()))?;
        Ok(key)
    }

    /// Puts the present keys into force.
    pub async fn refresh(&self) -> Result<()> {
        // One at a time: what was read before a change must not be put into force after it.
        let _turn = self.turn.acquire().await?;
        self.keys.replace(self.all().await?.into_iter().map(|(key, _)| key).collect());
        Ok(())
    }

    pub async fn list(&self) -> Result<Vec<Listed>> {
        let listed = |(key, source): (Key, Source)| Listed {
            name: key.principal.id.to_string(),
            level: key.principal.level,
            source,
            allow: key.principal.allow.iter().map(str::to_owned).collect(),
            deny: key.principal.deny.iter().map(str::to_owned).collect(),
            approved: key.principal.approved.iter().map(str::to_owned).collect(),
            read_only: key.principal.read_only,
            session: key.principal.session,
            expires: key.expires,
            target: key.principal.serves.as_deref().map(str::to_owned),
            raised: key.principal.raised.map(|raised| raised.level),
            raised_until: key.principal.raised.map(|raised| raised.until),
        };
        Ok(self.all().await?.into_iter().map(listed).collect())
    }

    /// Makes a key, keeps its digest and gives it back: the only time it is seen.
    pub async fn make(&self, wanted: NewKey, audit: &dyn Sink) -> Result<String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        if wanted.name.is_empty() || wanted.name.len() > 64 || !wanted.name.chars().all(plain) {
            bail!("`{}` is not a key name: lower-case letters, digits, `-` and `_`, 64 at most", wanted.name);
        }
        if wanted.name == LOCAL {
            bail!("`{LOCAL}` is the name of the process behind `nexus stdio`; choose another");
        }
        if wanted.name == OPERATOR {
            bail!("`{OPERATOR}` is the name of the operator's command line; choose another");
        }
        if wanted.name == DEFAULT || self.list().await?.iter().any(|key| key.name == wanted.name) {
            bail!(
                "there is a key named `{0}` already; choose another name, or `nexus key revoke {0}` first",
                wanted.name
            );
        }
        if let Some(target) = &wanted.target
            && !self.config.agents.targets.keys().any(|known| known.as_ref() == target)
        {
            bail!("there is no target `{target}`; declare it in nexus.yaml, below agents.targets");
        }
        let secret = new_secret();
        let key = StoredKey {
            sha256: digest(&secret),
            level: wanted.level,
            allow: Patterns::parse(wanted.allow)?,
            deny: Patterns::parse(wanted.deny)?,
            approved: Patterns::parse(wanted.approved)?,
            read_only: wanted.read_only,
            session: wanted.session,
            created: clock::now(),
            expires: wanted.expires,
            target: wanted.target,
            name: wanted.name,
        };
        let row = Row::new(Event::KeyMade).detail(format!("{} ({})", key.name, key.level.as_str()));
        audit.durable(row).await.context("a key that cannot be recorded is not made")?;
        if !self.store.add_key(&key).await? {
            bail!("there is a key named `{}` already", key.name);
        }
        self.refresh().await?;
        Ok(secret)
    }

    /// Takes a key out of force, at once.
    pub async fn revoke(&self, name: &str, audit: &dyn Sink) -> Result<()> {
        let Some((_, source)) = self.all().await?.into_iter().find(|(key, _)| key.principal.id.as_str() == name) else {
            bail!("there is no key named `{name}`; `nexus key list` shows all");
        };
        match source {
            Source::Environment => bail!("`{name}` is MCP_API_KEY: change that variable and restart"),
            Source::File => {
                bail!("`{name}` stands in nexus.yaml, which this command does not write: take it out there")
            }
            Source::Store | Source::Generated => {}
        }
        audit
            .durable(Row::new(Event::KeyRevoked).detail(name))
            .await
            .context("a change that cannot be recorded is not made")?;
        match source {
            Source::Store => drop(self.store.remove_key(name).await?),
            _ => std::fs::remove_file(&self.generated)
                .with_context(|| format!("removing {}", self.generated.display()))?,
        }
        self.refresh().await
    }

    /// Changes a key's level: until then, or for good.
    pub async fn set_level(&self, name: &str, level: Level, until: Option<Timestamp>, audit: &dyn Sink) -> Result<()> {
        let Some((key, source)) = self.all().await?.into_iter().find(|(key, _)| key.principal.id.as_str() == name)
        else {
            bail!("there is no key named `{name}`; `nexus key list` shows all");
        };
        let (own, now) = (key.principal.level.as_str(), level.as_str());
        let changes = until.is_none() && level != key.principal.level;
        if changes && source != Source::Store {
            bail!(
                "`{name}` was not made with `nexus key new`: its level for good is not changed here; \
                 add `--for 30m`, or change it where it stands"
            );
        }
        let how_long = until.map_or_else(|| "for good".to_owned(), |until| format!("until {until}"));
        let row = Row::new(Event::KeyLevel).detail(format!("{name}: {own}, now {now} {how_long}"));
        audit.durable(row).await.context("a change that cannot be recorded is not made")?;
        match until {
            Some(until) => {
                let raised = RaisedLevel { name: name.to_owned(), sha256: key.digest, level, until };
                self.store.raise_level(&raised).await?;
            }
            None => {
                self.store.lower_level(name).await?;
                if changes {
                    self.store.set_level(name, level).await?;
                }
            }
        }
        self.refresh().await?;
        self.raised.notify_one();
        Ok(())
    }

    /// Several hubs share one PostgreSQL: a key that another one has revoked goes out of force here too.
    pub async fn follow_others(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.refresh().await {
                warn!("whether other hubs have changed keys could not be looked up: {error:#}");
            }
        }
    }

    /// Records when a raised level has fallen back, which it does by itself.
    pub async fn let_levels_fall(self: Arc<Self>, audit: Arc<Journal>, stop: CancellationToken) {
        loop {
            let next = match self.fallen(&*audit).await {
                Ok(next) => next,
                Err(error) => {
                    warn!("levels that were raised for a time could not be looked at: {error:#}");
                    Some(RETRY)
                }
            };
            let due = async {
                match next {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.raised.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Forgets raised levels whose time is over; tells how long it is to the next.
    async fn fallen(&self, audit: &dyn Sink) -> Result<Option<Duration>> {
        let mut next = None;
        for raised in self.store.raised_levels().await? {
            let left = raised.until.as_millisecond() - clock::now_ms();
            if let Ok(left) = u64::try_from(left)
                && left > 0
            {
                let left = Duration::from_millis(left);
                next = Some(next.map_or(left, |next: Duration| next.min(left)));
                continue;
            }
            let detail = format!("{}: no longer {}", raised.name, raised.level.as_str());
            audit.durable(Row::new(Event::KeyLevel).detail(detail)).await?;
            self.store.forget_raise(&raised).await?;
            self.refresh().await?;
        }
        Ok(next)
    }

    async fn all(&self) -> Result<Vec<(Key, Source)>> {
        let mut all = self.lasting().await?;
        for raised in self.store.raised_levels().await? {
            let key = all.iter_mut().find(|(key, _)| key.digest == raised.sha256);
            if let Some((key, _)) = key.filter(|_| raised.until > clock::now()) {
                let RaisedLevel { level, until, .. } = raised;
                Arc::make_mut(&mut key.principal).raised = Some(Raised { level, until });
            }
        }
        Ok(all)
    }

    /// The keys with the levels they have for good.
    async fn lasting(&self) -> Result<Vec<(Key, Source)>> {
        let mut all = Vec::new();
        let default = |secret: &str| {
            let digest = digest(secret);
            let id = PrincipalId::of_key(DEFAULT, &digest);
            let principal = Arc::new(Principal { id, ..Principal::new(DEFAULT, Level::Trusted) });
            Key { digest, principal, expires: None }
        };
        match &self.config.environment.api_key {
            Some(secret) => all.push((default(secret.expose()), Source::Environment)),
            // A key of that name in the file takes the place of the one that was made.
            None if self.config.keys.iter().any(|key| key.name.as_ref() == DEFAULT) => {}
            None => {
                if let Some(secret) = stored_secret(&self.generated)? {
                    all.push((default(&secret), Source::Generated));
                }
            }
        }
        for key in &self.config.keys {
            let principal = Principal {
                id: PrincipalId::of_key(key.name.as_ref(), &key.sha256.0),
                allow: key.allow.0.clone(),
                deny: key.deny.0.clone(),
                approved: key.approved.0.clone(),
                read_only: key.read_only,
                session: key.session,
                ..Principal::new(key.name.as_ref(), key.level)
            };
            let principal = serving(principal, key.target.as_ref().map(AsRef::as_ref));
            let expires = key.expires.as_ref().map(|expires| expires.0);
            all.push((Key { digest: key.sha256.0, principal: Arc::new(principal), expires }, Source::File));
        }
        for key in self.store.keys().await? {
            // The file was edited after the key was made: it wins, and the other would be in its way.
            if all.iter().any(|(known, _)| known.principal.id.as_str() == key.name) {
                continue;
            }
            let principal = Principal {
                id: PrincipalId::of_key(&key.name, &key.sha256),
                allow: key.allow,
                deny: key.deny,
                approved: key.approved,
                read_only: key.read_only,
                session: key.session,
                ..Principal::new(&key.name, key.level)
            };
            let principal = serving(principal, key.target.as_deref());
            all.push((Key { digest: key.sha256, principal: Arc::new(principal), expires: key.expires }, Source::Store));
        }
        Ok(all)
    }
}

/// An agent's key is good for its target's tasks and nothing else.
fn serving(principal: Principal, target: Option<&str>) -> Principal {
    match target {
        Some(target) => Principal { allow: AGENT_TOOLS.clone(), serves: Some(target.into()), ..principal },
        None => principal,
    }
}

/// The key that the command line uses: the environment's, or the one the hub made.
pub fn stored_key(config: &Config, data: &Path) -> Result<Option<String>> {
    match &config.environment.api_key {
        Some(secret) => Ok(Some(secret.expose().to_owned())),
        None => stored_secret(&data.join("key")),
    }
}

fn stored_secret(path: &Path) -> Result<Option<String>> {
    let text = private::read(path).with_context(|| format!("reading {}", path.display()))?;
    let Some(secret) = text.map(|text| text.trim().to_owned()) else { return Ok(None) };
    if secret.len() < 32 {
        bail!("the key in {} is too short; remove the file, and a new one is made at the next start", path.display());
    }
    redact::learn([&secret]);
    Ok(Some(secret))
}

/// 244 random bits, recognisable as ours in a log that should not have it.
fn new_secret() -> String {
    let secret = format!("nxk_{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    redact::learn([&secret]);
    secret
}
