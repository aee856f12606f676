//! What the holder of a data folder does for the record in the background: names the writes that dead processes
//! left, and takes away what is too old or too much.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use nexus_core::audit::{CallRow, Event, Row, Sink};
use nexus_core::clock;
use nexus_core::principal::PrincipalId;
use nexus_core::provider::Origin;
use nexus_core::session::{Era, Transport};
use nexus_core::tool::Access;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use super::{Journal, alive, notes};
use crate::store::body::Kept;
use crate::store::chain::Mark;
use crate::store::position::position;
use crate::store::rows::Filter;
use crate::store::ship::LATEST_COMMIT_MS;
use crate::store::{Store, unhex};

/// Between two looks for dead processes.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Looks between two prunings.
const PRUNE_EVERY: u32 = 60;
/// Between two portions of what is deleted, for those who write.
const BREATH: Duration = Duration::from_millis(5);
/// A record that is too large is cut to this part of the limit, so that the next cut is not due at once.
const ROOM: f64 = 0.95;

/// The store may have placed a row a little before the time it says.
const MARGIN_MS: i64 = 5_000;
/// Rows that are looked through at once.
const ROWS_AT_ONCE: u32 = 2_000;

/// How long, and how much, is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub keep: Duration,
    pub max_size: u64,
}

#[derive(Debug)]
pub struct Upkeep {
    pub data: PathBuf,
    pub home: String,
    pub store: Store,
    pub journal: Arc<Journal>,
    pub retention: Retention,
    /// There is a Loki that should have every row.
    pub ships: bool,
}

impl Upkeep {
    /// Goes on until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        for look in 0.. {
            let work = async {
                if let Err(error) = self.name_abandoned().await {
                    warn!("writes of dead processes could not be looked for: {error:#}");
                }
                if look % PRUNE_EVERY == 0
                    && let Err(error) = self.prune().await
                {
                    warn!("the record was not pruned: {error:#}");
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            };
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// A process that was killed could not record how its writes ended: this does, so that each can be seen.
    pub async fn name_abandoned(&self) -> Result<()> {
        let mut chains = self.store.open_chains(&self.home).await?;
        let unwritten = alive::declared(&self.data).into_iter().filter(|chain| !chains.contains(chain));
        // A process that was killed before its first row has no chain in the store, only a file.
        chains.extend(unwritten.collect::<Vec<_>>());
        for chain in chains {
            if alive::is_alive(&self.data, &chain) {
                continue;
            }
            self.name_noted(&chain).await?;
            let unended = self.store.unended(&chain).await?;
            if !unended.is_empty() {
                warn!(
                    "{} writes had begun when the process before ended; they are recorded as abandoned",
                    unended.len()
                );
            }
            for body in unended {
                match abandoned(&Kept::parse(&body)?) {
                    Some(row) => self.journal.durable(row).await?,
                    None => warn!("a write that was left by a dead process cannot be named: {body}"),
                }
            }
            self.store.relist(&chain).await?;
            self.store.close_chain(&chain).await?;
            alive::forget(&self.data, &chain);
        }
        Ok(())
    }

    /// Calls of other servers that a killed process had noted, and the store does not know.
    async fn name_noted(&self, chain: &str) -> Result<()> {
        let mut noted = notes::left(&self.data, chain);
        if noted.is_empty() {
            return Ok(());
        }
        let oldest = noted.iter().filter_map(|kept| kept.at.parse::<Timestamp>().ok()).min();
        let since_ms = oldest.map(|oldest| oldest.as_millisecond() - MARGIN_MS);
        let (wanted, mut after) = (Filter { since_ms, ..Filter::default() }, -1);
        loop {
            let rows = self.store.following(&wanted, after, ROWS_AT_ONCE).await?;
            let Some(last) = rows.last() else { break };
            after = last.pos;
            let known: HashSet<String> =
                rows.iter().filter_map(|row| Kept::parse(&row.body).ok().and_then(|kept| kept.call)).collect();
            noted.retain(|kept| kept.call.as_ref().is_some_and(|call| !known.contains(call)));
        }
        if !noted.is_empty() {
            warn!("{} calls of other servers were on their way when the process before was killed", noted.len());
        }
        for row in noted.iter().filter_map(abandoned) {
            self.journal.durable(row).await?;
        }
        Ok(())
    }

    /// Takes away what is too old, then what is too much.
    pub async fn prune(&self) -> Result<()> {
        let keep = i64::try_from(self.retention.keep.as_millis()).unwrap_or(i64::MAX);
        let mut before = position(clock::now_ms().saturating_sub(keep));
        let (size, most) = (self.store.size().await?, i64::try_from(self.retention.max_size).unwrap_or(i64::MAX));
        let rows = self.store.audit_rows().await?;
        if size > most && rows > 1 {
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a rough share of rows")]
            let surplus = (rows as f64 * (1.0 - most as f64 * ROOM / size as f64)).ceil() as i64;
            before = before.max(self.store.nth_position(surplus.clamp(0, rows - 1)).await?);
        }
        // What another process has given a place and not yet written is not cut away from under it.
        before = before.min(position(clock::now_ms() - LATEST_COMMIT_MS));
        let cut = self.store.cut(before).await?;
        if !cut.marks.is_empty() {
            // Word for word: the proof compares them.
            let vouching = |mark: &Mark| Row { detail: Some(mark.vouched()), ..Row::new(Event::Pruned) };
            let mut rows: Vec<Row> = cut.marks.iter().map(vouching).collect();
            if self.ships && cut.unshipped > 0 {
                let lost = format!("{} of the rows that are pruned had not been shipped to Loki", cut.unshipped);
                warn!("{lost}");
                rows.push(Row::new(Event::Pruned).detail(lost));
            }
            self.journal.prune(rows, cut.marks).await?;
            info!("{} audit rows are too old or too many and are taken away", cut.rows);
        }
        while self.store.delete_before(before).await? {
            tokio::time::sleep(BREATH).await;
        }
        Ok(())
    }
}

/// The row that ends a write whose process is gone.
fn abandoned(begun: &Kept) -> Option<Row> {
    let call = CallRow {
        id: begun.call.as_deref().and_then(|id| Uuid::parse_str(id).ok())?,
        tool: begun.tool.as_deref()?.into(),
        origin: begun.origin.as_deref().and_then(Origin::parse),
        access: Some(Access::Write),
        node: begun.node.clone(),
        summary: begun.summary.clone(),
        arguments: begun.arguments.as_ref().map_or("null", |arguments| arguments.get()).into(),
        digest: begun.digest.as_deref().and_then(unhex)?,
        decision: Some("allowed"),
        how: None,
        outcome: Some("abandoned"),
        duration_us: None,
    };
    Some(Row {
        session: begun.session.as_deref().and_then(|id| Uuid::parse_str(id).ok()),
        principal: begun.principal.as_deref().map(PrincipalId::new),
        transport: begun.transport.as_deref().and_then(Transport::parse),
        era: begun.era.as_deref().and_then(Era::parse),
        client: begun.client.clone(),
        call: Some(call),
        ..Row::new(Event::Call).detail(format!("begun at {}; the hub ended before it did", begun.at))
    })
}
