//! How keys are declared and read: one place per key holds its name, type, default and doc line.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;

use super::faults::{Faults, Problem, Spot, did_you_mean, shown};
use super::tree::{self, Kind, Node};

/// Anything a key may hold: a value, a list, a map or a section of further keys.
pub trait Setting: Sized {
    /// For the reference page.
    fn shape() -> Shape;

    /// Reads it and reports every fault on the way. `None` means that it was faulty.
    fn read(node: &Node, faults: &mut Faults) -> Option<Self>;

    /// What it is where the file says nothing; `None` means that it must be given.
    fn absent() -> Option<Self> {
        None
    }
}

/// A setting that is one piece of text, in the file as in the environment.
pub trait Value: Sized {
    /// What belongs there, for messages and the reference page: "a port".
    fn kind() -> String;

    fn parse(text: &str) -> Result<Self, Problem>;
}

/// A key of the file as it was declared.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub doc: &'static str,
    /// YAML, read in place of an absent key.
    pub default: Option<&'static str>,
    /// Whether it must be given in a section that is there.
    pub required: fn() -> bool,
    pub shape: fn() -> Shape,
}

#[derive(Debug)]
pub enum Shape {
    Value(String),
    List(Box<Shape>),
    Map(String, Box<Shape>),
    Section(&'static [Key]),
}

/// Declares a section: the struct, how it is read, and its keys for the reference page.
///
/// A default is YAML text and goes the same way as what a user writes, so that the reference
/// page cannot say anything else than what happens.
macro_rules! section {
    ($(#[doc = $about:literal])+ $name:ident {
        $( $(#[doc = $doc:literal])+ $key:ident: $type:ty $(= $default:literal)?, )*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, serde::Serialize)]
        pub struct $name { $( $(#[doc = $doc])+ pub $key: $type, )* }

        impl $name {
            pub const KEYS: &'static [$crate::config::section::Key] = &[$(
                $crate::config::section::Key {
                    name: stringify!($key),
                    doc: concat!($($doc),+),
                    default: $crate::config::section::section!(@default $($default)?),
                    required: || {
                        $crate::config::section::section!(@default $($default)?).is_none()
                            && <$type as $crate::config::section::Setting>::absent().is_none()
                    },
                    shape: <$type as $crate::config::section::Setting>::shape,
                },
            )*];
        }

        impl $crate::config::section::Setting for $name {
            fn shape() -> $crate::config::section::Shape {
                $crate::config::section::Shape::Section(Self::KEYS)
            }

            #[allow(unused_variables, reason = "a section may have no keys yet")]
            fn read(
                node: &$crate::config::tree::Node,
                faults: &mut $crate::config::faults::Faults,
            ) -> Option<Self> {
                let fields = $crate::config::section::Fields::of(node, Self::KEYS, faults)?;
                $( let $key = fields.take(
                    stringify!($key), $crate::config::section::section!(@default $($default)?), faults,
                ); )*
                Some(Self { $( $key: $key?, )* })
            }

            fn absent() -> Option<Self> {
                Self::read(&$crate::config::tree::Node::nothing(), &mut Default::default())
            }
        }
    };
    (@default) => { None::<&str> };
    (@default $default:literal) => { Some($default) };
}
pub(super) use section;

/// The keys of one map, checked against those that are declared.
pub struct Fields<'a> {
    node: &'a Node,
}

impl<'a> Fields<'a> {
    pub fn of(node: &'a Node, declared: &[Key], faults: &mut Faults) -> Option<Self> {
        if !matches!(node.kind, Kind::Map(_) | Kind::Null) {
            faults.at(node.spot, Problem::new("a map of keys belongs here").maybe_hint(example_of(declared)));
            return None;
        }
        for entry in node.entries() {
            if declared.iter().all(|key| key.name != entry.key) {
                faults.at(entry.spot, unknown_key(&entry.key, declared));
            }
        }
        Some(Self { node })
    }

    /// The key's value, else its default. A faulty value is reported and its default stands in,
    /// so that the rest of the file is checked, too.
    pub fn take<T: Setting>(&self, name: &str, default: Option<&str>, faults: &mut Faults) -> Option<T> {
        let given = self.node.get(name);
        if let Some(value) = given.and_then(|node| T::read(node, faults)) {
            return Some(value);
        }
        let fallback = match default {
            Some(yaml) => T::read(&tree::parse(yaml).0, faults),
            None => T::absent(),
        };
        if fallback.is_none() && given.is_none() {
            faults.at(
                self.node.spot,
                Problem::new(format!("`{name}` is missing")).hint(format!("{name}: {}", T::shape())),
            );
        }
        fallback
    }
}

fn unknown_key(key: &str, declared: &[Key]) -> Problem {
    let hint = match key {
        "<<" => "merge keys are not supported; write the keys out".to_owned(),
        _ => did_you_mean(key, declared.iter().map(|key| key.name)).unwrap_or_else(|| {
            let known: Vec<_> = declared.iter().map(|key| key.name).collect();
            if known.is_empty() {
                "no keys belong here".to_owned()
            } else {
                format!("known here: {}", known.join(", "))
            }
        }),
    };
    Problem::new(format!("unknown key `{}`", shown(key))).hint(hint)
}

fn example_of(declared: &[Key]) -> Option<String> {
    declared.first().map(|key| format!("{}: …", key.name))
}

impl<T: Value> Setting for T {
    fn shape() -> Shape {
        Shape::Value(T::kind())
    }

    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let belongs = |found: &str| Problem::new(format!("{} belongs here, not {found}", T::kind()));
        let problem = match &node.kind {
            Kind::Text(text) => match T::parse(text) {
                Ok(value) => return Some(value),
                Err(problem) => problem,
            },
            Kind::Null => belongs("nothing"),
            Kind::List(_) => belongs("a list"),
            Kind::Map(_) => belongs("a map"),
        };
        faults.at(node.spot, problem);
        None
    }
}

impl<T: Setting> Setting for Option<T> {
    fn shape() -> Shape {
        T::shape()
    }

    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        T::read(node, faults).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let Kind::List(items) = &node.kind else {
            let hint = node.text().map(|text| format!("[{}]", shown(text)));
            faults.at(node.spot, Problem::new("a list belongs here").maybe_hint(hint));
            return None;
        };
        Some(items.iter().filter_map(|item| T::read(item, faults)).collect())
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }
}

impl<K: Value + Ord, V: Setting> Setting for BTreeMap<K, V> {
    fn shape() -> Shape {
        Shape::Map(K::kind(), Box::new(V::shape()))
    }

    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            faults.at(node.spot, Problem::new("a map belongs here").hint("name: …"));
            return None;
        };
        let mut map = Self::new();
        for entry in entries {
            let key = K::parse(&entry.key).map_err(|problem| faults.at(entry.spot, problem)).ok();
            let value = V::read(&entry.value, faults);
            map.extend(key.zip(value));
        }
        Some(map)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

impl Node {
    /// What an absent section is read from.
    pub fn nothing() -> Self {
        Self { spot: Spot { line: 1, col: 1 }, kind: Kind::Null }
    }
}

impl Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(kind) => f.write_str(kind),
            Self::List(of) => write!(f, "list of: {of}"),
            Self::Map(key, of) => write!(f, "map from {key} to {of}"),
            Self::Section(_) => f.write_str("keys below"),
        }
    }
}

/// Text that appears more than once, at its second and later places.
pub fn repeated<'a>(nodes: impl Iterator<Item = &'a Node>) -> Vec<(&'a str, Spot)> {
    let mut seen = HashSet::new();
    nodes.filter_map(|node| Some((node.text()?, node.spot))).filter(|(text, _)| !seen.insert(*text)).collect()
}
