//! Logs: `tracing` on stderr, for people or for machines, without secrets.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use nexus_core::{redact, text};

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
    let writer = Redacting { to: io::stderr, format };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
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
    redact::text(&text).into_owned()
}

/// Takes the secrets out of every line on its way. `tracing` writes a line in one piece.
struct Redacting<W> {
    to: W,
    format: Format,
}

struct Line<W> {
    to: W,
    format: Format,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Redacting<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { to: self.to.make_writer(), format: self.format }
    }
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = std::str::from_utf8(line).map(|line| without_secrets(line, self.format));
        match &shown {
            Ok(shown) => self.to.write_all(shown.as_bytes())?,
            // `tracing` writes nothing else than text; whoever does is not understood.
            Err(_) => self.to.write_all(b"[a line that is not text]\n")?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn without_secrets(line: &str, format: Format) -> Cow<'_, str> {
    match format {
        Format::Json => redact::json(line).map_or(Cow::Borrowed(line), |shown| Cow::Owned(shown + "\n")),
        // Colours stand between a name and its value. A line that is better not shown as it is loses them.
        Format::Text => match text::clean(line) {
            Cow::Borrowed(line) => redact::text(line),
            Cow::Owned(plain) => match redact::text(&plain) {
                Cow::Owned(shown) => Cow::Owned(shown),
                Cow::Borrowed(_) => Cow::Borrowed(line),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tracing::{info, subscriber};

    /// What is logged, line by line.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(piece);
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, ansi: bool) -> String {
        let kept = Kept::default();
        let to = kept.clone();
        let builder = tracing_subscriber::fmt().with_writer(Redacting { to: move || to.clone(), format });
        let log = || {
            info!(password = "hunter2", "asked https://me:hunter2@host for `log-own-secret-4711`, \"quoted\"");
            info!(name = "x", "the token is invalid");
        };
        match format {
            Format::Json => subscriber::with_default(builder.json().finish(), log),
            Format::Text => subscriber::with_default(builder.with_ansi(ansi).finish(), log),
        }
        let said = kept.0.lock().clone();
        String::from_utf8(said).unwrap()
    }

    #[test]
    fn no_log_line_holds_a_secret_and_the_others_are_as_they_were() {
        redact::learn(["log-own-secret-4711"]);
        for (format, ansi) in [(Format::Text, false), (Format::Text, true), (Format::Json, false)] {
            let said = logged(format, ansi);
            assert!(!said.contains("hunter2") && !said.contains("4711"), "{said}");
            assert_eq!(said.lines().count(), 2, "{said}");
            assert!(said.contains("the token is invalid"), "{said}");
            assert_eq!(said.contains('\u{1b}'), ansi, "{said}");
            if let Format::Json = format {
                for line in said.lines() {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert!(line["fields"]["message"].is_string(), "{line}");
                }
            }
        }
    }
}
