//! The tools that see and drive computers.
//!
//! What a computer answers is taken apart by [`said`] and never handed on unseen: somebody's game wrote it.

mod call_peripheral;
mod get_redstone;
mod given;
mod line;
mod list_computer_files;
mod list_computers;
mod list_peripherals;
mod probe_computers;
mod read_computer_file;
mod run_lua;
mod said;
mod set_redstone;
mod stop_computers;
mod turtle;
mod write_computer_file;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::call::{CallCx, Progress};
use nexus_core::provider::{Origin, Own};
use nexus_core::tool::{BadTool, Entry, Family};
use schemars::Schema;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::computer::{Capability, Wanted};
use crate::links::{LinkError, Links};

pub const TOOLS: &[Entry<Links>] = &[
    Entry::of::<probe_computers::ProbeComputers>(),
    Entry::of::<list_computers::ListComputers>(),
    Entry::of::<run_lua::RunLua>(),
    Entry::of::<list_computer_files::ListComputerFiles>(),
    Entry::of::<read_computer_file::ReadComputerFile>(),
    Entry::of::<write_computer_file::WriteComputerFile>(),
    Entry::of::<list_peripherals::ListPeripherals>(),
    Entry::of::<call_peripheral::CallPeripheral>(),
    Entry::of::<turtle::Turtle>(),
    Entry::of::<get_redstone::GetRedstone>(),
    Entry::of::<set_redstone::SetRedstone>(),
    Entry::of::<stop_computers::StopComputers>(),
];

pub fn tools(links: &Arc<Links>) -> Result<Family<Links>, BadTool> {
    Family::new(Origin::Own(Own::Links), links.clone(), &[TOOLS])
}

/// How long a computer may take for what costs it a moment: a page of a folder, a piece of a file, one step. Its
/// program may be busy, and a server that lags takes seconds for a tick.
const MOMENT: Duration = Duration::from_secs(15);

/// Which computer is meant, for the human who is asked: `12` alone says little. Or why nothing could come of a yes.
fn meant(links: &Arc<Links>, wanted: &Wanted, can: Capability) -> Option<BoxFuture<'static, Option<String>>> {
    let (links, wanted) = (links.clone(), wanted.clone());
    let look = async move {
        Some(match links.one(&wanted, can).await {
            Ok(seen) => format!("computer {}, linked from {}", seen.computer.name(), seen.from),
            Err(error) => format!("now it would fail: {}", nexus_core::Chain(&error)),
        })
    };
    Some(look.boxed())
}

/// A list whose items may be anything is `items: true` by itself, and some clients take no schema but objects.
fn of_anything(schema: &mut Schema) {
    schema.insert("items".to_owned(), json!({}));
}

/// Waits for a computer as long as the caller does. A write that is cancelled may take a moment to end in order; here
/// that means to tell the computer now, and to send it nothing more.
async fn while_wanted<T>(cx: &CallCx, work: impl Future<Output = Result<T, LinkError>>) -> Result<T, LinkError> {
    cx.cancel.run_until_cancelled(work).await.unwrap_or(Err(LinkError::Unwanted))
}

/// Waits for the work, while it is wanted, and tells the caller every second how long it has taken of what it may.
async fn watched<T>(
    cx: &CallCx,
    most: Duration,
    work: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    const SECOND: Duration = Duration::from_secs(1);
    let mut work = pin!(while_wanted(cx, work));
    let started = Instant::now();
    let mut seconds = interval_at(started + SECOND, SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            now = seconds.tick() => {
                cx.progress(so_far(now.duration_since(started).as_secs_f64(), most.as_secs_f64()));
            }
        }
    }
}

/// Behind its time, a computer is still waited for a while; how long is nothing that the caller asked for.
fn so_far(done: f64, most: f64) -> Progress {
    if done <= most {
        return Progress { done, total: Some(most), message: Some(format!("{done:.0} of {most:.0} s")) };
    }
    Progress { done, total: None, message: Some(format!("{done:.0} s; its {most:.0} s are over, and no answer yet")) }
}

#[cfg(test)]
mod tests {
    use nexus_core::tool::{Access, ToolSpec};

    use super::*;

    fn specs() -> Vec<ToolSpec> {
        TOOLS.iter().map(|entry| entry.spec().unwrap()).collect()
    }

    #[test]
    fn looking_is_free_and_the_rest_waits_for_a_yes() {
        let specs = specs();
        let names = |access: Access, most: Access| -> Vec<&str> {
            let of = |spec: &&ToolSpec| spec.access == access && spec.most == most;
            specs.iter().filter(of).map(|spec| spec.name.as_str()).collect()
        };
        assert_eq!(
            names(Access::Read, Access::Read),
            [
                "probe-computers",
                "list_computers",
                "list_computer_files",
                "read_computer_file",
                "list_peripherals",
                "get_redstone"
            ]
        );
        assert_eq!(names(Access::Read, Access::Write), ["turtle"]);
        assert_eq!(
            names(Access::Write, Access::Write),
            ["run_lua", "write_computer_file", "call_peripheral", "set_redstone", "stop_computers"]
        );
    }

    #[test]
    fn the_time_is_told_also_when_it_is_over() {
        let told = |done| {
            let Progress { total, message, .. } = so_far(done, 10.0);
            (total, message.unwrap())
        };
        assert_eq!(told(10.0), (Some(10.0), "10 of 10 s".to_owned()));
        assert_eq!(told(12.0), (None, "12 s; its 10 s are over, and no answer yet".to_owned()));
    }

    #[test]
    fn only_the_probe_has_a_second_name() {
        for spec in specs() {
            let aliases: Vec<_> = spec.aliases.iter().map(|alias| alias.as_str()).collect();
            let expected: &[&str] = if spec.name.as_str() == "probe-computers" { &["probe_computers"] } else { &[] };
            assert_eq!(aliases, expected);
        }
    }

    #[test]
    fn every_argument_is_described_and_no_other_is_taken() {
        for spec in specs() {
            assert_eq!(spec.input.get("additionalProperties"), Some(&false.into()), "{:?}", spec.name);
            let fields = spec.input.get("properties").and_then(|fields| fields.as_object()).unwrap();
            for (name, field) in fields {
                assert!(field.get("description").is_some(), "{:?}: {name} says nothing of itself", spec.name);
            }
        }
    }
}
