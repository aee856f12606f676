//! Holds arguments against a tool's schema, whoever wrote it.
//!
//! A schema is a program: one that refers to itself, or to twice the same over many levels, can run for ever. So its
//! shape is looked at before anything is built from it, and what would cost too much is left to the server to check.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use nexus_core::text::{clean, cut};

/// Bytes of one schema.
const LARGEST: usize = 256 * 1024;

const DEEPEST: usize = 64;

/// Schemas that apply to one and the same value, counted through references.
const MOST_AT_ONCE: u64 = 2_000;

/// References that lead to references.
const LONGEST_CHAIN: usize = 100;

/// Visits that checking one call may cost at the worst: about a tenth of a second.
const MOST_VISITS: f64 = 1e6;

/// Steps back that one match of a pattern may take.
const MOST_BACKTRACKS: usize = 20_000;

const LARGEST_PATTERN: usize = 1 << 20;

/// Misfits told at once.
const MOST_MISFITS: usize = 5;

const LONGEST_MISFIT: usize = 300;

/// Something about arguments that the schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Where, as a JSON pointer; empty for the arguments as a whole.
    pub path: String,
    /// What was expected there, without the value that was found.
    pub expected: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "arguments" } else { &self.path };
        write!(f, "{path}: {}", self.expected)
    }
}

/// Checks arguments. Built when first used: most tools never are.
pub struct Checker {
    cost: Cost,
    /// None: nothing can be built from it.
    validator: OnceLock<Option<Validator>>,
}

/// What checking may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// How many schemas may look at the same field of a value.
    Looks(u64),
    /// Cannot be told, or too much.
    Unbounded,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl Checker {
    /// Another for the same schema.
    pub fn unbuilt(&self) -> Self {
        Self { cost: self.cost, validator: OnceLock::new() }
    }

    /// `schema` is what this was made from.
    pub fn check(&self, schema: &str, arguments: &Value) -> Result<(), Vec<Misfit>> {
        let Cost::Looks(looks) = self.cost else { return Ok(()) };
        let (nodes, depth) = size(arguments);
        let exponent = i32::try_from(depth).unwrap_or(i32::MAX);
        if (nodes as f64) * (looks as f64).powi(exponent) > MOST_VISITS {
            return Ok(());
        }
        let build = || serde_json::from_str(schema).ok().and_then(|schema| build(&schema).ok());
        let Some(validator) = self.validator.get_or_init(build) else { return Ok(()) };
        if validator.is_valid(arguments) {
            return Ok(());
        }
        let misfit = |error: jsonschema::ValidationError<'_>| Misfit {
            path: told(&error.instance_path().to_string()),
            expected: told(&error.masked().to_string()),
        };
        Err(validator.iter_errors(arguments).take(MOST_MISFITS).map(misfit).collect())
    }
}

/// Looks at a schema and builds it once, to know that it can be. The error reads after `its input schema`.
pub fn inspect(schema: &Value) -> Result<Checker, String> {
    if schema.to_string().len() > LARGEST {
        return Err(format!("has more than {LARGEST} bytes"));
    }
    if size(schema).1 > DEEPEST {
        return Err(format!("is nested more than {DEEPEST} deep"));
    }
    let cost = weigh(schema)?;
    if let Cost::Looks(_) = cost {
        build(schema).map_err(|why| format!("cannot be used: {why}"))?;
    }
    Ok(Checker { cost, validator: OnceLock::new() })
}

fn build(schema: &Value) -> Result<Validator, String> {
    built(schema).or_else(|why| match schema {
        // A dialect that nobody else knows: the common words of all dialects are what is left.
        Value::Object(fields) if fields.contains_key("$schema") => {
            let mut plain = fields.clone();
            plain.remove("$schema");
            built(&Value::Object(plain))
        }
        _ => Err(why),
    })
}

fn built(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(MOST_BACKTRACKS)
        .size_limit(LARGEST_PATTERN)
        .dfa_size_limit(LARGEST_PATTERN);
    let options = jsonschema::options().offline().with_pattern_options(patterns);
    // Whatever somebody finds that the library did not expect, it is their tool that goes, not the server's task.
    match catch_unwind(AssertUnwindSafe(|| options.build(schema))) {
        Ok(built) => built.map_err(|error| told(&format!("{}: {}", error.instance_path(), error.masked()))),
        Err(_) => Err("it confuses the library that reads it".into()),
    }
}

fn told(text: &str) -> String {
    let line: String = clean(text).chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    cut(&line, LONGEST_MISFIT).into_owned()
}

/// How many values there are, and how deep. Values nested over 128 deep are never read, so this cannot go too deep.
fn size(value: &Value) -> (usize, usize) {
    let inner = |values: &mut dyn Iterator<Item = &Value>| {
        values.map(size).fold((1, 1), |(nodes, depth), (n, d)| (nodes + n, depth.max(d + 1)))
    };
    match value {
        Value::Array(items) => inner(&mut items.iter()),
        Value::Object(fields) => inner(&mut fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (1, 1),
    }
}

/// What applying the schema to a value may cost.
fn weigh(schema: &Value) -> Result<Cost, String> {
    let has_bases = schema.get("$id").or_else(|| schema.get("id")).is_some_and(Value::is_string);
    let mut scales = Scales { root: schema, anchors: HashMap::new(), known: HashMap::new(), has_bases };
    let mut all = Vec::new();
    gather(schema, &mut all, &mut scales.anchors);
    let mut looks = 1;
    for part in all {
        match scales.weigh(part, 0) {
            Ok(weight) if weight.all > MOST_AT_ONCE => return Ok(Cost::Unbounded),
            Ok(weight) => looks = looks.max(weight.looks),
            Err(Imponderable::Endless) => return Err("refers to itself without end".into()),
            Err(Imponderable::Away(to)) => return Err(told(&format!("refers to `{to}`, which is not in it"))),
            Err(Imponderable::Strange) => return Ok(Cost::Unbounded),
        }
    }
    Ok(Cost::Looks(looks))
}

/// Everything that could be a schema, and the names that references may use.
fn gather<'a>(value: &'a Value, all: &mut Vec<&'a Value>, anchors: &mut HashMap<&'a str, &'a Value>) {
    match value {
        Value::Object(fields) => {
            all.push(value);
            for word in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = fields.get(word).and_then(Value::as_str) {
                    anchors.insert(name, value);
                }
            }
            fields.values().for_each(|inner| gather(inner, all, anchors));
        }
        Value::Array(items) => items.iter().for_each(|inner| gather(inner, all, anchors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Scales<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
    /// By address in the tree. None: being weighed right now.
    known: HashMap<*const Value, Option<Weight>>,
    /// The root names itself, and references may use that name.
    has_bases: bool,
}

/// Of a schema with all that apply to the same value through it.
#[derive(Clone, Copy)]
struct Weight {
    all: u64,
    /// Those that look at the fields or items of the value.
    looks: u64,
}

enum Imponderable {
    Endless,
    /// Refers to something outside of the schema.
    Away(String),
    Strange,
}

impl<'a> Scales<'a> {
    fn weigh(&mut self, schema: &'a Value, chain: usize) -> Result<Weight, Imponderable> {
        let Value::Object(fields) = schema else { return Ok(Weight { all: 1, looks: 0 }) };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => return Err(Imponderable::Endless),
            None if chain > LONGEST_CHAIN => return Err(Imponderable::Strange),
            None => {}
        }
        self.known.insert(schema, None);
        let mut sum = Weight { all: 1, looks: looks(fields) };
        let at_root = std::ptr::eq(schema, self.root);
        for (word, inner) in fields {
            for part in self.in_place(word, inner, at_root)? {
                let weight = self.weigh(part, chain + 1)?;
                sum.all = sum.all.saturating_add(weight.all);
                sum.looks = sum.looks.saturating_add(weight.looks);
            }
        }
        self.known.insert(schema, Some(sum));
        Ok(sum)
    }

    /// The schemas that apply to the very value that this one does.
    fn in_place(&self, word: &str, inner: &'a Value, at_root: bool) -> Result<Vec<&'a Value>, Imponderable> {
        match (word, inner) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => Ok(parts.iter().collect()),
            ("not" | "if" | "then" | "else", part @ Value::Object(_)) => Ok(vec![part]),
            ("dependentSchemas" | "dependencies", Value::Object(parts)) => Ok(parts.values().collect()),
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => match self.target(to) {
                Some(part) => Ok(vec![part]),
                None if self.has_bases => Err(Imponderable::Strange),
                None => Err(Imponderable::Away(to.clone())),
            },
            // What references below it mean is no longer to be seen from the root.
            ("$id" | "id", Value::String(_)) if !at_root => Err(Imponderable::Strange),
            _ => Ok(Vec::new()),
        }
    }

    fn target(&self, to: &str) -> Option<&'a Value> {
        match to.strip_prefix('#')? {
            "" => Some(self.root),
            pointer if pointer.starts_with('/') => self.root.pointer(pointer),
            anchor => self.anchors.get(anchor).copied(),
        }
    }
}

/// How many parts of a schema may look at one and the same field or item.
fn looks(schema: &serde_json::Map<String, Value>) -> u64 {
    let patterns = schema.get("patternProperties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    let named = ["properties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems"];
    let one = named.iter().any(|word| schema.get(*word).is_some_and(|inner| inner.is_object() || inner.is_array()));
    u64::try_from(patterns)
        .unwrap_or(u64::MAX)
        .saturating_add(u64::from(one) + u64::from(schema.contains_key("contains")))
}

#[cfg(test)]
mod tests;
