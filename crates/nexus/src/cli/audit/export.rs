//! `nexus audit export`: rows for other programs, however many there are.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::verify::grouped;
use super::{Which, open, put, say};
use crate::config::Loaded;
use crate::private::NewFile;
use crate::store::StoreError;
use crate::store::body::Kept;
use crate::store::rows::Entry;

/// Rows in memory at once: a row may have some twenty kilobytes.
const PAGE: u32 = 256;

#[derive(Debug, Args)]
pub struct Export {
    /// jsonl: every row as it is kept, a JSON object a line; csv: for spreadsheets, with a header
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    which: Which,
    /// Write into this new file, which only you may read. It appears when it is complete [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Jsonl,
    Csv,
}

impl Export {
    pub async fn run(self, loaded: &Loaded) -> Result<ExitCode> {
        let store = open(loaded).await?;
        let filter = self.which.filter(&store).await?;
        let place = self.output.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let mut file = match &self.output {
            Some(path) => Some(NewFile::create(path).with_context(|| format!("writing {place}"))?),
            None => None,
        };
        let mut out = |text: &str| match &mut file {
            Some(file) => file.write(text).map(|()| true).with_context(|| format!("writing {place}")),
            None => put(text),
        };
        let (mut rows, mut after) = (0, -1);
        let mut read = match self.format {
            Format::Csv => out(&header())?,
            Format::Jsonl => true,
        };
        while read {
            let page = store.following(&filter, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.pos;
            rows += page.len() as u64;
            let text: Result<String, StoreError> = page.iter().map(|entry| self.format.of(entry)).collect();
            read = out(&text.context("see `nexus audit verify`")?)?;
        }
        store.close().await;
        if let Some(file) = file {
            file.finish().with_context(|| format!("writing {place}"))?;
            say(&format!("{} rows in {place}", grouped(rows)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Format {
    fn of(self, entry: &Entry) -> Result<String, StoreError> {
        match self {
            Format::Jsonl => Ok(format!("{}\n", entry.body)),
            Format::Csv => {
                let row = Kept::parse(&entry.body).map_err(|source| StoreError::BadRow { pos: entry.pos, source })?;
                Ok(line(fields(&row).into_iter().map(|(_, cell)| cell)))
            }
        }
    }
}

type Cell<'a> = (&'static str, Cow<'a, str>);

/// Every field of a row, with its name.
fn fields(row: &Kept) -> Vec<Cell<'_>> {
    let Kept { id, chain, seq, at, event, session, principal, transport, era, client, call, tool, .. } = row;
    let Kept { origin, access, node, summary, arguments, digest, decision, how, outcome, .. } = row;
    let Kept { duration_us, detail, hash, .. } = row;
    let text = |field: &'_ Option<String>| Cow::Owned(field.clone().unwrap_or_default());
    vec![
        ("id", id.into()),
        ("chain", chain.into()),
        ("seq", seq.to_string().into()),
        ("at", at.into()),
        ("event", event.into()),
        ("session", text(session)),
        ("principal", text(principal)),
        ("transport", text(transport)),
        ("era", text(era)),
        ("client", text(client)),
        ("call", text(call)),
        ("tool", text(tool)),
        ("origin", text(origin)),
        ("access", text(access)),
        ("node", text(node)),
        ("summary", text(summary)),
        ("arguments", arguments.as_ref().map_or_else(Cow::default, |arguments| arguments.get().into())),
        ("digest", text(digest)),
        ("decision", text(decision)),
        ("how", text(how)),
        ("outcome", text(outcome)),
        ("duration_us", duration_us.map_or_else(Cow::default, |us| us.to_string().into())),
        ("detail", text(detail)),
        ("hash", hash.into()),
    ]
}

fn header() -> String {
    const EMPTY: &str = r#"{"id":"","chain":"","seq":0,"at":"","event":"","hash":""}"#;
    let empty = Kept::parse(EMPTY);
    let names = empty.iter().flat_map(fields).map(|(name, _)| Cow::from(name));
    line(names)
}

fn line<'a>(cells: impl Iterator<Item = Cow<'a, str>>) -> String {
    let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
    cells.join(",") + "\r\n"
}

/// A cell by RFC 4180. One that a spreadsheet would run begins with an apostrophe, which makes it text.
fn quoted(cell: &str) -> String {
    let runs = cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let guard = if runs { "'" } else { "" };
    match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{guard}{}\"", cell.replace('"', "\"\"")),
        false => format!("{guard}{cell}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_column_and_none_is_run() {
        let body = concat!(
            r#"{"id":"i","chain":"c","seq":7,"at":"t","event":"call","client":"=cmd|'/c calc'!A0","summary":"a, \"b\"\nc","#,
            r#""arguments":{"a":[1,2]},"duration_us":12,"detail":"-1+1","hash":"h"}"#
        );
        let entry = Entry { pos: 1, body: body.to_owned() };
        let written = Format::Csv.of(&entry).unwrap();
        assert_eq!(header().split(',').count(), fields(&Kept::parse(body).unwrap()).len());
        assert_eq!(
            written,
            "i,c,7,t,call,,,,,'=cmd|'/c calc'!A0,,,,,,\"a, \"\"b\"\"\nc\",\"{\"\"a\"\":[1,2]}\",,,,,12,'-1+1,h\r\n"
        );
        let Ok(serde_json::Value::Object(kept)) = serde_json::from_str(body) else { panic!("an object") };
        let names: Vec<&str> = fields(&Kept::parse(body).unwrap()).into_iter().map(|(name, _)| name).collect();
        assert!(kept.keys().all(|name| names.contains(&name.as_str())));
    }
}
