//! Starts a program. The only place that does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::fs::{Access, access};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::group::Group;
use super::guard;
use super::mark::Mark;
use super::shim::{START, THIS_PROGRAM};

/// Where programs are looked for when their variables do not say.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What to start. No shell is involved, and nothing is inherited but the working folder where none is given.
#[derive(Clone)]
pub struct Start {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// All of its variables.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
    pub stdin: Pipe,
    pub stdout: Pipe,
    pub stderr: Pipe,
    mark: Option<Mark>,
}

/// What one of the three streams is tied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    Piped,
    Null,
}

/// A program that runs. The group stands first: it is dropped, and with it killed, before the child is given up.
#[derive(Debug)]
pub struct Started {
    pub group: Group,
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl Start {
    /// Nothing to read, everything it says is wanted.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: Pipe::Null,
            stdout: Pipe::Piped,
            stderr: Pipe::Piped,
            mark: None,
        }
    }

    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn env<N: Into<OsString>, V: Into<OsString>>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self {
        self.env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    #[must_use]
    pub fn cwd(self, cwd: Option<PathBuf>) -> Self {
        Self { cwd, ..self }
    }

    #[must_use]
    pub fn stdin(self, stdin: Pipe) -> Self {
        Self { stdin, ..self }
    }

    /// With it ends also what it has started in sessions of their own, at the price of a look at all processes.
    #[must_use]
    pub fn marked(self) -> Self {
        Self { mark: Some(Mark::new()), ..self }
    }

    /// Starts it, to be ended by whoever asked for it.
    pub fn start(&self) -> io::Result<Started> {
        let child = self.command(&self.program, &[]).spawn()?;
        let group = Group::led_by(child.id()).marked(self.mark.clone());
        Ok(Started::new(child, group))
    }

    /// Starts it so that it does not outlive this program, however that ends; see [`super::shim`]. A program that is not
    /// there is told at once; one that the kernel does not take ends with code 127 and its reason on stderr.
    pub async fn start_for_life(&self) -> io::Result<Started> {
        self.find()?;
        if !guard::is_installed() {
            return self.start();
        }
        let parent = std::process::id().to_string();
        let words = [OsStr::new(START), OsStr::new(&parent), OsStr::new("--"), &self.program];
        guard::start(self.command(OsStr::new(THIS_PROGRAM), &words), self.mark.clone()).await
    }

    #[allow(clippy::disallowed_methods, reason = "this is the shim")]
    fn command(&self, program: &OsStr, ahead: &[&OsStr]) -> Command {
        let mut command = Command::new(program);
        command
            .args(ahead)
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(self.mark.iter().map(Mark::variable))
            .stdin(Stdio::from(self.stdin))
            .stdout(Stdio::from(self.stdout))
            .stderr(Stdio::from(self.stderr))
            .process_group(0);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }

    /// The file that will be run: as the C library looks for it, in the program's own PATH.
    pub fn find(&self) -> io::Result<PathBuf> {
        let cwd = self.cwd.as_deref().unwrap_or(Path::new(""));
        if self.cwd.is_some() && !cwd.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no folder {}", cwd.display())));
        }
        if self.program.as_encoded_bytes().contains(&b'/') {
            return runnable(cwd.join(&self.program));
        }
        let path = self.env.iter().rev().find(|(name, _)| name == "PATH");
        let path = path.map_or(OsStr::new(DEFAULT_PATH), |(_, path)| path);
        let mut found = Err(io::Error::new(io::ErrorKind::NotFound, "it is not on its PATH"));
        for folder in std::env::split_paths(path) {
            match runnable(cwd.join(folder).join(&self.program)) {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found = Err(error),
                Err(_) => {}
            }
        }
        found
    }
}

/// Without arguments and values of variables, which may be secret.
impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("program", &self.program).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

fn runnable(file: PathBuf) -> io::Result<PathBuf> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is no file", file.display())));
    }
    match access(&file, Access::EXEC_OK) {
        Ok(()) => Ok(file),
        Err(_) => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not executable", file.display()))),
    }
}

impl From<Pipe> for Stdio {
    fn from(pipe: Pipe) -> Self {
        match pipe {
            Pipe::Piped => Stdio::piped(),
            Pipe::Null => Stdio::null(),
        }
    }
}

impl Started {
    pub(super) fn new(mut child: Child, group: Group) -> Self {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Self { group, child, stdin, stdout, stderr }
    }
}
