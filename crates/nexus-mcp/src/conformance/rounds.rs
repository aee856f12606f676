//! Tools that need several rounds of the same request, some with state that the client carries.

use futures_util::FutureExt;
use serde_json::{Value, json};

use nexus_core::reply::Reply;
use nexus_core::session::Era;

use super::asking::{Heard, Question, can_hear, given, hear, later, sampled};
use super::{Fixture, NOTHING, Trouble, Turn, verbatim};
use crate::wire::RpcError;

pub(super) const TOOLS: &[Fixture] = &[
    Fixture {
        name: "test_input_required_result_elicitation",
        about: "Asks for a name, and greets.",
        takes: NOTHING,
        run: |turn| stateless(turn, name(), |answer| greeting(given(answer, "name"))).boxed(),
    },
    Fixture {
        name: "test_input_required_result_sampling",
        about: "Lets the client's model name a capital.",
        takes: NOTHING,
        run: |turn| {
            let question = Question::sample("capital_question", "What is the capital of France?", 100);
            stateless(turn, question, |answer| sampled(answer).to_owned()).boxed()
        },
    },
    Fixture {
        name: "test_input_required_result_list_roots",
        about: "Names the client's roots.",
        takes: NOTHING,
        run: |turn| stateless(turn, Question::roots("client_roots"), rooted).boxed(),
    },
    Fixture {
        name: "test_input_required_result_request_state",
        about: "Asks for confirmation, with state.",
        takes: NOTHING,
        run: |turn| stateful(turn, vec![confirm()], |_| "state-ok".to_owned()).boxed(),
    },
    Fixture {
        name: "test_input_required_result_tampered_state",
        about: "Asks for confirmation, and refuses state that is not its own.",
        takes: NOTHING,
        run: |turn| stateful(turn, vec![confirm()], |_| "state-ok".to_owned()).boxed(),
    },
    Fixture {
        name: "test_input_required_result_multiple_inputs",
        about: "Asks the human, the client's model and the client at once.",
        takes: NOTHING,
        run: |turn| stateful(turn, three(), all_three).boxed(),
    },
    Fixture {
        name: "test_input_required_result_multi_round",
        about: "Asks twice, the second time knowing the first answer.",
        takes: NOTHING,
        run: |turn| multi_round(turn).boxed(),
    },
    Fixture {
        name: "test_input_required_result_capabilities",
        about: "Asks whatever the client says it can answer.",
        takes: NOTHING,
        run: |turn| within_capabilities(turn).boxed(),
    },
];

fn name() -> Question {
    Question::form("user_name", "What is your name?", "name", "string")
}

fn confirm() -> Question {
    Question::form("confirm", "Please confirm", "ok", "boolean")
}

/// One of each kind.
fn three() -> Vec<Question> {
    vec![name(), Question::sample("greeting", "Generate a greeting", 50), Question::roots("client_roots")]
}

fn greeting(name: Option<&str>) -> String {
    name.map_or_else(|| "Hello, whoever you are!".to_owned(), |name| format!("Hello, {name}!"))
}

fn rooted(answer: &Value) -> String {
    let roots = answer["roots"].as_array().into_iter().flatten();
    let uris: Vec<&str> = roots.filter_map(|root| root["uri"].as_str()).collect();
    format!("{} roots: {}", uris.len(), uris.join(", "))
}

fn all_three(answers: &Value) -> String {
    let name = greeting(given(&answers["user_name"], "name"));
    format!("{name} {} {}", sampled(&answers["greeting"]), rooted(&answers["client_roots"]))
}

/// One question, whose answer counts whoever brings it.
async fn stateless(turn: Turn, question: Question, tell: fn(&Value) -> String) -> Result<Reply, Trouble> {
    match hear(turn.exchange()?, &[question]).await? {
        Heard::Later(questions) => verbatim(&questions),
        Heard::Answers(answers) => Ok(Reply::plain(&answers.values().map(tell).collect::<String>())),
    }
}

/// One round of questions, whose answers count only with the state that went out with them.
async fn stateful(turn: Turn, questions: Vec<Question>, tell: fn(&Value) -> String) -> Result<Reply, Trouble> {
    let asked = turn.state()?.is_some();
    match turn.round(&questions, asked, &json!({ "round": 1 })).await? {
        Heard::Later(questions) => verbatim(&questions),
        Heard::Answers(answers) => Ok(Reply::plain(&tell(&Value::Object(answers)))),
    }
}

async fn multi_round(turn: Turn) -> Result<Reply, Trouble> {
    let state = turn.state()?;
    let known = state.as_ref().and_then(|state| state["name"].as_str());
    let name = match known {
        Some(name) => name.to_owned(),
        None => {
            let question = Question::form("step1", "Step 1: What is your name?", "name", "string");
            match turn.round(&[question], state.is_some(), &json!({ "round": 1 })).await? {
                Heard::Later(questions) => return verbatim(&questions),
                Heard::Answers(answers) => given(&answers["step1"], "name").unwrap_or("nobody").to_owned(),
            }
        }
    };
    let question = Question::form("step2", "Step 2: What is your favorite color?", "color", "string");
    match turn.round(&[question], known.is_some(), &json!({ "round": 2, "name": name })).await? {
        Heard::Later(questions) => verbatim(&questions),
        Heard::Answers(answers) => {
            let colour = given(&answers["step2"], "color").unwrap_or("no colour");
            Ok(Reply::plain(&format!("{name} likes {colour}.")))
        }
    }
}

async fn within_capabilities(turn: Turn) -> Result<Reply, Trouble> {
    let exchange = turn.exchange()?;
    let mut questions = three();
    questions.retain(|question| exchange.capabilities.has(question.capability()));
    match hear(exchange, &questions).await? {
        Heard::Later(questions) => verbatim(&questions),
        Heard::Answers(answers) => Ok(Reply::plain(&format!("{} answers came.", answers.len()))),
    }
}

impl Turn {
    /// A round of a longer conversation. `asked`: its questions have gone out before; `state` goes
    /// with them and must come back.
    async fn round(&self, questions: &[Question], asked: bool, state: &Value) -> Result<Heard, Trouble> {
        let exchange = self.exchange()?;
        let sealed = || Some(self.shared.seal.close(&self.purpose(), state));
        if exchange.era == Era::Modern && !asked {
            can_hear(exchange, questions)?;
            return Ok(Heard::Later(later(questions, sealed())));
        }
        Ok(match hear(exchange, questions).await? {
            Heard::Later(_) => Heard::Later(later(questions, sealed())),
            answers => answers,
        })
    }

    /// What an earlier round gave the client to carry. State that is not ours ends the request.
    fn state(&self) -> Result<Option<Value>, Trouble> {
        let Some(sealed) = &self.exchange()?.request_state else { return Ok(None) };
        let broken =
            || RpcError::invalid_params("requestState was changed, or belongs to another request").with_status(200);
        Ok(Some(self.shared.seal.open(&self.purpose(), sealed).ok_or_else(broken)?))
    }

    fn purpose(&self) -> [&str; 2] {
        [self.tool, self.cx.principal.id.as_str()]
    }
}
