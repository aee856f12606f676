//! `run_command`: a line for the shell, bounded in time and output. Always a write: nobody can tell what a line does.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use nexus_core::redact;

use crate::clip::{self, Clip};
use crate::node::{Captured, End, Finished, Glance};
use crate::prelude::*;
use crate::spool::{Cursor, Owner, Spool};
use nexus_core::text::one_line;

/// Characters of a command that the operator can read before they answer; of more, the end is counted.
const SHOWN: usize = 64 * 1024;

/// Runs a command line with the shell and waits for its end.
///
/// Standard input is empty, so nothing can be asked. Exit code, stdout and stderr come back apart; a non-zero exit
/// code is a result, not an error. Output above the cap is cut in the middle and can be read on with `read_output`.
/// `[redacted]` stands in it where a secret was.
/// When the time is over, the command is killed with its whole process group. To leave something running, redirect its
/// output: `nohup server >/tmp/log 2>&1 &`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// The command line, for `/bin/sh -c` unless another shell is configured.
    cmd: CommandLine,
    /// Node to run it on; without it, the hub's own machine.
    node: Option<NodeName>,
    /// Seconds it may take, 1 to 3600; without it, 60.
    #[schemars(range(min = 1, max = 3600))]
    timeout: Option<Patience>,
}

/// Not empty, and without NUL, which no argument can hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
struct CommandLine(String);

#[derive(Debug, Error)]
#[error("the command is empty or holds a NUL")]
struct BadCommandLine;

impl TryFrom<String> for CommandLine {
    type Error = BadCommandLine;

    fn try_from(line: String) -> Result<Self, BadCommandLine> {
        if line.trim().is_empty() || line.contains('\0') { Err(BadCommandLine) } else { Ok(Self(line)) }
    }
}

/// Seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u16")]
struct Patience(u16);

#[derive(Debug, Error)]
#[error("a timeout is 1 to 3600 seconds")]
struct BadPatience;

impl Default for Patience {
    fn default() -> Self {
        Self(60)
    }
}

impl TryFrom<u16> for Patience {
    type Error = BadPatience;

    fn try_from(seconds: u16) -> Result<Self, BadPatience> {
        if (1..=3600).contains(&seconds) { Ok(Self(seconds)) } else { Err(BadPatience) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Ran {
    /// Null when a signal ended it.
    exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// It took too long and was killed.
    timed_out: bool,
    stdout: String,
    stderr: String,
    duration_ms: u64,
    /// Present when stdout was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_cut: Option<Cut>,
    /// Present when stderr was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_cut: Option<Cut>,
    /// What else you should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// What is missing in the middle of an output.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Cut {
    left_out: usize,
    /// For `read_output`.
    cursor: Cursor,
}

impl Tool<Toolbox> for RunCommand {
    const NAME: &'static str = "run_command";
    const ACCESS: Access = Access::Write;
    type Reply = Ran;

    fn summary(&self) -> String {
        let line = one_line(&self.cmd.0);
        let (shown, rest) = clip::split(&line, SHOWN);
        let more = match rest.chars().count() {
            0 => String::new(),
            more => format!(" … and {more} characters more"),
        };
        format!("run on {}: {shown}{more}", super::on(self.node.as_ref()))
    }

    fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    async fn run(self, env: &Toolbox, cx: &CallCx) -> ToolResult<Ran> {
        // Shells read options after `-c`, too; a blank in front makes it a line again.
        let line = if self.cmd.0.starts_with(['-', '+']) { format!(" {}", self.cmd.0) } else { self.cmd.0 };
        let argv = Argv::new(&env.settings.shell).arg("-c").arg(line);
        let patience = self.timeout.unwrap_or_default();
        let limits = Limits::of(cx).time(Duration::from_secs(patience.0.into()));
        let node = env.node(self.node.as_ref())?;
        let finished = node.exec_watched(&argv, limits, &mut |glance| cx.progress(report(&glance))).await?;

        let (spool, owner, cap) = (env.spool.clone(), Owner::of(cx), env.settings.output_cap);
        let hide = if env.settings.unredacted.matches(Self::NAME) { redact::own_values } else { redact::text };
        // Decoding and cleaning megabytes is no work for a thread that others wait for.
        let told = tokio::task::spawn_blocking(move || tell(finished, patience, &spool, &owner, cap, hide));
        told.await.map_err(ToolError::internal)
    }
}

fn report(glance: &Glance<'_>) -> Progress {
    let seconds = glance.elapsed.as_secs();
    let message = match glance.last_line {
        "" => format!("{seconds} s"),
        line => format!("{seconds} s: {line}"),
    };
    Progress { done: glance.elapsed.as_secs_f64(), total: None, message: Some(message) }
}

fn tell(
    finished: Finished,
    patience: Patience,
    spool: &Spool,
    owner: &Owner,
    cap: usize,
    hide: fn(&str) -> Cow<'_, str>,
) -> Ran {
    let (exit_code, signal) = match finished.end {
        End::Exited(code) => (Some(code), None),
        End::Signalled(signal) => (None, Some(signal)),
        End::Unknown => (None, None),
    };
    let note = note(&finished, patience);
    let (timed_out, elapsed) = (finished.timed_out, finished.elapsed);
    // Before it is cut: the half of a secret looks like nothing.
    let shown = |output: Captured| {
        let text = output.into_text();
        match hide(&text) {
            Cow::Owned(hidden) => hidden,
            Cow::Borrowed(_) => text,
        }
    };
    let (stdout, stderr) = (shown(finished.stdout), shown(finished.stderr));
    let (out_share, err_share) = shares(stdout.chars().count(), stderr.chars().count(), cap);
    let (stdout, stdout_cut) = fit(stdout, out_share, spool, owner);
    let (stderr, stderr_cut) = fit(stderr, err_share, spool, owner);
    let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    Ran { exit_code, signal, timed_out, stdout, stderr, duration_ms, stdout_cut, stderr_cut, note }
}

fn note(finished: &Finished, patience: Patience) -> Option<String> {
    if finished.timed_out {
        let killed = "the command was killed with its whole process group; what it did until then stays done";
        return Some(format!("not done after {} s: {killed}", patience.0));
    }
    let left = "something it started still runs and holds its output open; what that writes from here on is lost, and may \
                end it. Redirect the output of what should stay running";
    finished.left_running.then(|| left.to_owned())
}

/// Shares the cap between two outputs: half each, and what one does not need the other gets.
fn shares(out: usize, err: usize, cap: usize) -> (usize, usize) {
    let half = cap / 2;
    let out_share = out.min(half.max(cap.saturating_sub(err)));
    (out_share, err.min(cap - out_share))
}

/// The output, cut if it has to be; what was left out is kept for `read_output`.
fn fit(output: String, share: usize, spool: &Spool, owner: &Owner) -> (String, Option<Cut>) {
    let Some(Clip { head, middle, tail }) = clip::middle(&output, share) else { return (output, None) };
    let left_out = middle.chars().count();
    let cursor = spool.keep(owner.clone(), middle, Instant::now());
    let note = format!("… {left_out} characters left out, read them with read_output cursor={cursor} …");
    (format!("{head}\n{note}\n{tail}"), Some(Cut { left_out, cursor }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(args: serde_json::Value) -> Result<RunCommand, serde_json::Error> {
        serde_json::from_value(args)
    }

    #[test]
    fn the_human_sees_the_whole_line() {
        let summary = |cmd: &str| parse(json!({ "cmd": cmd })).unwrap().summary();
        assert_eq!(summary("ls\nrm -r x"), "run on local: ls⏎rm -r x");
        assert_eq!(summary("echo \u{1b}[2K\u{202e}"), "run on local: echo \\u{1b}[2K\\u{202e}");
        let long = "x".repeat(SHOWN);
        assert_eq!(summary(&long), format!("run on local: {long}"));
        assert_eq!(summary(&format!("{long}yz")), format!("run on local: {long} … and 2 characters more"));
    }

    #[test]
    fn bad_arguments_are_refused_before_anything_runs() {
        assert!(parse(json!({ "cmd": "true", "timeout": 3600 })).is_ok());
        for bad in [
            json!({ "cmd": "" }),
            json!({ "cmd": " \n" }),
            json!({ "cmd": "a\0b" }),
            json!({ "cmd": "true", "timeout": 0 }),
            json!({ "cmd": "true", "timeout": 3601 }),
            json!({ "cmd": "true", "timeout": -1 }),
            json!({ "cmd": "true", "shell": "zsh" }),
            json!({ "cmd": "true", "node": "-oProxyCommand=x" }),
        ] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_shares_fit_the_cap_and_none_is_wasted(out in 0..300usize, err in 0..300usize, cap in 0..200usize) {
            let (out_share, err_share) = shares(out, err, cap);
            prop_assert!(out_share + err_share <= cap);
            prop_assert!(out_share <= out && err_share <= err);
            prop_assert_eq!(out_share + err_share, cap.min(out + err));
        }
    }
}
