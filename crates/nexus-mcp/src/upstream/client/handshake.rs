//! Finding out which era a server speaks, and agreeing on it.
//!
//! A server of the new era answers `server/discover`. One of the old era answers it with some error, or not at all, or
//! gives up; then it is greeted with `initialize`. A program that is only now being downloaded says nothing for a
//! while either, so silence alone proves nothing: then both have been sent, and the first good answer counts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use nexus_core::session::Era;
use nexus_core::text::{clean, cut};

use super::line::{Asked, Line};
use super::outcome::Answer;
use super::server::Hello;
use super::waiting::Kind;
use super::{Ask, Options, ServerInfo};
use crate::upstream::config::EraChoice;
use crate::upstream::error::{ProtocolError, RequestError, TransportError, UpstreamError};
use crate::upstream::transport::Connector;
use crate::version::{LEGACY, MODERN};
use crate::wire::{UNSUPPORTED_VERSION, quoted};

/// After so much silence on `server/discover`, `initialize` is sent too.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// A program may have to be downloaded before it starts.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of a server that no longer reads is waited for: until its process is reaped and its last words are read.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Agreed = (Arc<Line>, ServerInfo);

pub(super) async fn connect(connector: &dyn Connector, options: &Options) -> Result<Agreed, UpstreamError> {
    let limit = match connector.is_shared_stream() {
        true => options.timeout.max(START_PATIENCE),
        false => options.timeout,
    };
    let greeting = Greeting { connector, options };
    match timeout(limit, greeting.agree()).await {
        Ok(agreed) => agreed,
        Err(_) => Err(ProtocolError::Late(limit).into()),
    }
}

struct Greeting<'a> {
    connector: &'a dyn Connector,
    options: &'a Options,
}

/// What the answer to `server/discover` says.
enum Probe {
    Modern(Hello),
    /// It does not know the new era, but perhaps this version of the old one.
    Legacy(&'static str),
    /// It hung up on us.
    Gone,
    Failed(UpstreamError),
}

impl Greeting<'_> {
    async fn agree(&self) -> Result<Agreed, UpstreamError> {
        match (self.options.era, self.options.remembered) {
            (EraChoice::Legacy, _) => self.legacy(self.open().await?, LEGACY[0]).await,
            (EraChoice::Modern, _) => self.modern_only().await,
            (EraChoice::Auto, Some(Era::Legacy)) => match self.legacy(self.open().await?, LEGACY[0]).await {
                // It may be another program by now.
                Err(UpstreamError::Protocol(_) | UpstreamError::Transport(TransportError::Closed(_))) => {
                    self.either().await
                }
                agreed => agreed,
            },
            (EraChoice::Auto, Some(Era::Modern) | None) => self.either().await,
        }
    }

    async fn open(&self) -> Result<Arc<Line>, TransportError> {
        Line::open(self.connector, self.options).await
    }

    async fn modern_only(&self) -> Result<Agreed, UpstreamError> {
        let line = self.open().await?;
        let asked = async { discover(&line).await?.answer().await };
        let answer = once_more(&line, asked.await).await;
        let hello = Hello::parse(answer.map_err(|failed| failed.error)?.get())?;
        match hello.supported_versions.iter().flatten().any(|version| version == MODERN) {
            true => modern(line, hello),
            false => Err(ProtocolError::Version(shown(hello.supported_versions.iter().flatten())).into()),
        }
    }

    async fn either(&self) -> Result<Agreed, UpstreamError> {
        let line = self.open().await?;
        let answer = match discover(&line).await {
            Ok(mut probe) => match timeout(PROBE_PATIENCE, probe.answer()).await {
                Ok(answer) => answer,
                Err(_) => return self.both(line, probe).await,
            },
            // Gone before it could be asked: then the asking is not the reason.
            Err(RequestError { error: error @ UpstreamError::Transport(TransportError::Closed(_)), .. }) => {
                return Err(error);
            }
            Err(failed) => Err(failed),
        };
        match judge(once_more(&line, answer).await) {
            Probe::Modern(hello) => modern(line, hello),
            Probe::Legacy(version) => self.legacy(line, version).await,
            Probe::Gone => self.again_in_the_old_way(line).await,
            Probe::Failed(error) => Err(error),
        }
    }

    /// Neither yes nor no came: asks in the old way too, and takes what is answered first.
    async fn both(&self, line: Arc<Line>, mut probe: Asked) -> Result<Agreed, UpstreamError> {
        let mut hello = initialize(&line, LEGACY[0], self.options).await?;
        let mut refused = None;
        loop {
            tokio::select! {
                // A server that was slow to start answers both at once: the new era goes first.
                biased;
                answer = probe.answer() => match judge(answer) {
                    Probe::Modern(hello) => return modern(line, hello),
                    Probe::Gone => return self.again_in_the_old_way(line).await,
                    Probe::Legacy(_) | Probe::Failed(_) => match refused {
                        Some(error) => return Err(error),
                        None => return self.greeted(line, hello.answer().await).await,
                    }
                },
                answer = hello.answer(), if refused.is_none() => match answer {
                    Err(RequestError { error: UpstreamError::Protocol(error), .. }) => refused = Some(error.into()),
                    Err(RequestError { error: UpstreamError::Transport(TransportError::Closed(_)), .. }) => {
                        return self.again_in_the_old_way(line).await;
                    }
                    answer => return self.greeted(line, answer).await,
                },
            }
        }
    }

    /// Some servers end when they are asked something before `initialize`.
    async fn again_in_the_old_way(&self, line: Arc<Line>) -> Result<Agreed, UpstreamError> {
        // Two processes of the same server could be in each other's way.
        line.transport.close().await;
        drop(line);
        self.legacy(self.open().await?, LEGACY[0]).await
    }

    async fn legacy(&self, line: Arc<Line>, version: &'static str) -> Result<Agreed, UpstreamError> {
        let mut answer = initialize(&line, version, self.options).await?.answer().await;
        if let Err(RequestError { error: UpstreamError::Protocol(ProtocolError::Rpc { data: Some(data), .. }), .. }) =
            &answer
            && let Some(common) = LEGACY.into_iter().find(|known| *known != version && lists(data, known))
        {
            answer = initialize(&line, common, self.options).await?.answer().await;
        }
        self.greeted(line, answer).await
    }

    /// What became of `initialize`.
    async fn greeted(&self, line: Arc<Line>, answer: Answer) -> Result<Agreed, UpstreamError> {
        let hello = Hello::parse(answer.map_err(|failed| failed.error)?.get())?;
        let said = hello.protocol_version.as_deref().unwrap_or_default();
        let Some(version) = LEGACY.into_iter().find(|known| *known == said) else {
            return Err(ProtocolError::Version(shown([said])).into());
        };
        let info = hello.into_info(Era::Legacy, version)?;
        let _ = line.desk.era.set(Era::Legacy);
        line.transport.agreed(Era::Legacy, version);
        match line.notify("notifications/initialized", "{}").await {
            Ok(()) => Ok((line, info)),
            // That it no longer reads is noticed before its end is; why it ended says more.
            Err(error @ TransportError::Closed(_)) => {
                let ended = timeout(LAST_WORDS, line.desk.closed()).await;
                Err(ended.unwrap_or(error).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn modern(line: Arc<Line>, hello: Hello) -> Result<Agreed, UpstreamError> {
    let info = hello.into_info(Era::Modern, MODERN)?;
    let _ = line.desk.era.set(Era::Modern);
    line.transport.agreed(Era::Modern, MODERN);
    Ok((line, info))
}

async fn discover(line: &Arc<Line>) -> Result<Asked, RequestError> {
    line.start(Ask::new("server/discover"), Kind::Once, Era::Modern).await
}

/// A server may refuse the very version that it lists (of several behind one address, one is older): it is asked again.
async fn once_more(line: &Arc<Line>, answer: Answer) -> Answer {
    match &answer {
        Err(RequestError {
            error: UpstreamError::Protocol(ProtocolError::Rpc { code, data: Some(data), .. }), ..
        }) if *code == i64::from(UNSUPPORTED_VERSION) && lists(data, MODERN) => discover(line).await?.answer().await,
        _ => answer,
    }
}

async fn initialize(line: &Arc<Line>, version: &str, options: &Options) -> Result<Asked, UpstreamError> {
    let ask = Ask::new("initialize").with(format!(
        r#""protocolVersion":"{version}","capabilities":{},"clientInfo":{{"name":{},"version":{}}}"#,
        options.capabilities,
        quoted(&options.name),
        quoted(&options.version),
    ));
    line.start(ask, Kind::Once, Era::Legacy).await.map_err(|failed| failed.error)
}

fn judge(answer: Answer) -> Probe {
    let error = match answer {
        // Something that is not a greeting is an old server that answers whatever it is asked.
        Ok(result) => return Hello::parse(result.get()).map_or(Probe::Legacy(LEGACY[0]), offered),
        Err(failed) => failed.error,
    };
    match error {
        UpstreamError::Protocol(ProtocolError::Rpc { code, data: Some(data), .. })
            if code == i64::from(UNSUPPORTED_VERSION) && data["supported"].is_array() =>
        {
            match LEGACY.into_iter().find(|known| lists(&data, known)) {
                Some(version) => Probe::Legacy(version),
                None => {
                    let versions = data["supported"].as_array().into_iter().flatten();
                    let versions = versions.filter_map(|version| version.as_str());
                    Probe::Failed(ProtocolError::Version(shown(versions)).into())
                }
            }
        }
        // Which error an old server gives, nobody can know.
        UpstreamError::Protocol(_) => Probe::Legacy(LEGACY[0]),
        UpstreamError::Transport(TransportError::Closed(_)) => Probe::Gone,
        UpstreamError::Transport(
            TransportError::Http { .. } | TransportError::SessionLost | TransportError::TooLarge { .. },
        ) => Probe::Legacy(LEGACY[0]),
        error @ (UpstreamError::Transport(_) | UpstreamError::Configuration(_)) => Probe::Failed(error),
    }
}

fn offered(hello: Hello) -> Probe {
    let Some(versions) = &hello.supported_versions else { return Probe::Legacy(LEGACY[0]) };
    if versions.iter().any(|version| version == MODERN) {
        return Probe::Modern(hello);
    }
    match LEGACY.into_iter().find(|known| versions.iter().any(|version| version == known)) {
        Some(version) => Probe::Legacy(version),
        None => Probe::Failed(ProtocolError::Version(shown(versions)).into()),
    }
}

/// Whether `supported` in an error's data names this version.
fn lists(data: &Value, version: &str) -> bool {
    data["supported"].as_array().is_some_and(|supported| supported.iter().any(|item| item == version))
}

/// Versions for people to read.
fn shown<S: AsRef<str>>(versions: impl IntoIterator<Item = S>) -> String {
    let some: Vec<String> =
        versions.into_iter().take(10).map(|version| cut(version.as_ref(), 40).into_owned()).collect();
    clean(&some.join(", ")).replace(['\n', '\r'], " ")
}
