//! MCP on stdin and stdout: one message a line, nothing else on stdout, the end of stdin is the end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::warn;

use nexus_core::principal::Principal;
use nexus_core::session::Session;
use nexus_core::tasks::Tasks;

use super::LARGEST_BODY;
use super::duplex::{Caller, Duplex};
use crate::exchange::OUTBOX;
use crate::server::Server;
use crate::wire::{RpcError, error_response};

/// After the end of stdin, what was asked before it may take this long to be answered.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// And this long to be written.
const LAST_LINES: Duration = Duration::from_secs(4);

/// Serves one client until its end of the pipe closes or the hub is to end.
pub async fn serve(
    server: Arc<Server>,
    tasks: Tasks,
    principal: Arc<Principal>,
    session: Arc<Session>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let stop = tasks.stopping();
    let writer = tasks.spawn("stdout", write_lines(inbox, output));
    let closing = server.closing.clone();
    let duplex = Duplex::new(server, tasks, outbox.clone());
    let caller = Caller { principal, session, keys: None };
    let mut input = BufReader::with_capacity(64 * 1024, input);
    loop {
        let line = tokio::select! {
            line = read_line(&mut input) => line?,
            () = stop.cancelled() => break,
        };
        match line {
            Line::End => break,
            Line::Text(line) if line.trim_ascii().is_empty() => {}
            Line::Text(line) => duplex.receive(&caller, &line).await,
            Line::TooLong => {
                let error = RpcError::invalid_request("the message is larger than 4 MiB");
                let _ = outbox.send(error_response(None, &error)).await;
            }
        }
    }
    // Nobody listens any more; what would listen for ever ends here.
    closing.cancel();
    if timeout(LAST_WORDS, duplex.drained()).await.is_err() {
        warn!("the client is gone; some calls did not end in time and are cancelled");
    }
    duplex.hang_up();
    drop((duplex, outbox));
    match timeout(LAST_LINES, writer).await {
        Ok(Ok(Some(written))) => written,
        _ => Ok(()),
    }
}

async fn write_lines(mut inbox: mpsc::Receiver<String>, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut lines = Vec::new();
    while inbox.recv_many(&mut lines, OUTBOX).await > 0 {
        for mut line in lines.drain(..) {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
        }
        output.flush().await?;
    }
    Ok(())
}

enum Line {
    Text(Vec<u8>),
    TooLong,
    End,
}

/// A line of bounded length. Of a longer one nothing is kept, and reading goes on behind it.
async fn read_line(input: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match (too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Text(line),
            });
        }
        let (piece, whole) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (chunk.len(), false),
        };
        if too_long || line.len() + piece > LARGEST_BODY {
            too_long = true;
            line = Vec::new();
        } else {
            line.extend_from_slice(&chunk[..piece]);
        }
        input.consume(piece);
        if whole {
            return Ok(if too_long { Line::TooLong } else { Line::Text(line) });
        }
    }
}
