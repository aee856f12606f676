//! The program as a child process with a clean environment.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use nexus_core::tasks::Tasks;

use super::within;

/// One run of the program.
pub struct Program {
    /// What starts it, in place of the test itself.
    launcher: Vec<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    current_dir: Option<PathBuf>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Its stdout, if it did what was asked.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }
}

impl Program {
    /// A hub that it starts takes any free port for computers, on loopback.
    pub fn new(args: &[&str]) -> Self {
        Self::bare(args).env("CC_LINK_HOST", "127.0.0.1").env("CC_LINK_PORT", "0")
    }

    /// With nothing in its environment but `PATH`.
    pub fn bare(args: &[&str]) -> Self {
        let env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let args = args.iter().map(ToString::to_string).collect();
        Self { launcher: Vec::new(), args, env, current_dir: None }
    }

    pub fn data(self, folder: &Path) -> Self {
        self.arg("--data").arg(folder.to_str().unwrap())
    }

    pub fn config(self, file: &Path) -> Self {
        self.arg("--config").arg(file.to_str().unwrap())
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn current_dir(mut self, folder: &Path) -> Self {
        self.current_dir = Some(folder.to_owned());
        self
    }

    /// Started by another program, which takes its place: the program and its arguments follow behind these.
    pub fn launched_by(mut self, launcher: &[&str]) -> Self {
        self.launcher = launcher.iter().map(ToString::to_string).collect();
        self
    }

    #[allow(clippy::disallowed_methods, reason = "the tests' one way to start a process")]
    pub fn command(&self) -> Command {
        let mut words = self.launcher.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_nexus")]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(&self.args).env_clear().envs(self.env.iter().cloned());
        if let Some(folder) = &self.current_dir {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs it to its end.
    pub async fn run(self) -> Ran {
        let output = within(&format!("nexus {}", self.args.join(" ")), self.command().output()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs it to its end with this on stdin.
    pub async fn run_with(self, input: &str) -> Ran {
        let what = format!("nexus {}", self.args.join(" "));
        let mut command = self.command();
        command.stdin(Stdio::piped());
        run_with(command, &what, input).await
    }

    /// Runs it at a terminal, typing each second text once the first is shown. All that was shown is its stdout.
    #[allow(clippy::disallowed_methods, reason = "the tests' one way to start a process")]
    pub async fn at_a_terminal(self, script: &[(&str, Option<&str>)]) -> Ran {
        let driver = format!("{}/../../tests/hostile/terminal.py", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command.args(["-B", &driver, env!("CARGO_BIN_EXE_nexus")]).args(&self.args);
        command.env_clear().envs(self.env.iter().cloned());
        if let Some(folder) = &self.current_dir {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        run_with(command, "a sitting at a terminal", &serde_json::to_string(script).unwrap()).await
    }

    /// Starts it and listens to its stderr.
    pub fn spawn_talking(&self) -> (Child, watch::Receiver<String>) {
        let mut child = self.command().spawn().unwrap();
        let talk = listen(child.stderr.take().unwrap());
        (child, talk)
    }
}

async fn run_with(mut command: Command, what: &str, input: &str) -> Ran {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that ends early does not read it all.
    let _ = within(what, stdin.write_all(input.as_bytes())).await;
    drop(stdin);
    let output = within(what, child.wait_with_output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Gathers what comes, line by line.
pub fn listen(stream: impl AsyncRead + Unpin + Send + 'static) -> watch::Receiver<String> {
    let (said, talk) = watch::channel(String::new());
    Tasks::new().spawn("stderr", async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            said.send_modify(|said| {
                said.push_str(&line);
                said.push('\n');
            });
        }
    });
    talk
}
