//! The file as written: YAML as a tree in which every key and value knows its place.
//!
//! Serde stops at the first mismatch, so the sections read this tree instead and can report all.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::faults::{Problem, Spot, shown};

/// Far above what the configuration needs, far below what a stack minds.
const DEEPEST: usize = 32;

/// Nodes, those that aliases repeat included. Bounds what a small file can unfold to.
const MOST_NODES: usize = 100_000;

#[derive(Clone, Debug)]
pub struct Node {
    pub spot: Spot,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Null,
    /// The text as written, without quotes: `0123` stays `0123`.
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub spot: Spot,
    pub value: Node,
}

/// Reads a whole file. After a syntax error the sections that stand before it are still there.
pub fn parse(text: &str) -> (Node, Vec<(Spot, Problem)>) {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = DEEPEST;
    options.block_nesting_limit = DEEPEST;
    let mut builder = Builder {
        events: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        nodes: 0,
        finished: Vec::new(),
        problems: Vec::new(),
    };
    let root = builder.document().unwrap_or_else(|problem| {
        builder.problems.push(problem);
        Node { spot: START, kind: Kind::Map(std::mem::take(&mut builder.finished)) }
    });
    (root, builder.problems)
}

const START: Spot = Spot { line: 1, col: 1 };

impl Node {
    /// The value of a key, where this is a map that has it and it is not null.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key && !entry.value.is_null()).map(|entry| &entry.value)
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            Kind::Null | Kind::Text(_) | Kind::List(_) => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            Kind::Null | Kind::Text(_) | Kind::Map(_) => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    fn size(&self) -> usize {
        1 + self.items().iter().map(Node::size).sum::<usize>()
            + self.entries().iter().map(|entry| entry.value.size()).sum::<usize>()
    }
}

type Step<T> = Result<T, (Spot, Problem)>;

struct Builder<'a> {
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// The root's entries so far; what is left of a file that breaks off.
    finished: Vec<Entry>,
    problems: Vec<(Spot, Problem)>,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Step<Node> {
        loop {
            let (event, spot) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd => return Ok(Node { spot, kind: Kind::Null }),
                Event::MappingStart(..) => {
                    self.map(Depth::Root)?;
                    self.end()?;
                    return Ok(Node { spot, kind: Kind::Map(std::mem::take(&mut self.finished)) });
                }
                event => {
                    let root = self.node(event, spot)?;
                    self.end()?;
                    return Ok(root);
                }
            }
        }
    }

    fn end(&mut self) -> Step<()> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentStart(..), spot) => {
                    return Err((spot, Problem::new("a second document starts here").hint("remove the `---`")));
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'a>, spot: Spot) -> Step<Node> {
        self.count(1, spot)?;
        if let Some(tag) = event.tag() {
            let tag = shown(&tag.original());
            self.problems.push((spot, Problem::new(format!("the tag `{tag}` has no meaning here")).hint("remove it")));
        }
        let anchor = event.anchor_id();
        let kind = match event {
            Event::Scalar(text, style, ..) => scalar(text.into_owned(), style),
            Event::SequenceStart(..) => Kind::List(self.list()?),
            Event::MappingStart(..) => Kind::Map(self.map(Depth::Inner)?),
            Event::Alias(id) => {
                let Some(target) = self.anchors.get(&id).cloned() else {
                    return Err((spot, Problem::new("this alias refers to itself")));
                };
                self.count(target.size(), spot)?;
                return Ok(target);
            }
            _ => return Err((spot, Problem::new("the file breaks off here"))),
        };
        let node = Node { spot, kind };
        if let Some(id) = anchor {
            self.count(node.size(), spot)?;
            self.anchors.insert(id, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self) -> Step<Vec<Node>> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, spot) => items.push(self.node(event, spot)?),
            }
        }
    }

    fn map(&mut self, depth: Depth) -> Step<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, spot) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(entries);
            }
            let key = self.node(event, spot)?;
            let (event, value_spot) = self.next()?;
            let value = self.node(event, value_spot)?;
            let Kind::Text(key) = key.kind else {
                self.problems.push((spot, Problem::new("a key must be plain text")));
                continue;
            };
            if let Some(line) = seen.get(&key) {
                let problem = Problem::new(format!("`{}` is given twice", shown(&key)));
                self.problems.push((spot, problem.note(format!("first on line {line}"))));
                continue;
            }
            seen.insert(key.clone(), spot.line);
            let entry = Entry { key, spot, value };
            match depth {
                Depth::Root => self.finished.push(entry),
                Depth::Inner => entries.push(entry),
            }
        }
    }

    fn count(&mut self, nodes: usize, spot: Spot) -> Step<()> {
        self.nodes += nodes;
        if self.nodes > MOST_NODES {
            return Err((spot, Problem::new(format!("the file unfolds to more than {MOST_NODES} values"))));
        }
        Ok(())
    }

    fn next(&mut self) -> Step<(Event<'a>, Spot)> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, spot_of(span))),
            Some(Err(error)) => Err(syntax(&error)),
            None => Err((START, Problem::new("the file breaks off"))),
        }
    }
}

#[derive(Clone, Copy)]
enum Depth {
    Root,
    Inner,
}

fn scalar(text: String, style: ScalarStyle) -> Kind {
    let null = style == ScalarStyle::Plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
    if null { Kind::Null } else { Kind::Text(text) }
}

fn spot_of(span: Span) -> Spot {
    Spot { line: span.start.line(), col: span.start.col() + 1 }
}

fn syntax(error: &ScanError) -> (Spot, Problem) {
    let spot = Spot { line: error.marker().line().max(1), col: error.marker().col() + 1 };
    (spot, Problem::new(format!("not YAML: {}", shown(&error.info()))))
}
