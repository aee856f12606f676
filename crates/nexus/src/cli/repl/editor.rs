//! The line editor of the REPL: reedline with our completions, hints and history.

use std::path::Path;

use anyhow::{Context, Result};
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, Emacs, FileBackedHistory, Hinter, History, HistoryItem,
    HistoryItemId, HistorySessionId, KeyCode, KeyModifiers, MenuBuilder, Reedline, ReedlineEvent, ReedlineMenu,
    SearchQuery, Signal, Span, Suggestion, default_emacs_keybindings,
};
use tracing::warn;

use nexus_core::redact;

use super::complete::{candidates, hint};
use super::known::Shared;
use super::show::Paint;
use crate::cli::person::Plain;
use crate::private;

const MENU: &str = "completions";
const LINES_KEPT: usize = 1_000;

/// Reads lines from a person.
pub struct Editor {
    line: Reedline,
    prompt: Plain,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    Line(String),
    /// Ctrl-C: the line is gone, the session stays.
    Nothing,
    /// Ctrl-D.
    End,
}

impl Editor {
    pub fn new(known: &Shared, data: &Path, paint: Paint, prompt: String) -> Self {
        let mut keys = default_emacs_keybindings();
        let complete = ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        let menu = ColumnarMenu::default().with_name(MENU);
        let mut line = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_completer(Box::new(Completions(known.clone())))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_hinter(Box::new(Hints { known: known.clone(), past: DefaultHinter::default(), usage: false }))
            .with_ansi_colors(paint == Paint::Colours)
            .with_history_exclusion_prefix(Some(" ".to_owned()));
        match history(data) {
            Ok(history) => line = line.with_history(Box::new(history)),
            // A hub elsewhere needs no data folder here.
            Err(error) => warn!("no history is kept: {error:#}"),
        }
        Self { line, prompt: Plain(prompt) }
    }

    /// Blocks until something was typed.
    pub fn read(&mut self) -> Result<Typed> {
        Ok(match self.line.read_line(&self.prompt).context("reading the terminal")? {
            Signal::Success(line) => Typed::Line(line),
            Signal::CtrlD => Typed::End,
            _ => Typed::Nothing,
        })
    }
}

fn history(data: &Path) -> Result<Redacted> {
    private::folder(data)?;
    let file = data.join("repl_history");
    private::create(&file)?;
    Ok(Redacted(FileBackedHistory::with_file(LINES_KEPT, file)?))
}

struct Completions(Shared);

impl Completer for Completions {
    fn complete(&mut self, line: &str, at: usize) -> CompletionResult {
        let typed = line.get(..at).unwrap_or(line);
        let found = candidates(&self.0.get(), typed).into_iter().map(|found| Suggestion {
            value: found.text,
            description: Some(found.about).filter(|about| !about.is_empty()),
            span: Span::new(found.start, typed.len()),
            append_whitespace: found.is_whole,
            ..Suggestion::default()
        });
        CompletionResult::fresh(found.collect::<Vec<_>>())
    }
}

/// What was typed before in this way, to be taken over; else what the command takes, to be read.
struct Hints {
    known: Shared,
    past: DefaultHinter,
    /// Whether what is shown is only to be read.
    usage: bool,
}

impl Hinter for Hints {
    fn handle(&mut self, line: &str, at: usize, history: &dyn History, colours: bool, folder: &str) -> String {
        let past = self.past.handle(line, at, history, colours, folder);
        self.usage = past.is_empty();
        match hint(&self.known.get(), line).filter(|_| self.usage && at == line.len()) {
            Some(hint) if colours => format!("\u{1b}[2m{hint}\u{1b}[0m"),
            Some(hint) => hint,
            None => past,
        }
    }

    fn complete_hint(&self) -> String {
        if self.usage { String::new() } else { self.past.complete_hint() }
    }

    fn next_hint_token(&self) -> String {
        if self.usage { String::new() } else { self.past.next_hint_token() }
    }
}

/// A history in a file, without the secrets that were typed.
struct Redacted(FileBackedHistory);

impl History for Redacted {
    fn save(&mut self, mut item: HistoryItem) -> reedline::Result<HistoryItem> {
        item.command_line = redact::text(&item.command_line).into_owned();
        self.0.save(item)
    }

    fn load(&self, id: HistoryItemId) -> reedline::Result<HistoryItem> {
        self.0.load(id)
    }

    fn count(&self, query: SearchQuery) -> reedline::Result<i64> {
        self.0.count(query)
    }

    fn search(&self, query: SearchQuery) -> reedline::Result<Vec<HistoryItem>> {
        self.0.search(query)
    }

    fn update(&mut self, id: HistoryItemId, change: &dyn Fn(HistoryItem) -> HistoryItem) -> reedline::Result<()> {
        self.0.update(id, change)
    }

    fn clear(&mut self) -> reedline::Result<()> {
        self.0.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> reedline::Result<()> {
        self.0.delete(id)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.0.session()
    }
}
