//! `nexus audit verify`: proves the record.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use nexus_core::Chain;
use serde::Serialize;

use super::{NotOpen, open, print, say};
use crate::config::Loaded;
use crate::store::verify::Verified;
use crate::store::{Store, StoreError};

#[derive(Debug, Args)]
pub struct Verify {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Told {
    holds: bool,
    rows: u64,
    chains: usize,
    /// Rows that retention took away, each part vouched for by a row that is still there, or was itself.
    pruned: i64,
    seconds: f64,
    rows_per_second: u64,
    findings: Vec<String>,
    /// Findings beyond those.
    further: usize,
}

impl Verify {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let started = Instant::now();
        let mut told = match look(loaded).await? {
            Ok((verified, damage)) => {
                let holds = verified.holds() && damage.is_empty();
                let Verified { rows, chains, pruned, mut findings, further } = verified;
                findings.extend(damage);
                Told { holds, rows, chains, pruned, findings, further, ..Told::default() }
            }
            Err(damage) => Told { findings: vec![damage], ..Told::default() },
        };
        told.seconds = started.elapsed().as_secs_f64();
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate"
        )]
        let rate = (told.rows as f64 / told.seconds.max(0.000_001)) as u64;
        told.rows_per_second = rate;
        match self.json {
            true => print(&format!("{}\n", serde_json::to_string_pretty(&told)?))?,
            false => print(&in_words(&told))?,
        }
        Ok(if told.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What is found in the rows, and in the database's own file. Err: nothing could be looked at, because of this.
async fn look(loaded: &Loaded) -> Result<Result<(Verified, Vec<String>), String>> {
    let damaged = |error: &StoreError| format!("the store is damaged: {}", Chain(error));
    let store = match open(loaded).await {
        Ok(store) => store,
        Err(NotOpen::Store(error)) if error.is_damage() => return Ok(Err(damaged(&error))),
        Err(error) => return Err(error.into()),
    };
    let (verified, damage) = tokio::join!(verify(&store), store.integrity());
    store.close().await;
    let damage = match damage {
        Ok(said) => said.into_iter().map(|line| format!("the database's own check: {line}")).collect(),
        Err(error) if error.is_damage() => vec![damaged(&error)],
        Err(error) => return Err(error.into()),
    };
    match verified {
        Ok(verified) => Ok(Ok((verified, damage))),
        Err(error) if error.is_damage() => {
            Ok(Ok((Verified { findings: vec![damaged(&error)], ..Verified::default() }, damage)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Somebody who waits before a terminal sees how far it is.
async fn verify(store: &Store) -> Result<Verified, StoreError> {
    let watched = stderr().is_terminal();
    let all = if watched { store.audit_rows().await? } else { 0 };
    let verified = store.verify(|rows| {
        if watched {
            let _ = write!(stderr(), "\r{} of {} rows", grouped(rows), grouped(all.unsigned_abs()));
        }
    });
    let verified = verified.await;
    if watched {
        let _ = write!(stderr(), "\r\u{1b}[K");
    }
    verified
}

fn in_words(told: &Told) -> String {
    let Told { rows, chains, pruned, seconds, rows_per_second, findings, further, .. } = told;
    let mut out = String::new();
    for finding in findings {
        out.push_str(&format!("{}\n", crate::cli::one_line(finding)));
    }
    if *further > 0 {
        out.push_str(&format!("and {} more\n", grouped(*further as u64)));
    }
    let pruned = match pruned {
        0 => String::new(),
        pruned => format!(", {} more pruned and vouched for", grouped(pruned.unsigned_abs())),
    };
    let looked = format!(
        "{} rows in {} chains{pruned}; {seconds:.1} s, {} rows a second",
        grouped(*rows),
        grouped(*chains as u64),
        grouped(*rows_per_second)
    );
    match told.holds {
        true => format!("{out}The record holds: {looked}.\n"),
        false => {
            say("The record does not hold: something in it was changed, removed or moved since it was written.");
            format!("{out}Looked at {looked}.\n")
        }
    }
}

/// `1,234,567`
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(|group| String::from_utf8_lossy(group).into_owned()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(super::grouped(number), text);
        }
    }
}
