//! The heartbeat: one request that is always open while anything runs. It keeps the claims, and hears at once when one
//! of them no longer holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::backoff::Backoff;
use super::link::{Link, PATIENCE};

/// An answer that came sooner and says nothing new: the hub ends, perhaps.
const TOO_SOON: Duration = Duration::from_millis(500);

/// Why a command is to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The hub wants it: cancelled, stopped, out of time, or somebody else has it.
    Hub(String),
    /// This worker ends.
    Worker,
}

/// Says when the work on a claim is to stop.
#[derive(Debug, Default)]
pub struct Stop {
    token: CancellationToken,
    why: Mutex<Option<Why>>,
}

impl Stop {
    /// The first reason counts.
    pub fn now(&self, why: Why) {
        self.why.lock().get_or_insert(why);
        self.token.cancel();
    }

    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }

    pub fn why(&self) -> Option<Why> {
        self.why.lock().clone()
    }
}

#[derive(Debug)]
pub struct Beat {
    target: String,
    /// How long one request stays open: several fit into a lease.
    wait: Duration,
    claims: Mutex<HashMap<String, Arc<Stop>>>,
    /// Counts the changes of `claims`.
    changed: watch::Sender<u64>,
}

/// A claim that is kept until this is dropped.
#[derive(Debug)]
pub struct Kept<'a> {
    beat: &'a Beat,
    claim: String,
    pub stop: Arc<Stop>,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.beat.claims.lock().remove(&self.claim);
        self.beat.changed.send_modify(|times| *times += 1);
    }
}

impl Beat {
    pub fn new(target: &str, lease: Duration) -> Self {
        let wait = (lease / 3).min(Duration::from_secs(25));
        Self { target: target.to_owned(), wait, claims: Mutex::default(), changed: watch::Sender::new(0) }
    }

    pub fn keep(&self, claim: &str) -> Kept<'_> {
        let stop = Arc::new(Stop::default());
        self.claims.lock().insert(claim.to_owned(), stop.clone());
        self.changed.send_modify(|times| *times += 1);
        Kept { beat: self, claim: claim.to_owned(), stop }
    }

    /// Runs until it is dropped.
    pub async fn run(&self, link: &Link) {
        let mut changed = self.changed.subscribe();
        let mut refusals = Backoff::default();
        loop {
            changed.borrow_and_update();
            let claims = self.holding();
            if claims.is_empty() {
                let _ = changed.changed().await;
                continue;
            }
            let arguments = json!({ "target": self.target, "claims": claims, "wait_seconds": self.wait.as_secs() });
            let asked = Instant::now();
            let heard = tokio::select! {
                heard = link.call("peek_tasks", &arguments, self.wait + PATIENCE) => heard,
                // What has just been claimed must be among them.
                _ = changed.changed() => continue,
            };
            match heard {
                Ok(heard) => {
                    refusals = Backoff::default();
                    if self.judge(&claims, &heard) == Change::None && asked.elapsed() < TOO_SOON {
                        sleep(TOO_SOON).await;
                    }
                }
                Err(refused) => {
                    if refusals.is_fresh() {
                        warn!("the hub does not take the heartbeat: {refused}; trying again until it does");
                    }
                    sleep(refusals.next()).await;
                }
            }
        }
    }

    /// Those that are worth keeping.
    fn holding(&self) -> Vec<String> {
        let claims = self.claims.lock();
        claims.iter().filter(|(_, stop)| stop.why().is_none()).map(|(claim, _)| claim.clone()).collect()
    }

    fn judge(&self, asked: &[String], heard: &Value) -> Change {
        let mut change = Change::None;
        for claim in asked {
            let Some(lost) = lost(claim, heard) else { continue };
            if let Some(stop) = self.claims.lock().get(claim) {
                stop.now(Why::Hub(lost));
                change = Change::Some;
            }
        }
        change
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Some,
}

/// Why a claim no longer holds, as the answer to `peek_tasks` tells. None: it does.
pub fn lost(claim: &str, heard: &Value) -> Option<String> {
    let mut running = heard["running"].as_array().into_iter().flatten();
    match running.find(|one| one["claim"] == claim) {
        Some(one) if one["holds"] == true => None,
        Some(one) => {
            let status = one["status"].as_str().unwrap_or("no longer ours");
            let reason = one["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
            Some(format!("it is {status}{reason}"))
        }
        None => Some("the hub no longer knows this claim".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_only_if_the_hub_says_so() {
        let heard = json!({ "running": [
            { "id": "t1", "claim": "a", "status": "in_progress", "holds": true },
            { "id": "t2", "claim": "b", "status": "cancelled", "reason": "stopped by t3", "holds": false },
            { "id": "t3", "claim": "c", "status": "dead", "holds": false },
        ] });
        check("a", None);
        check("b", Some("it is cancelled: stopped by t3"));
        check("c", Some("it is dead"));
        check("d", Some("the hub no longer knows this claim"));

        let beat = Beat::new("homelab", Duration::from_secs(90));
        let (kept, other) = (beat.keep("a"), beat.keep("b"));
        assert_eq!(beat.judge(&["a".to_owned(), "b".to_owned()], &heard), Change::Some);
        assert_eq!(kept.stop.why(), None);
        assert_eq!(other.stop.why(), Some(Why::Hub("it is cancelled: stopped by t3".to_owned())));
        assert_eq!(beat.holding(), ["a"], "what is lost is not asked about again");
        drop(kept);
        assert!(beat.holding().is_empty());

        #[track_caller]
        fn check(claim: &str, expected: Option<&str>) {
            let heard = json!({ "running": [
                { "id": "t1", "claim": "a", "status": "in_progress", "holds": true },
                { "id": "t2", "claim": "b", "status": "cancelled", "reason": "stopped by t3", "holds": false },
                { "id": "t3", "claim": "c", "status": "dead", "holds": false },
            ] });
            assert_eq!(lost(claim, &heard).as_deref(), expected);
        }
    }
}
