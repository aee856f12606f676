//! Logs: `tracing` on stderr, for people or for machines.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::error;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. Panics are logged too, wherever they happen.
pub fn start(filter: &str, format: Format) {
    let filter = EnvFilter::builder().parse_lossy(filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A second start (in a test) keeps the first.
    let _ = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => builder.json().try_init(),
    };
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        error!(place, "panic at {place}: {}", shown(panic.payload()));
    }));
}

/// A panic's text may quote whatever was being worked on.
fn shown(payload: &(dyn std::any::Any + Send)) -> String {
    let text = nexus_core::text::cut(nexus_core::tasks::panic_text(payload), 500);
    nexus_core::redact::text(&text).into_owned()
}
