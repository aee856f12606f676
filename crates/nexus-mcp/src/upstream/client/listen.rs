//! Hearing of changes in the new era: one long request, opened again whenever it ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use nexus_core::session::Era;
use nexus_core::tasks::Tasks;

use super::line::Line;
use super::outcome::failed;
use super::waiting::Kind;
use super::{Ask, Changed, ServerInfo};
use crate::upstream::error::{Delivery, ProtocolError, RequestError, UpstreamError};
use crate::wire::METHOD_NOT_FOUND;

/// Resources one connection can follow.
const MOST_RESOURCES: usize = 1000;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the server is to tell of. In the old era nothing: there it tells of lists anyway.
#[derive(Debug)]
pub(super) struct Subscriptions {
    resources: watch::Sender<BTreeSet<String>>,
}

impl Subscriptions {
    pub(super) fn start(line: &Arc<Line>, server: &ServerInfo, tasks: &Tasks) -> Self {
        let (resources, wanted) = watch::channel(BTreeSet::new());
        let lists: Vec<Changed> = Changed::ALL.into_iter().filter(|what| server.tells_of(*what)).collect();
        let follows = server.capabilities["resources"]["subscribe"] == true;
        if server.era == Era::Modern && (follows || !lists.is_empty()) {
            let over = line.desk.over.clone();
            let listening = listen(line.clone(), lists, wanted);
            tasks.spawn("subscriptions of an upstream", async move {
                tokio::select! {
                    () = listening => {}
                    () = over.cancelled() => {}
                }
            });
        }
        Self { resources }
    }

    pub(super) fn add(&self, uri: &str) -> Result<(), RequestError> {
        let mut fits = true;
        self.resources.send_if_modified(|resources| {
            fits = resources.len() < MOST_RESOURCES || resources.contains(uri);
            fits && resources.insert(uri.to_owned())
        });
        let too_many = ProtocolError::TooMany { what: "subscriptions", limit: MOST_RESOURCES };
        if fits { Ok(()) } else { Err(failed(too_many, Delivery::NotSent)) }
    }

    pub(super) fn remove(&self, uri: &str) {
        self.resources.send_if_modified(|resources| resources.remove(uri));
    }
}

/// How one stretch of listening ended.
enum Ended {
    /// Something else is wanted now.
    Changed,
    /// The server ended it after it had accepted it.
    Accepted,
    Refused,
    /// The server has no such thing, and never will.
    Unknown,
}

/// Runs until the server says that it cannot.
async fn listen(line: Arc<Line>, lists: Vec<Changed>, mut wanted: watch::Receiver<BTreeSet<String>>) {
    let mut pause = FIRST_PAUSE;
    let mut missed = false;
    loop {
        let resources = wanted.borrow_and_update().clone();
        if lists.is_empty() && resources.is_empty() {
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        }
        line.desk.subscribed.store(!resources.is_empty(), Ordering::Relaxed);
        let ended = stretch(&line, &lists, &resources, missed, &mut wanted).await;
        missed = true;
        match ended {
            Ended::Changed => continue,
            Ended::Unknown => return,
            Ended::Accepted => pause = FIRST_PAUSE,
            Ended::Refused => {}
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

async fn stretch(
    line: &Arc<Line>,
    lists: &[Changed],
    resources: &BTreeSet<String>,
    missed: bool,
    wanted: &mut watch::Receiver<BTreeSet<String>>,
) -> Ended {
    let accepted = CancellationToken::new();
    let ask = Ask::new("subscriptions/listen").with(format!(r#""notifications":{}"#, filter(lists, resources)));
    let mut asked = match line.start(ask, Kind::Lasting(accepted.clone()), Era::Modern).await {
        Ok(asked) => asked,
        Err(_) => return Ended::Refused,
    };
    let mut told = !missed;
    loop {
        tokio::select! {
            answer = asked.answer() => {
                let unknown = matches!(&answer, Err(RequestError {
                    error: UpstreamError::Protocol(ProtocolError::Rpc { code, .. }), ..
                }) if *code == i64::from(METHOD_NOT_FOUND));
                debug!(accepted = accepted.is_cancelled(), unknown, "an upstream's subscription has ended");
                return match accepted.is_cancelled() {
                    true => Ended::Accepted,
                    false if unknown => Ended::Unknown,
                    false => Ended::Refused,
                };
            }
            // What changed while nobody listened was not heard.
            () = accepted.cancelled(), if !told => {
                told = true;
                lists.iter().for_each(|what| line.desk.host.changed(*what));
            }
            changed = wanted.changed() => {
                if changed.is_ok() {
                    return Ended::Changed;
                }
                // The client is gone; the connection will be over in a moment.
                line.desk.closed().await;
            }
        }
    }
}

fn filter(lists: &[Changed], resources: &BTreeSet<String>) -> serde_json::Value {
    let mut filter = json!({});
    for what in lists {
        filter[format!("{}ListChanged", what.as_str())] = true.into();
    }
    if !resources.is_empty() {
        filter["resourceSubscriptions"] = json!(resources);
    }
    filter
}
