//! What is started for life does not outlive its program. Uses `examples/for_life.rs`, which cargo builds with the tests.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests start the program themselves, and look")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    fn start(words: &[&str]) -> Self {
        let mut place = std::env::current_exe().unwrap();
        place.pop();
        let program: PathBuf = place.with_file_name("examples").join("for_life");
        let command = &mut Command::new(program);
        let mut child =
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn number(&mut self) -> i32 {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("no number: {line:?}"))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The guard it has started, once it has become that: a process that was just started has no name for a moment.
    fn guard(&self) -> i32 {
        until("there is no guard", || self.found_guard().is_some());
        self.found_guard().unwrap()
    }

    fn found_guard(&self) -> Option<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let all = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
        let all: Vec<i32> =
            all.flat_map(|list| list.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
        all.into_iter().find(|id| command_line(*id).contains("__guard"))
    }
}

/// Also when a test fails: its guard ends the rest.
impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command_line(process: i32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default().replace('\0', " ")
}

fn is_alive(process: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

#[track_caller]
fn until(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
}

/// A shell with a child in the background that hears nothing but SIGKILL.
const DEAF: [&str; 3] = [
    "sh",
    "-c",
    "(trap '' TERM HUP INT; while :; do sleep 1; done) & echo $!; trap '' TERM HUP INT; while :; do sleep 1; done",
];

#[test]
fn children_and_grandchildren_die_when_the_program_is_killed() {
    let mut program = Program::start(&DEAF);
    let (child, grandchild) = (program.number(), program.number());
    assert!(command_line(child).starts_with("sh -c"), "{}", command_line(child));
    assert!(is_alive(child) && is_alive(grandchild));
    program.kill();
    until("the child lives", || !is_alive(child));
    until("the grandchild lives", || !is_alive(grandchild));
}

#[test]
fn the_guard_is_not_ended_by_the_signals_that_end_a_program() {
    let mut program = Program::start(&DEAF);
    let (_, grandchild) = (program.number(), program.number());
    let guard = program.guard();
    // It begins to ignore them once it runs.
    until("the guard is not there yet", || !ignored(guard).is_empty());
    for kind in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal(guard, kind);
    }
    assert!(is_alive(guard));
    program.kill();
    until("the grandchild lives", || !is_alive(grandchild));
    until("the guard lives", || !is_alive(guard));
}

/// The signals a process handles itself, once there are any as for SIGTERM.
fn ignored(process: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
    let bits = u64::from_str_radix(&caught, 16).unwrap_or(0);
    if bits & (1 << 14) != 0 && bits & (1 << 1) != 0 && bits & 1 != 0 { caught } else { String::new() }
}

#[test]
fn a_guard_that_was_killed_is_replaced_by_one_that_knows_everything() {
    let mut program = Program::start(&DEAF);
    let (_, first) = (program.number(), program.number());
    let guard = program.guard();
    signal(guard, Signal::KILL);
    until("the guard lives", || !is_alive(guard));
    program.child.stdin.as_mut().unwrap().write_all(b"again\n").unwrap();
    let (_, second) = (program.number(), program.number());
    assert_ne!(program.guard(), guard);
    assert!(is_alive(first) && is_alive(second));
    program.kill();
    until("a grandchild lives", || !is_alive(first) && !is_alive(second));
}

#[test]
fn a_child_dies_with_its_program_even_without_a_guard() {
    let mut program = Program::start(&["sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1; done"]);
    let child = program.number();
    until("it has not become the program yet", || command_line(child).starts_with("sh -c"));
    signal(program.guard(), Signal::KILL);
    program.kill();
    until("the child lives", || !is_alive(child));
}

#[test]
fn a_program_that_ends_well_leaves_no_guard_and_its_code_is_passed_on() {
    let mut program = Program::start(&["sh", "-c", "echo $$; exec 2>/dev/null; exit 7"]);
    let (child, said) = (program.number(), program.number());
    assert_eq!(child, said);
    assert_eq!(program.child.wait().unwrap().code(), Some(7));
    until("the child is there", || !is_alive(child));
}

#[test]
fn what_the_kernel_does_not_take_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut program = Program::start(&[script.to_str().unwrap()]);
    program.number();
    // It reads to the end.
    drop(program.child.stdin.take());
    let mut said = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("could not be started: No such file or directory"), "{said}");
    assert_eq!(program.child.wait().unwrap().code(), Some(127));
}
