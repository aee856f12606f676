//! Arguments on their way to a server: held against its schema, and in the server's own names.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use nexus_core::arguments::Arguments;
use nexus_core::error::{ToolError, ToolResult};
use nexus_core::name::{ServerName, ToolName};
use nexus_core::text;

use crate::upstream::supervisor::{Misfit, Offer, OfferedTool};
use crate::wire::quoted;

#[derive(Debug, Error)]
enum BadArguments {
    #[error("the arguments are not an object")]
    NotAnObject,
    #[error("the arguments do not fit the schema of `{tool}`: {misfits}")]
    Misfit { tool: String, misfits: String },
    #[error("the server `{server}` has no {what} of that name")]
    Unknown { server: ServerName, what: &'static str },
}

/// The arguments as a tree, valid for this tool.
pub(super) fn checked<'a>(tool: &OfferedTool, args: &'a Arguments) -> ToolResult<Cow<'a, Value>> {
    let tree = args.tree().ok_or_else(|| ToolError::refused(BadArguments::NotAnObject))?;
    if let Err(misfits) = tool.check(&tree) {
        let misfits = misfits.iter().map(Misfit::to_string).collect::<Vec<_>>().join("; ");
        let error = BadArguments::Misfit { tool: tool.exposed.to_string(), misfits };
        return Err(ToolError::refused(error).hint("nothing was sent; mend the arguments and call again"));
    }
    Ok(tree)
}

/// The parameters of `tools/call`. What was looked at is what is sent: of a key that stood there twice, the one that
/// the schema, the human and the record have seen.
pub(super) fn fields(original: &str, tree: &Value) -> String {
    let arguments = serde_json::to_string(tree).unwrap_or_else(|_| "{}".to_owned());
    format!(r#""name":{},"arguments":{arguments}"#, quoted(original))
}

/// One line for a human. The arguments stand behind it.
pub(super) fn summary(original: &str, server: &ServerName) -> String {
    format!("call {} of the server {}", one_line(original), one_line(server.as_str()))
}

/// A name that somebody else chose, for people.
pub(super) fn one_line(name: &str) -> String {
    let clean = text::clean(name);
    let line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    text::cut(&line, 100).into_owned()
}

/// As it is typed at a shell.
pub(super) fn word(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@');
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "'\\''"))
    }
}

/// A request that is ready but for its way.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) fields: String,
    pub(super) about: Option<String>,
    pub(super) summary: String,
}

/// `prompts/get`, by our name for it.
#[derive(Debug, Deserialize)]
pub(super) struct GetPrompt {
    name: String,
    arguments: Option<Map<String, Value>>,
}

impl GetPrompt {
    pub(super) fn prepared(self, offer: &Offer, server: &ServerName) -> ToolResult<Prepared> {
        let original = prompt(offer, server, &self.name)?;
        let mut fields = format!(r#""name":{}"#, quoted(&original));
        if let Some(arguments) = self.arguments {
            let _ = write!(fields, r#","arguments":{}"#, Value::Object(arguments));
        }
        let summary = format!("get the prompt {} of the server {}", one_line(&original), one_line(server.as_str()));
        Ok(Prepared { fields, about: Some(original), summary })
    }
}

/// `resources/read`, by our URI for it.
#[derive(Debug, Deserialize)]
pub(super) struct ReadResource {
    uri: String,
}

impl ReadResource {
    pub(super) fn prepared(self, offer: &Offer, server: &ServerName) -> ToolResult<Prepared> {
        uri_prepared("read", &self.uri, offer, server)
    }
}

/// `resources/subscribe`, by our URI for it.
#[derive(Debug, Deserialize)]
pub(super) struct Follow {
    uri: String,
}

impl Follow {
    pub(super) fn prepared(self, offer: &Offer, server: &ServerName) -> ToolResult<Prepared> {
        uri_prepared("follow", &self.uri, offer, server)
    }
}

fn uri_prepared(verb: &str, uri: &str, offer: &Offer, server: &ServerName) -> ToolResult<Prepared> {
    let original = resource(offer, server, uri)?;
    let summary = format!("{verb} {} of the server {}", one_line(original), one_line(server.as_str()));
    Ok(Prepared { fields: format!(r#""uri":{}"#, quoted(original)), about: Some(original.to_owned()), summary })
}

/// `completion/complete`, by our names.
#[derive(Debug, Deserialize)]
pub(super) struct Complete {
    #[serde(rename = "ref")]
    reference: Map<String, Value>,
    argument: Value,
    context: Option<Value>,
}

impl Complete {
    pub(super) fn prepared(mut self, offer: &Offer, server: &ServerName) -> ToolResult<Prepared> {
        if let Some(Value::String(name)) = self.reference.get_mut("name") {
            *name = prompt(offer, server, name)?;
        }
        if let Some(Value::String(uri)) = self.reference.get_mut("uri") {
            *uri = resource(offer, server, uri)?.to_owned();
        }
        let mut fields = format!(r#""ref":{},"argument":{}"#, Value::Object(self.reference), self.argument);
        if let Some(context) = self.context {
            let _ = write!(fields, r#","context":{context}"#);
        }
        let argument = one_line(self.argument["name"].as_str().unwrap_or_default());
        let summary = format!("complete the argument {argument} at the server {}", one_line(server.as_str()));
        Ok(Prepared { fields, about: None, summary })
    }
}

fn prompt(offer: &Offer, server: &ServerName, exposed: &str) -> ToolResult<String> {
    let found = ToolName::parse(exposed).ok().and_then(|name| offer.prompt(&name).cloned());
    let unknown = || ToolError::refused(BadArguments::Unknown { server: server.clone(), what: "prompt" });
    found.map(|prompt| prompt.original.clone()).ok_or_else(unknown)
}

fn resource<'a>(offer: &Offer, server: &ServerName, exposed: &'a str) -> ToolResult<&'a str> {
    let unknown = || ToolError::refused(BadArguments::Unknown { server: server.clone(), what: "resource" });
    offer.naming.original_uri(exposed).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::names::Naming;
    use serde_json::json;
    use serde_json::value::RawValue;

    #[test]
    fn what_is_sent_is_what_was_looked_at_on_one_line() {
        let raw = "{ \"path\": \"/etc/shadow\",\n\"a\": [1.5, {\"b\": null}],\r\n\"path\": \"/safe\" }";
        let args = Arguments::raw(RawValue::from_string(raw.to_owned()).unwrap());
        let sent = fields("list-repos", &args.tree().unwrap());
        assert_eq!(sent, r#""name":"list-repos","arguments":{"path":"/safe","a":[1.5,{"b":null}]}"#);
    }

    #[test]
    fn a_summary_is_one_line() {
        assert_eq!(summary("write\nfile", &ServerName::new("fs")), "call write file of the server fs");
    }

    #[test]
    fn a_word_is_one_at_the_shell_too() {
        assert_eq!(word("list-repos"), "list-repos");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's; rm"), r"'it'\''s; rm'");
    }

    #[test]
    fn resources_are_asked_for_by_the_servers_own_uri() {
        let server = ServerName::new("fs");
        let offer = Offer::empty(Naming::new(&server, None));
        let prepared = ReadResource { uri: "mcp-fs+file:///a\"b".into() }.prepared(&offer, &server).unwrap();
        assert_eq!(prepared.fields, r#""uri":"file:///a\"b""#);
        assert!(ReadResource { uri: "mcp-other+file:///a".into() }.prepared(&offer, &server).is_err());
        let complete = json!({ "ref": { "type": "ref/resource", "uri": "mcp-fs+x://{a}" },
            "argument": { "name": "a", "value": "1" }, "context": { "arguments": {} } });
        let complete: Complete = serde_json::from_value(complete).unwrap();
        let fields = complete.prepared(&offer, &server).unwrap().fields;
        assert!(fields.contains(r#""uri":"x://{a}""#) && fields.ends_with(r#""context":{"arguments":{}}"#), "{fields}");
    }
}
