//! Asking the client, in both eras, and the tools that do so once.
//!
//! In the old era the answer is waited for while the tool runs. In the new one the questions are the
//! result, and the client calls again with the answers.

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use thiserror::Error;

use nexus_core::error::ToolError;
use nexus_core::reply::Reply;
use nexus_core::session::Era;

use super::{Fixture, NOTHING, Takes, Trouble, Turn, verbatim};
use crate::exchange::Exchange;
use crate::server::missing_capability;

/// One thing to be asked of the client.
pub(super) struct Question {
    key: &'static str,
    method: &'static str,
    params: Value,
}

/// What came of asking.
pub(super) enum Heard {
    /// Every answer, under its question's key.
    Answers(Map<String, Value>),
    /// The questions as a result; the answers come with the next try.
    Later(Value),
}

#[derive(Debug, Error)]
enum Unheard {
    #[error("this needs the client capability `{0}`")]
    NoCapability(&'static str),
    #[error("the client's answer to {0} does not fit the question")]
    Misfit(&'static str),
}

/// Asks, or takes the answers that came with the request.
pub(super) async fn hear(exchange: &Exchange, questions: &[Question]) -> Result<Heard, Trouble> {
    can_hear(exchange, questions)?;
    if exchange.era == Era::Legacy {
        return ask_now(exchange, questions).await.map(Heard::Answers);
    }
    let came = exchange.input_responses.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
    let mut came: Map<String, Value> = came.unwrap_or_default();
    came.retain(|key, answer| questions.iter().any(|question| question.key == key && question.fits(answer)));
    // Answers are not gathered over rounds: what is incomplete is asked again as a whole.
    Ok(if came.len() == questions.len() { Heard::Answers(came) } else { Heard::Later(later(questions, None)) })
}

/// Nothing may be asked of a client that did not say it can answer.
pub(super) fn can_hear(exchange: &Exchange, questions: &[Question]) -> Result<(), Trouble> {
    match questions.iter().map(Question::capability).find(|capability| !exchange.capabilities.has(capability)) {
        None => Ok(()),
        Some(missing) if exchange.era == Era::Modern => Err(missing_capability(missing).into()),
        Some(missing) => Err(ToolError::refused(Unheard::NoCapability(missing)).into()),
    }
}

async fn ask_now(exchange: &Exchange, questions: &[Question]) -> Result<Map<String, Value>, Trouble> {
    let mut answers = Map::new();
    for question in questions {
        let answer = exchange.ask(question.method, &question.params).await?;
        let answer: Value = serde_json::from_str(answer.get()).unwrap_or_default();
        if !question.fits(&answer) {
            return Err(ToolError::failed(Unheard::Misfit(question.method)).into());
        }
        answers.insert(question.key.to_owned(), answer);
    }
    Ok(answers)
}

/// The result that asks; `state` comes back with the answers. `resultType` stands first: by that the
/// server knows that nothing is to be added.
pub(super) fn later(questions: &[Question], state: Option<String>) -> Value {
    let request = |question: &Question| {
        let request = json!({ "method": question.method, "params": question.params });
        (question.key.to_owned(), request)
    };
    let requests: Map<String, Value> = questions.iter().map(request).collect();
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    result
}

impl Question {
    pub(super) fn elicit(key: &'static str, message: &str, schema: &Value) -> Self {
        let params = json!({ "message": message, "requestedSchema": schema });
        Self { key, method: "elicitation/create", params }
    }

    /// A form with one field.
    pub(super) fn form(key: &'static str, message: &str, field: &str, kind: &str) -> Self {
        let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
        Self::elicit(key, message, &schema)
    }

    pub(super) fn sample(key: &'static str, prompt: &str, max_tokens: u32) -> Self {
        let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
        let params = json!({ "messages": [message], "maxTokens": max_tokens });
        Self { key, method: "sampling/createMessage", params }
    }

    pub(super) fn roots(key: &'static str) -> Self {
        Self { key, method: "roots/list", params: json!({}) }
    }

    pub(super) fn capability(&self) -> &'static str {
        match self.method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        }
    }

    /// Whether this is an answer to it at all.
    fn fits(&self, answer: &Value) -> bool {
        match self.method {
            "elicitation/create" => match answer["action"].as_str() {
                Some("accept") => filled(&self.params["requestedSchema"], &answer["content"]),
                Some("decline" | "cancel") => true,
                _ => false,
            },
            "sampling/createMessage" => answer["role"].is_string() && !answer["content"].is_null(),
            _ => answer["roots"].is_array(),
        }
    }
}

/// Whether every required field is there and every field is of its type.
fn filled(schema: &Value, content: &Value) -> bool {
    let Some(fields) = content.as_object() else { return false };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_kind = |name: &String, value: &Value| match schema["properties"][name]["type"].as_str() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        _ => true,
    };
    required.into_iter().all(|name| fields.contains_key(name))
        && fields.iter().all(|(name, value)| is_kind(name, value))
}

/// A field of an accepted form. None: the human did not want to.
pub(super) fn given<'a>(answer: &'a Value, field: &str) -> Option<&'a str> {
    answer["content"][field].as_str()
}

/// The text a client's model has written.
pub(super) fn sampled(answer: &Value) -> &str {
    let content = &answer["content"];
    content["text"].as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default()
}

pub(super) const TOOLS: &[Fixture] = &[
    Fixture {
        name: "test_sampling",
        about: "Lets the client's model answer a prompt.",
        takes: Takes::Texts(&[("prompt", "The prompt to send to the LLM")]),
        run: |turn| {
            let question = Question::sample("sampling", turn.text("prompt"), 100);
            once(turn, question, |answer| format!("LLM response: {}", sampled(answer))).boxed()
        },
    },
    Fixture {
        name: "test_elicitation",
        about: "Asks the human for a name and an address.",
        takes: Takes::Texts(&[("message", "The message to show the user")]),
        run: |turn| {
            let question = Question::elicit("elicitation", turn.text("message"), &username_and_email());
            once(turn, question, |answer| format!("User response: {}", told(answer))).boxed()
        },
    },
    Fixture {
        name: "test_elicitation_sep1034_defaults",
        about: "Asks the human with a form that is filled in already.",
        takes: NOTHING,
        run: |turn| {
            let question = Question::elicit("elicitation", "Please check these values", &defaults());
            once(turn, question, |answer| format!("Elicitation completed: {}", told(answer))).boxed()
        },
    },
    Fixture {
        name: "test_elicitation_sep1330_enums",
        about: "Asks the human to choose, in all five ways a form can.",
        takes: NOTHING,
        run: |turn| {
            let question = Question::elicit("elicitation", "Please choose", &choices());
            once(turn, question, |answer| format!("Elicitation completed: {}", told(answer))).boxed()
        },
    },
    Fixture {
        name: "test_streaming_elicitation",
        about: "Logs something, then asks the human to confirm.",
        takes: NOTHING,
        run: |turn| streaming(turn).boxed(),
    },
    Fixture {
        name: "test_missing_capability",
        about: "Needs a client that offers sampling.",
        takes: NOTHING,
        run: |turn| {
            async move {
                can_hear(turn.exchange()?, &[Question::sample("never_asked", "", 1)])?;
                Ok(Reply::plain("The client offers sampling."))
            }
            .boxed()
        },
    },
];

async fn once(turn: Turn, question: Question, tell: fn(&Value) -> String) -> Result<Reply, Trouble> {
    match hear(turn.exchange()?, std::slice::from_ref(&question)).await? {
        Heard::Later(questions) => verbatim(&questions),
        Heard::Answers(answers) => Ok(Reply::plain(&tell(&answers[question.key]))),
    }
}

async fn streaming(turn: Turn) -> Result<Reply, Trouble> {
    turn.exchange()?.log("info", &json!("About to ask")).await;
    let question = Question::form("confirm", "Please confirm", "ok", "boolean");
    once(turn, question, |answer| format!("Elicitation completed: {}", told(answer))).await
}

fn told(answer: &Value) -> String {
    format!("action={}, content={}", answer["action"].as_str().unwrap_or_default(), answer["content"])
}

fn username_and_email() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    })
}

/// Every primitive type with its default (SEP-1034).
fn defaults() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        },
    })
}

/// One or several of many, with and without titles (SEP-1330).
fn choices() -> Value {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |word: &str| {
        json!([
            { "const": "value1", "title": format!("First {word}") },
            { "const": "value2", "title": format!("Second {word}") },
            { "const": "value3", "title": format!("Third {word}") },
        ])
    };
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": options },
            "titledSingle": { "type": "string", "oneOf": titled("Option") },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_the_question_is_one() {
        let name = || Question::form("user_name", "What is your name?", "name", "string");
        check(&name(), &json!({ "action": "accept", "content": { "name": "Alice" } }), true);
        check(&name(), &json!({ "action": "decline" }), true);
        check(&name(), &json!({ "action": "accept", "content": { "name": 5 } }), false);
        check(&name(), &json!({ "action": "accept", "content": {} }), false);
        check(&name(), &json!({ "action": "accept" }), false);
        check(&name(), &json!({ "action": "shrug" }), false);
        check(&name(), &json!(12345), false);
        check(&name(), &json!(null), false);
        check(&Question::roots("roots"), &json!({ "roots": [] }), true);
        check(&Question::roots("roots"), &json!({}), false);

        #[track_caller]
        fn check(question: &Question, answer: &Value, fits: bool) {
            assert_eq!(question.fits(answer), fits, "{answer}");
        }
    }
}
