//! A program whose children die with it: `for_life COMMAND ARGUMENT…` starts the command, says the number of its process
//! on a line of its own, passes its output on, and ends with it. Each line it reads starts the command once more.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use nexus_system::process::{Start, shim};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy, stderr, stdin, stdout};

fn main() -> ExitCode {
    shim::run().unwrap_or_else(program)
}

#[tokio::main(flavor = "current_thread")]
async fn program() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let again = async {
        let mut lines = BufReader::new(stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            run(&words).await?;
        }
        std::future::pending().await
    };
    let ended = tokio::select! { ended = run(&words) => ended, ended = again => ended };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = stderr().write_all(format!("{error}\n").as_bytes()).await;
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[OsString]) -> io::Result<u8> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let start = Start::new(program).args(arguments).env([("PATH", "/usr/local/bin:/usr/bin:/bin")]);
    let mut started = start.start_for_life().await?;
    stdout().write_all(format!("{}\n", started.child.id().unwrap_or_default()).as_bytes()).await?;
    stdout().flush().await?;
    if let (Some(out), Some(err)) = (&mut started.stdout, &mut started.stderr) {
        let (mut to_out, mut to_err) = (stdout(), stderr());
        tokio::try_join!(copy(out, &mut to_out), copy(err, &mut to_err))?;
    }
    let status = started.child.wait().await?;
    started.group.release();
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
