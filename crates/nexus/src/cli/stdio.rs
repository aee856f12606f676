//! `nexus stdio`: a door of its own for a client that starts the program. Trusted: it is the operator's own process.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use tracing::{info, warn};

use nexus_core::audit::{Event, Row, Sink};
use nexus_core::principal::{Level, Principal};
use nexus_core::session::{Session, SessionKey, Transport};
use nexus_mcp::front::stdio;

use super::serve::{Signals, raise_open_files};
use crate::config::{Env, Loaded};
use crate::control;
use crate::hold::{self, Claim, Holder};
use crate::keyring::LOCAL;
use crate::links::{self, Before, Doorway};
use crate::private;
use crate::upstreams::{Offered, Role};
use crate::wire::{self, Rig};

pub async fn run(loaded: Loaded, env: &Env) -> Result<ExitCode> {
    private::folder(&loaded.data)?;
    let mut signals = Signals::new()?;
    raise_open_files();
    let assembly = wire::assemble(&loaded, env, Rig::default()).await?;
    // Only the holder does the background work; a door beside it leaves that alone.
    match hold::claim(&loaded.data)? {
        Claim::Mine(mut lock) => {
            let doorway = Doorway::open(&loaded.config, Before::Nobody).await?;
            lock.announce(&Holder { pid: std::process::id(), mcp: None })?;
            let lock = (lock, assembly.background.clone());
            control::listen(&loaded.data, Some(lock), assembly.behind_the_socket(), &assembly.tasks)?;
            assembly.open_links(doorway, &loaded)?;
            assembly.start_background(&loaded).await;
        }
        Claim::Taken(holder) => {
            info!("a door only: process {} does the background work of this data folder", holder.pid);
            links::stand_beside(&assembly.links, &loaded);
            assembly.upstreams.start(Role::Beside, &assembly.hub.catalogue, &assembly.tasks).await;
        }
    }
    // Many clients list the tools once, right at the start.
    assembly.upstreams.offered(Offered::All).await;
    // Its questions are its own, whoever holds the data folder now or later.
    control::listen_beside(&loaded.data, assembly.hub.clone(), &assembly.tasks)?;
    let principal = Arc::new(Principal::new(LOCAL, Level::Trusted));
    let session = Arc::new(Session::open(SessionKey::Stdio, Transport::Stdio));
    let row = |event| Row {
        session: Some(session.id),
        principal: Some(principal.id.clone()),
        transport: Some(Transport::Stdio),
        client: session.client().map(|client| client.to_string()),
        ..Row::new(event)
    };
    assembly.journal.post(row(Event::SessionStarted));
    let serving = stdio::serve(
        assembly.server.clone(),
        assembly.tasks.clone(),
        principal.clone(),
        session.clone(),
        tokio::io::stdin(),
        tokio::io::stdout(),
    );
    let served = tokio::select! {
        served = serving => served,
        () = signals.any() => {
            // The client is impatient and has the harder signal ready: end the calls while we still can.
            assembly.hub.ending.cancel();
            Ok(())
        }
    };
    assembly.journal.post(row(Event::SessionEnded));
    let calm = tokio::select! {
        calm = assembly.end() => calm,
        () = signals.any() => false,
    };
    if let Err(error) = served {
        warn!(%error, "the client went away while it was answered");
    }
    Ok(if calm { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
