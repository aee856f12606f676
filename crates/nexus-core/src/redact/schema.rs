//! Which arguments a schema calls secret.

use serde_json::{Map, Value};

/// A schema may come from a server we do not know, and may refer to itself: looking at it ends.
const DEEPEST: usize = 48;
const MOST_STEPS: usize = 10_000;
/// Bytes of all the paths.
const MOST_FOUND: usize = 64 * 1024;

/// The paths of the fields whose schema says `format: "secret"`: `pin`, `login.pin`. The items of a list have their
/// list's path. A map with secrets in it is secret as a whole; the empty path is all of the arguments, also where
/// there are secrets and the schema is too tangled to say where.
pub(crate) fn secret_fields(input: &Map<String, Value>) -> Vec<String> {
    let mut search = Search { root: input, path: String::new(), steps: 0, bytes: 0, found: Vec::new() };
    search.schema(input, 0);
    let tangled = search.is_over() && !search.found.is_empty();
    if tangled { vec![String::new()] } else { search.found }
}

struct Search<'a> {
    root: &'a Map<String, Value>,
    path: String,
    steps: usize,
    bytes: usize,
    found: Vec<String>,
}

impl<'a> Search<'a> {
    fn schema(&mut self, schema: &'a Map<String, Value>, depth: usize) {
        self.steps += 1;
        if depth > DEEPEST || self.is_over() {
            return;
        }
        if schema.get("format").is_some_and(|format| format == "secret") {
            return self.add();
        }
        for (name, field) in object(schema.get("properties")) {
            let parent = self.path.len();
            if parent > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.any(field, depth);
            self.path.truncate(parent);
        }
        for part in ["items", "prefixItems", "contains", "anyOf", "oneOf", "allOf", "if", "then", "else"] {
            schema.get(part).into_iter().for_each(|part| self.any(part, depth));
        }
        let patterns = object(schema.get("patternProperties")).map(|(_, field)| field);
        for field in schema.get("additionalProperties").into_iter().chain(patterns) {
            self.of_a_map(field, depth);
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|target| self.resolve(target)) {
            self.schema(target, depth + 1);
        }
    }

    fn any(&mut self, part: &'a Value, depth: usize) {
        match part {
            Value::Object(schema) => self.schema(schema, depth + 1),
            Value::Array(schemas) => {
                schemas.iter().filter_map(Value::as_object).for_each(|schema| self.schema(schema, depth + 1));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The names in a map are not known here: what is secret below them makes all of it so.
    fn of_a_map(&mut self, field: &'a Value, depth: usize) {
        let before = self.found.len();
        self.any(field, depth);
        if self.found.len() > before {
            self.found.truncate(before);
            self.add();
        }
    }

    fn add(&mut self) {
        if self.found.last() != Some(&self.path) {
            self.bytes += self.path.len();
            self.found.push(self.path.clone());
        }
    }

    fn is_over(&self) -> bool {
        self.steps > MOST_STEPS || self.bytes > MOST_FOUND
    }

    fn resolve(&self, target: &str) -> Option<&'a Map<String, Value>> {
        let mut steps = target.strip_prefix("#/")?.split('/');
        let (kind, name) = (steps.next()?, steps.next()?);
        self.root.get(kind)?.get(name)?.as_object()
    }
}

fn object(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}
