//! A server's question to the caller: which kinds there are, and what of it the caller gets to see.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use thiserror::Error;

use nexus_core::name::ServerName;
use nexus_core::text;

use super::clean::clean_tree;
use crate::exchange::Capabilities;

/// Bytes of a question. Sampling brings whole conversations.
const LARGEST: usize = 1024 * 1024;

/// Questions in one round.
const MOST: usize = 16;

/// Characters of what a human is asked, and of the labels of a form: no screen full of words in which ours drown.
const LONGEST_MESSAGE: usize = 2_000;
const LONGEST_LABEL: usize = 200;

/// What may be asked of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Form,
    Sampling,
    Roots,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadQuestion {
    #[error("the question is too large")]
    TooLarge,
    #[error("more than {MOST} questions are asked at once")]
    TooMany,
    #[error("the question cannot be read")]
    Unreadable,
    #[error("`{0}` is nothing that a client can be asked")]
    Unknown(String),
    #[error("the client does not offer `{0}`, which the server wants to use")]
    NotOffered(&'static str),
    #[error("it wants a page opened that is neither http nor https")]
    Address,
}

impl Question {
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            "elicitation/create" => Some(Self::Form),
            "sampling/createMessage" => Some(Self::Sampling),
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }

    /// What a client says that it can do when it can answer this.
    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Form => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }

    pub(crate) fn can_be_put_to(self, client: &Capabilities) -> bool {
        client.has(self.capability())
    }

    /// Its parameters as the caller gets them.
    pub(crate) fn params(self, params: Option<&RawValue>, server: &ServerName) -> Result<Value, BadQuestion> {
        let json = params.map_or("{}", RawValue::get);
        if json.len() > LARGEST {
            return Err(BadQuestion::TooLarge);
        }
        let params = serde_json::from_str(json).map_err(|_| BadQuestion::Unreadable)?;
        self.shown(params, server)
    }

    /// A human must see who asks: the question of a server must not pass for one of the hub's.
    fn shown(self, mut params: Value, server: &ServerName) -> Result<Value, BadQuestion> {
        clean_tree(&mut params);
        let Value::Object(fields) = &mut params else { return Err(BadQuestion::Unreadable) };
        // Tokens of ours, of which the caller knows nothing.
        fields.remove("_meta");
        if self == Self::Form {
            let message = fields.get("message").and_then(Value::as_str).unwrap_or_default();
            let message = format!("[MCP:{}] {}", line(server.as_str(), 64), line(message, LONGEST_MESSAGE));
            fields.insert("message".to_owned(), message.into());
            if let Some(schema) = fields.get_mut("requestedSchema") {
                shorten_labels(schema);
            }
            let web = |url: &str| url.starts_with("https://") || url.starts_with("http://");
            if fields.get("url").is_some_and(|url| !url.as_str().is_some_and(web)) {
                return Err(BadQuestion::Address);
            }
        }
        Ok(params)
    }
}

/// On one line: what stands on lines of its own could pass for the words of whoever shows it.
fn line(words: &str, most: usize) -> String {
    let line = text::clean(words).split_whitespace().collect::<Vec<_>>().join(" ");
    text::cut(&line, most).into_owned()
}

/// All that a form says to a human beside its values, which go back to the server as they are.
fn shorten_labels(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("title" | "description", Value::String(label)) => *label = line(label, LONGEST_LABEL),
                    ("enumNames", Value::Array(labels)) => {
                        for label in labels {
                            if let Value::String(label) = label {
                                *label = line(label, LONGEST_LABEL);
                            }
                        }
                    }
                    (_, value) => shorten_labels(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_labels),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The questions of a round as a caller of the new era gets them: those it can answer, or none at all.
pub(crate) fn passed_on(
    requests: Map<String, Value>,
    server: &ServerName,
    client: &Capabilities,
) -> Result<Map<String, Value>, BadQuestion> {
    if requests.len() > MOST {
        return Err(BadQuestion::TooMany);
    }
    let mut shown = Map::new();
    for (key, mut request) in requests {
        let method = request["method"].as_str().unwrap_or_default().to_owned();
        let unknown = || BadQuestion::Unknown(text::cut(&text::clean(&method), 60).into_owned());
        let question = Question::of(&method).ok_or_else(unknown)?;
        if !question.can_be_put_to(client) {
            return Err(BadQuestion::NotOffered(question.capability()));
        }
        let params = request.get_mut("params").map_or_else(|| json!({}), Value::take);
        shown.insert(key, json!({ "method": method, "params": question.shown(params, server)? }));
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able(said: &Value) -> Capabilities {
        Capabilities::parse(&RawValue::from_string(said.to_string()).unwrap()).unwrap()
    }

    fn server() -> ServerName {
        ServerName::new("git\u{202e} hub\n")
    }

    #[test]
    fn a_human_sees_which_server_asks_and_nothing_that_deceives() {
        let raw = json!({ "message": "Your\u{1b}[2J name?\nAllow this?", "_meta": { "progressToken": 1 } });
        let raw = RawValue::from_string(raw.to_string()).unwrap();
        let shown = Question::Form.params(Some(&raw), &server()).unwrap();
        assert_eq!(shown, json!({ "message": "[MCP:git hub] Your name? Allow this?" }));
        assert_eq!(Question::Roots.params(None, &server()), Ok(json!({})));
    }

    #[test]
    fn nothing_in_a_question_has_lines_of_its_own_or_is_longer_than_a_human_reads() {
        let long = "x\u{2028}\r\n".repeat(5_000);
        let form = json!({ "type": "object", "properties": {
            "title": { "type": "string", "title": "a\nb", "description": long, "default": "a\nb" },
            "pick": { "type": "string", "enum": ["a\nb"], "enumNames": ["A\nB", 1] },
            "one": { "oneOf": [{ "const": "a\nb", "title": "A\nB" }] },
        } });
        let raw = json!({ "message": long, "requestedSchema": form }).to_string();
        let shown = Question::Form.params(Some(&RawValue::from_string(raw).unwrap()), &server()).unwrap();
        let message = shown["message"].as_str().unwrap();
        assert!(message.chars().count() < LONGEST_MESSAGE + 20 && message.contains("x x"), "{message}");
        let fields = &shown["requestedSchema"]["properties"];
        let about = fields["title"]["description"].as_str().unwrap();
        assert!(about.chars().count() <= LONGEST_LABEL + 1 && about.starts_with("x x"), "{about}");
        assert_eq!((&fields["title"]["title"], &fields["title"]["default"]), (&json!("a b"), &json!("a\nb")));
        assert_eq!(fields["pick"], json!({ "type": "string", "enum": ["a\nb"], "enumNames": ["A B", 1] }));
        assert_eq!(fields["one"]["oneOf"][0], json!({ "const": "a\nb", "title": "A B" }));
    }

    #[test]
    fn only_what_the_client_offers_is_asked_of_it() {
        let forms = able(&json!({ "elicitation": {} }));
        let ask = |method: &str, params: Value| {
            let requests = json!({ "q": { "method": method, "params": params } });
            passed_on(requests.as_object().unwrap().clone(), &server(), &forms)
        };
        let passed = ask("elicitation/create", json!({ "message": "m", "requestedSchema": {} })).unwrap();
        assert_eq!(passed["q"]["params"]["message"], "[MCP:git hub] m");
        assert_eq!(ask("sampling/createMessage", json!({})), Err(BadQuestion::NotOffered("sampling")));
        assert_eq!(ask("roots/list", json!({})), Err(BadQuestion::NotOffered("roots")));
        assert_eq!(ask("tools/call", json!({})), Err(BadQuestion::Unknown("tools/call".into())));
        assert_eq!(ask("elicitation/create", json!([])), Err(BadQuestion::Unreadable));
        let page = json!({ "mode": "url", "message": "m", "url": "file:///etc/passwd" });
        assert_eq!(ask("elicitation/create", page), Err(BadQuestion::Address));
        let many: Map<String, Value> = (0..=MOST).map(|n| (n.to_string(), json!({}))).collect();
        assert_eq!(passed_on(many, &server(), &forms), Err(BadQuestion::TooMany));
    }
}
