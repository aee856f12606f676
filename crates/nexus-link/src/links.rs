//! What the tools use: who is linked, and asking them. The links may be this process's own, or those of the process
//! that holds the data folder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use nexus_core::ToolError;
use nexus_core::audit::Sink;
use nexus_core::tasks::Tasks;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::computer::{Capability, Wanted};
use crate::frame::LARGEST_OUT;
use crate::listener::{self, Door};
use crate::protocol::Template;
use crate::record::Record;
use crate::registry::{Counts, Registry, Seen, Target};
use crate::round::{self, Outcome, Question};

/// Names that an error lists.
const MOST_NAMES: usize = 10;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a computer has to answer a ping.
    pub patience: Duration,
    /// Files that the process may have open; every link is one.
    pub files: u64,
}

/// Computers that can be linked at once, if there are files enough.
const MOST_LINKS: u64 = 20_000;
/// Files that are not for links: the rest of the hub has work to do as well.
const OTHER_FILES: u64 = 512;

impl Settings {
    /// How many computers may be linked. A quarter of the files is left for those who have not said hello.
    fn most_links(&self) -> usize {
        let room = self.files.saturating_sub(OTHER_FILES) / 4 * 3;
        usize::try_from(room.min(MOST_LINKS)).unwrap_or_default().max(1)
    }
}

/// Where the links are.
#[derive(Clone)]
pub enum Standing {
    /// Nowhere, and why.
    Closed(String),
    /// Here.
    Listening,
    /// In the process that holds the data folder.
    Elsewhere(Arc<dyn Holder>),
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Closed(why) => f.debug_tuple("Closed").field(why).finish(),
            Standing::Listening => f.write_str("Listening"),
            Standing::Elsewhere(_) => f.write_str("Elsewhere"),
        }
    }
}

/// The process that has the links.
pub trait Holder: Send + Sync {
    fn computers(&self) -> BoxFuture<'_, Result<Vec<Seen>, LinkError>>;
    fn ask(&self, whom: Vec<Target>, question: Question) -> BoxFuture<'_, Result<Vec<Outcome>, LinkError>>;
    fn stop(&self, patience: Duration) -> BoxFuture<'_, Result<Vec<(Seen, Outcome)>, LinkError>>;
}

#[derive(Debug, Error)]
pub enum LinkError {
    #[error("no computers can be reached: {0}")]
    Closed(String),
    #[error("no answer of the process that has the links: {0}")]
    Elsewhere(String),
    #[error("no computer `{0}` is linked")]
    Nobody(String),
    #[error("`{wanted}` could be any of {names}")]
    Ambiguous { wanted: String, names: String },
    #[error("computer {name} cannot do that: its client does not offer `{}`", .capability.as_str())]
    Cannot { name: String, capability: Capability },
    #[error("that is too long to send: {bytes} bytes as ASCII JSON, and a frame holds {LARGEST_OUT}")]
    TooLong { bytes: usize },
    #[error("computer {name} refused; the computer said: {words}")]
    Refused { name: String, words: String },
    #[error("computer {name} answered with something else than what was asked for")]
    Odd { name: String, unsure: bool },
    #[error("no answer of computer {name}: {why}")]
    Lost { name: String, why: &'static str, unsure: bool },
    #[error("the caller no longer waits for it")]
    Unwanted,
}

impl From<LinkError> for ToolError {
    fn from(error: LinkError) -> Self {
        match &error {
            LinkError::Closed(_) => Self::failed(error),
            LinkError::Elsewhere(_) => {
                Self::failed(error).hint("if something was to be changed, perhaps it was; look before you try again")
            }
            LinkError::Nobody(_) => Self::refused(error).hint("`list_computers` shows those that are linked"),
            LinkError::Ambiguous { .. } => Self::refused(error).hint("name the one you mean just so"),
            LinkError::Cannot { .. } => {
                let install = "install the hub's own client: at that computer, `wget run http://HUB:PORT/install.lua`, with \
                               the port that computers call (3001, unless the operator chose another)";
                Self::refused(error).hint(install)
            }
            LinkError::TooLong { .. } => Self::refused(error).hint("send less, or in parts"),
            LinkError::Lost { unsure: true, .. } | LinkError::Odd { unsure: true, .. } => Self::failed(error)
                .hint("perhaps it was done all the same; `list_computers` tells whether the computer still answers"),
            LinkError::Refused { .. } | LinkError::Lost { .. } | LinkError::Odd { .. } | LinkError::Unwanted => {
                Self::failed(error)
            }
        }
    }
}

/// All linked computers.
#[derive(Debug)]
pub struct Links {
    settings: Settings,
    registry: Arc<Registry>,
    standing: RwLock<Standing>,
}

impl Links {
    /// Nobody can link yet: [`Links::listen`] lets them in, [`Links::stand`] says where they are instead.
    pub fn new(settings: Settings, audit: Arc<dyn Sink>) -> Arc<Self> {
        let registry = Arc::new(Registry::new(Record::new(audit), settings.most_links()));
        let standing = RwLock::new(Standing::Closed("the hub is still starting".to_owned()));
        Arc::new(Self { settings, registry, standing })
    }

    pub fn stand(&self, standing: Standing) {
        *self.standing.write() = standing;
    }

    pub fn standing(&self) -> Standing {
        self.standing.read().clone()
    }

    /// How long a computer has to answer a ping.
    pub fn patience(&self) -> Duration {
        self.settings.patience
    }

    pub fn counts(&self) -> Counts {
        self.registry.counts()
    }

    /// Lets computers in until the hub ends or `over` is cancelled; comes back when all of them are sent away.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, door: Door, tasks: Tasks, over: CancellationToken) {
        self.stand(Standing::Listening);
        listener::serve(listener, door, self.registry.clone(), &tasks, over).await;
        // Whoever follows as the holder may be named already.
        let mut standing = self.standing.write();
        if matches!(*standing, Standing::Listening) {
            *standing = Standing::Closed("the listener has ended".to_owned());
        }
    }

    /// Who is linked, by number and then by world.
    pub async fn computers(&self) -> Result<Vec<Seen>, LinkError> {
        match self.standing() {
            Standing::Closed(why) => Err(LinkError::Closed(why)),
            Standing::Listening => Ok(self.registry.all()),
            Standing::Elsewhere(holder) => holder.computers().await,
        }
    }

    /// The one that is wanted, if it can do what it is wanted for.
    pub async fn one(&self, wanted: &Wanted, can: Capability) -> Result<Seen, LinkError> {
        let mut found: Vec<Seen> = match self.standing() {
            Standing::Listening => self.registry.find(wanted),
            _ => self.computers().await?.into_iter().filter(|seen| wanted.means(&seen.computer)).collect(),
        };
        let seen = match found.len() {
            0 => return Err(LinkError::Nobody(wanted.to_string())),
            1 => found.swap_remove(0),
            _ => {
                let mut names: Vec<String> =
                    found.iter().take(MOST_NAMES).map(|seen| format!("`{}`", seen.computer.address)).collect();
                if found.len() > MOST_NAMES {
                    names.push("others".to_owned());
                }
                return Err(LinkError::Ambiguous { wanted: wanted.to_string(), names: names.join(", ") });
            }
        };
        match seen.computer.can(can) {
            true => Ok(seen),
            false => Err(LinkError::Cannot { name: seen.computer.name(), capability: can }),
        }
    }

    /// Asks them all at once; the outcomes stand in the order of `whom`. Whoever drops this takes the question back.
    pub async fn ask(&self, whom: Vec<Target>, question: Question) -> Result<Vec<Outcome>, LinkError> {
        match self.standing() {
            Standing::Closed(why) => Err(LinkError::Closed(why)),
            Standing::Listening => {
                let template = Template::new(&question.method, question.params.as_ref());
                if !template.fits() {
                    return Err(LinkError::TooLong { bytes: template.length() });
                }
                let first = self.registry.ids(whom.len());
                Ok(round::ask(self.registry.aim(whom), &template, &question, first).await)
            }
            Standing::Elsewhere(holder) => holder.ask(whom, question).await,
        }
    }

    /// Asks one, and reads its answer.
    pub async fn ask_one<T: DeserializeOwned>(&self, seen: &Seen, question: Question) -> Result<T, LinkError> {
        let changes = question.is_work();
        let outcome = self.ask(vec![seen.target], question).await?.pop().unwrap_or(Outcome::Gone);
        let name = || seen.computer.name();
        match outcome {
            Outcome::Answer(answer) => serde_json::from_str(answer.get())
                // Without the reason: it may quote the computer in the hub's voice.
                .map_err(|_| LinkError::Odd { name: name(), unsure: changes }),
            Outcome::Refused(words) if words.is_empty() => {
                Err(LinkError::Lost { name: name(), why: "it refused, and did not say why", unsure: false })
            }
            Outcome::Refused(words) => Err(LinkError::Refused { name: name(), words }),
            lost => {
                let unsure = changes && !matches!(lost, Outcome::Busy);
                Err(LinkError::Lost { name: name(), why: lost.told(), unsure })
            }
        }
    }

    /// Stops them all at once: work that waits for an answer ends, chains of work end, and every computer that can is
    /// told to end what it is doing. What each of those said.
    pub async fn stop(&self, patience: Duration) -> Result<Vec<(Seen, Outcome)>, LinkError> {
        match self.standing() {
            Standing::Closed(why) => Err(LinkError::Closed(why)),
            Standing::Elsewhere(holder) => holder.stop(patience).await,
            Standing::Listening => {
                for link in self.registry.links() {
                    link.stop();
                }
                let mut able = self.registry.all();
                able.retain(|seen| seen.computer.can(Capability::Stop));
                let whom = able.iter().map(|seen| seen.target).collect();
                let said = self.ask(whom, Question::new("stop", patience).largest(1024)).await?;
                Ok(able.into_iter().zip(said).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_links_than_files_for_them() {
        let most = |files| Settings { patience: Duration::ZERO, files }.most_links();
        assert_eq!(most(u64::MAX), 20_000);
        assert_eq!(most(20_000), 14_616);
        assert_eq!(most(1024), 384);
        assert_eq!(most(100), 1);
    }
}
