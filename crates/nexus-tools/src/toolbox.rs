//! What all tools share: the settings, the nodes, the secret paths and the output kept for `read_output`.

use std::fmt;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nexus_core::approval::Mode;
use nexus_core::name::NodeName;
use nexus_core::principal::Patterns;
use nexus_core::{ToolError, ToolResult};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::node::{Environment, Node};
use crate::secret::Secrets;
use crate::spool::Spool;

/// File operations at once. A dead network mount holds its threads for good; it must not hold all of them.
const FILE_WORKERS: usize = 32;

/// How long a file operation waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// What the program gives the tools. They read no environment and no configuration themselves.
#[derive(Clone)]
pub struct Settings {
    /// The shell behind `run_command`.
    pub shell: PathBuf,
    /// Characters of output that one reply carries.
    pub output_cap: usize,
    /// Globs and paths that `read_file` refuses besides its own list.
    pub secret_paths: Vec<String>,
    /// Files the hub takes a key or a password from: refused under every name they have, whenever they are made.
    pub secret_files: Vec<PathBuf>,
    /// Variables whose value `get_env` tells.
    pub readable_env: Vec<String>,
    /// The hub's environment as it was at the start.
    pub env: Vec<(String, String)>,
    pub version: &'static str,
    /// What `~` means.
    pub home: Option<PathBuf>,
    /// The hub's own folder: its key and its store are secret paths too.
    pub data_dir: Option<PathBuf>,
    /// The hub refuses every write, whatever the key says.
    pub read_only: bool,
    /// How a human is asked about a write.
    pub approval: Mode,
    /// Tools whose output the model sees as it is, but for the hub's own secrets.
    pub unredacted: Patterns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shell: "/bin/sh".into(),
            output_cap: 50_000,
            secret_paths: Vec::new(),
            secret_files: Vec::new(),
            readable_env: ["PATH", "LANG", "TZ"].map(str::to_owned).to_vec(),
            env: Vec::new(),
            version: env!("CARGO_PKG_VERSION"),
            home: None,
            data_dir: None,
            read_only: false,
            approval: Mode::Ask,
            unredacted: Patterns::default(),
        }
    }
}

impl fmt::Debug for Settings {
    /// Without the environment: it holds the hub's keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("shell", &self.shell).field("version", &self.version).finish_non_exhaustive()
    }
}

/// The environment of all built-in tools.
#[derive(Debug)]
pub struct Toolbox {
    pub settings: Settings,
    pub secrets: Arc<Secrets>,
    pub spool: Arc<Spool>,
    environment: Arc<Environment>,
    file_turns: Arc<Semaphore>,
}

#[derive(Debug, Error)]
#[error("there is no node `{0}`")]
struct UnknownNode(NodeName);

#[derive(Debug, Error)]
#[error("{FILE_WORKERS} file operations are still waiting for their disk")]
struct DisksStuck;

impl Toolbox {
    pub fn new(settings: Settings) -> Self {
        let secrets = Secrets::new(&settings);
        let environment = Environment::for_commands(&settings.env);
        Self {
            settings,
            secrets: Arc::new(secrets),
            spool: Arc::default(),
            environment: Arc::new(environment),
            file_turns: Arc::new(Semaphore::new(FILE_WORKERS)),
        }
    }

    /// The node of that name; the hub's own machine when none is named.
    pub fn node(&self, name: Option<&NodeName>) -> ToolResult<Node> {
        match name {
            Some(name) if !matches!(name.as_str(), "local" | "localhost") => {
                let hint = format!("known nodes: {}", self.node_names().join(", "));
                Err(ToolError::refused(UnknownNode(name.clone())).hint(hint))
            }
            _ => Ok(Node::Local(self.environment.clone())),
        }
    }

    pub fn node_names(&self) -> Vec<&str> {
        vec!["local"]
    }

    pub fn home(&self) -> Option<&Path> {
        self.settings.home.as_deref()
    }

    /// Does file work on a thread that may block. When the caller goes away, the work is told by its flag.
    pub async fn blocking<T, F>(&self, work: F) -> ToolResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Abandoned) -> ToolResult<T> + Send + 'static,
    {
        let turn = match timeout(TURN_PATIENCE, self.file_turns.clone().acquire_owned()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(closed)) => return Err(ToolError::internal(closed)),
            Err(_) => return Err(ToolError::failed(DisksStuck).hint("a network mount may be dead; try again later")),
        };
        let abandoned = Abandoned::default();
        let _told_when_dropped = TellOnDrop(abandoned.clone());
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&abandoned)
        });
        match working.await {
            Ok(done) => done,
            Err(ended) => match ended.try_into_panic() {
                Ok(panicked) => panic::resume_unwind(panicked),
                Err(ended) => Err(ToolError::internal(ended)),
            },
        }
    }
}

/// Whether nobody waits for the work any more.
#[derive(Clone, Debug, Default)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct TellOnDrop(Abandoned);

impl Drop for TellOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_node_is_refused_and_the_known_ones_are_named() {
        let toolbox = Toolbox::new(Settings::default());
        let name = |text: &str| NodeName::try_from(text.to_owned()).unwrap();
        assert!(toolbox.node(None).is_ok());
        assert!(toolbox.node(Some(&name("local"))).is_ok());
        assert!(toolbox.node(Some(&name("localhost"))).is_ok());
        let reply = toolbox.node(Some(&name("nas"))).unwrap_err().into_reply();
        assert_eq!(reply.text(), "there is no node `nas`\nhint: known nodes: local");
    }

    #[test]
    fn settings_do_not_print_the_environment() {
        let env = vec![("MCP_API_KEY".to_owned(), "hunter2".to_owned())];
        let settings = Settings { env, ..Settings::default() };
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert!(!format!("{:?}", Toolbox::new(settings)).contains("hunter2"));
    }

    #[tokio::test]
    async fn work_learns_that_nobody_waits_for_it() {
        let toolbox = Toolbox::new(Settings::default());
        let (started, mut has_started) = tokio::sync::mpsc::channel(1);
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let work = toolbox.blocking(move |abandoned| {
            let _ = started.blocking_send(());
            while !abandoned.is_set() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
            Ok(())
        });
        tokio::select! {
            _ = work => panic!("it waits for the flag"),
            _ = has_started.recv() => {}
        }
        timeout(Duration::from_secs(10), has_ended).await.unwrap().unwrap();
    }
}
