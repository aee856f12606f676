//! One tool of another server: read, bounded and checked, before anybody else sees it.

use std::ops::Range;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use nexus_core::name::{ServerName, ToolName};
use nexus_core::text::{clean, cut};

use super::headers::{self, HeaderParam};
use super::schema::{self, Checker, Misfit};
use super::state::SetAside;
use crate::upstream::pins::Pin;

/// Bytes of a definition. Real ones have a few thousand.
const LARGEST_DEFINITION: usize = 512 * 1024;

/// Bytes of an original name. The protocol says 128 characters.
const LONGEST_NAME: usize = 256;

const LONGEST_TITLE: usize = 200;

/// Characters: what a model is willing to read of one tool.
const LONGEST_DESCRIPTION: usize = 4096;

/// A tool as it is offered here.
#[derive(Debug)]
pub struct OfferedTool {
    /// What clients call it.
    pub exposed: ToolName,
    /// What its server calls it.
    pub original: String,
    /// For people; cleaned and cut.
    pub title: String,
    /// Starts with `[MCP:server] `; cleaned and cut.
    pub description: String,
    /// All of it, without what is said twice, as JSON text. Not cleaned.
    pub definition: Box<str>,
    /// Of the definition, as it is pinned.
    pub hash: String,
    pub standing: Standing,
    /// Arguments that HTTP repeats in headers.
    pub header_params: Vec<HeaderParam>,
    input: Range<usize>,
    output: Option<Range<usize>>,
    checker: Checker,
}

/// Whether a tool may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Allowed,
    /// New, or not what was allowed.
    Held(Held),
}

/// Why a tool waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// As it was allowed. None: nobody has seen it before.
    before: Option<Box<Pin>>,
}

impl Held {
    pub(crate) fn new(before: Option<Pin>) -> Self {
        Self { before: before.map(Box::new) }
    }

    /// A tool of this name was allowed before.
    pub fn is_change(&self) -> bool {
        self.before.is_some()
    }
}

impl OfferedTool {
    pub fn is_allowed(&self) -> bool {
        self.standing == Standing::Allowed
    }

    /// The schema of its arguments, as JSON text.
    pub fn input(&self) -> &str {
        &self.definition[self.input.clone()]
    }

    /// The schema of its structured results, as JSON text.
    pub fn output(&self) -> Option<&str> {
        self.output.clone().map(|at| &self.definition[at])
    }

    /// How it differs from what was allowed, for a person to read: cleaned and cut. None: it does not.
    pub fn diff(&self) -> Option<String> {
        let Standing::Held(held) = &self.standing else { return None };
        Some(Pin::diff(held.before.as_deref(), &self.pin()))
    }

    /// As it would be remembered.
    pub fn pin(&self) -> Pin {
        Pin::of(&self.original, &serde_json::from_str(&self.definition).unwrap_or_default())
    }

    /// The same, allowed.
    pub(crate) fn allowed(&self) -> Self {
        Self { standing: Standing::Allowed, ..self.called(self.exposed.clone()) }
    }

    /// The same under another name.
    pub(crate) fn called(&self, exposed: ToolName) -> Self {
        Self {
            exposed,
            original: self.original.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            definition: self.definition.clone(),
            hash: self.hash.clone(),
            standing: self.standing.clone(),
            header_params: self.header_params.clone(),
            input: self.input.clone(),
            output: self.output.clone(),
            checker: self.checker.unbuilt(),
        }
    }

    /// Holds arguments against the schema. The first few misfits: where, and what was expected; never the values.
    pub fn check(&self, arguments: &Value) -> Result<(), Vec<Misfit>> {
        self.checker.check(self.input(), arguments)
    }

    /// The headers that repeat arguments (`Mcp-Param-…`), with their values as they are.
    pub fn headers(&self, arguments: &Map<String, Value>) -> Vec<(String, String)> {
        headers::of(&self.header_params, arguments)
    }
}

/// Its name, also where the rest is too much or too deep to be read.
fn name_in(raw: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        name: std::borrow::Cow<'a, str>,
    }
    serde_json::from_str(raw).map_or_else(|_| "(without a name)".into(), |named: Named<'_>| shown(&named.name))
}

/// A tool that was read and found in order, before it has a name here.
#[derive(Debug)]
pub(crate) struct Listed {
    pub original: String,
    pub pin: Pin,
    title: String,
    description: String,
    definition: Box<str>,
    header_params: Vec<HeaderParam>,
    checker: Checker,
}

impl Listed {
    /// Reads one item of `tools/list`.
    pub fn read(raw: &str) -> Result<Self, SetAside> {
        let aside = |why: &str| SetAside { tool: name_in(raw), why: why.into() };
        if raw.len() > LARGEST_DEFINITION {
            return Err(aside(&format!("its definition has more than {LARGEST_DEFINITION} bytes")));
        }
        // By way of a tree: what is said twice counts once, for everybody the same.
        let value: Value = serde_json::from_str(raw).map_err(|_| aside("its definition cannot be read"))?;
        let name = value.get("name").and_then(Value::as_str).ok_or_else(|| aside("it has no name"))?.to_owned();
        Self::of(name.clone(), &value).map_err(|why| SetAside { tool: shown(&name), why })
    }

    fn of(original: String, value: &Value) -> Result<Self, String> {
        if original.is_empty() || original.len() > LONGEST_NAME {
            return Err(format!("its name must have 1 to {LONGEST_NAME} bytes"));
        }
        if hides_something(&original) {
            return Err("its name holds characters that cannot be seen".into());
        }
        let input = value.get("inputSchema").and_then(Value::as_object).ok_or("it has no input schema")?;
        if input.get("type").and_then(Value::as_str) != Some("object") {
            return Err("its input schema is not of type `object`".into());
        }
        let checker = schema::inspect(&value["inputSchema"]).map_err(|why| format!("its input schema {why}"))?;
        if let Some(output) = value.get("outputSchema") {
            if !output.is_object() {
                return Err("its output schema is not an object".into());
            }
            schema::inspect(output).map_err(|why| format!("its output schema {why}"))?;
        }
        let header_params = headers::find(input)?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let title = value.get("title").or_else(|| value.pointer("/annotations/title"));
        Ok(Self {
            pin: Pin::of(&original, value),
            title: one_line(&text(title), LONGEST_TITLE),
            description: clean(&text(value.get("description"))).into_owned(),
            definition: value.to_string().into(),
            original,
            header_params,
            checker,
        })
    }

    pub fn offered(self, exposed: ToolName, server: &ServerName, standing: Standing) -> Result<OfferedTool, SetAside> {
        let (input, output) = schemas(&self.definition)
            .ok_or_else(|| SetAside { tool: shown(&self.original), why: "its definition cannot be read".into() })?;
        let description = format!("[MCP:{}] {}", one_line(server.as_str(), LONGEST_NAME), self.description);
        Ok(OfferedTool {
            title: if self.title.is_empty() { shown(&self.original) } else { self.title },
            description: cut(description.trim_end(), LONGEST_DESCRIPTION).into_owned(),
            exposed,
            original: self.original,
            hash: self.pin.hash,
            definition: self.definition,
            standing,
            header_params: self.header_params,
            input,
            output,
            checker: self.checker,
        })
    }
}

/// Where the two schemas stand in the definition.
fn schemas(definition: &str) -> Option<(Range<usize>, Option<Range<usize>>)> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Schemas<'a> {
        #[serde(borrow)]
        input_schema: &'a RawValue,
        #[serde(borrow)]
        output_schema: Option<&'a RawValue>,
    }

    let found: Schemas<'_> = serde_json::from_str(definition).ok()?;
    let range = |raw: &RawValue| {
        let start = raw.get().as_ptr() as usize - definition.as_ptr() as usize;
        start..start + raw.get().len()
    };
    Some((range(found.input_schema), found.output_schema.map(range)))
}

/// Whether a name holds what nobody sees: two names could look the same.
pub(super) fn hides_something(name: &str) -> bool {
    let is_unseen = |c: char| {
        matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
    };
    name.chars().any(|c| c.is_control() || is_unseen(c)) || clean(name) != name
}

/// A name that a server chose, for people.
pub(crate) fn shown(name: &str) -> String {
    one_line(name, LONGEST_TITLE)
}

fn one_line(text: &str, most: usize) -> String {
    let line: String = clean(text).chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    cut(line.trim(), most).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered(definition: &Value) -> Result<OfferedTool, SetAside> {
        let exposed = ToolName::parse("mcp_x_t").unwrap();
        Listed::read(&definition.to_string())?.offered(exposed, &ServerName::new("x"), Standing::Allowed)
    }

    #[test]
    fn a_description_says_whose_tool_it_is_and_cannot_deceive() {
        let tool = offered(&json!({ "name": "t", "description": "Adds\u{1b}[2J \u{202e}two.",
            "annotations": { "title": "Add\nup" }, "inputSchema": { "type": "object" } }));
        let tool = tool.unwrap();
        assert_eq!(tool.description, "[MCP:x] Adds two.");
        assert_eq!(tool.title, "Add up");
        assert_eq!(tool.input(), r#"{"type":"object"}"#);
        let long = json!({ "name": "t", "description": "x".repeat(9000), "inputSchema": { "type": "object" } });
        assert_eq!(offered(&long).unwrap().description.chars().count(), LONGEST_DESCRIPTION + 1);
    }

    #[test]
    fn schemas_are_found_in_the_definition_whatever_stands_before_them() {
        let tool = offered(&json!({ "outputSchema": { "type": "object", "title": "é" }, "name": "t",
            "inputSchema": { "type": "object", "properties": {} } }));
        let tool = tool.unwrap();
        assert_eq!(tool.input(), r#"{"type":"object","properties":{}}"#);
        assert_eq!(tool.output(), Some(r#"{"type":"object","title":"é"}"#));
    }

    #[test]
    fn what_is_broken_is_set_aside_and_named() {
        let schema = json!({ "type": "object" });
        check(&json!({ "inputSchema": schema }), "(without a name)", "no name");
        check(&json!({ "name": "", "inputSchema": schema }), "", "1 to 256");
        check(&json!({ "name": "a\u{202e}b\nc", "inputSchema": schema }), "ab c", "cannot be seen");
        check(&json!({ "name": "a\u{200b}b", "inputSchema": schema }), "a", "cannot be seen");
        check(&json!({ "name": "ab\u{feff}", "inputSchema": schema }), "ab", "cannot be seen");
        check(&json!({ "name": "t" }), "t", "no input schema");
        check(&json!({ "name": "t", "inputSchema": { "type": "string" } }), "t", "not of type `object`");
        check(&json!({ "name": "t", "inputSchema": { "type": "object", "properties": 1 } }), "t", "input schema");
        check(&json!({ "name": "t", "inputSchema": schema, "outputSchema": { "type": 1 } }), "t", "output schema");
        check(&json!({ "name": "t", "inputSchema": schema, "x": "y".repeat(LARGEST_DEFINITION) }), "t", "bytes");

        #[track_caller]
        fn check(definition: &Value, tool: &str, why: &str) {
            let aside = offered(definition).unwrap_err();
            assert!(aside.tool.starts_with(tool) && aside.why.contains(why), "{aside:?}");
        }
    }

    #[test]
    fn what_is_said_twice_counts_once_and_the_same_for_all() {
        let raw = r#"{"name":"t","name":"u","inputSchema":{"type":"object","a":1,"a":2}}"#;
        let listed = Listed::read(raw).unwrap();
        assert_eq!(listed.original, "u");
        assert_eq!(&*listed.definition, r#"{"name":"u","inputSchema":{"type":"object","a":2}}"#);
    }
}
