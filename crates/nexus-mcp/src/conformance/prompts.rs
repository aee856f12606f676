//! The prompts: each kind of content, one with arguments, one that asks back.

use serde_json::{Value, json};

use super::asking::{Heard, Question, given, hear};
use super::content::{image, resource};
use super::first_page;
use crate::exchange::Exchange;
use crate::wire::{Params, RpcError};

pub(super) fn list(params: &Params<'_>, changed: bool) -> Result<Value, RpcError> {
    first_page(params)?;
    let argument = |name: &str, about: &str| json!({ "name": name, "description": about, "required": true });
    let mut prompts = vec![
        json!({ "name": "test_simple_prompt", "description": "A text." }),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "A text with two arguments in it.",
            "arguments": [argument("arg1", "First test argument"), argument("arg2", "Second test argument")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A resource and what to do with it.",
            "arguments": [argument("resourceUri", "URI of the resource to embed")],
        }),
        json!({ "name": "test_prompt_with_image", "description": "An image and what to do with it." }),
        json!({ "name": "test_input_required_result_prompt", "description": "A text with the client's answer in it." }),
    ];
    if changed {
        prompts.push(json!({ "name": CHANGED, "description": "Is there after every second change of the list." }));
    }
    Ok(json!({ "prompts": prompts }))
}

/// Can always be had, but is not always listed.
const CHANGED: &str = "test_changed_prompt";

pub(super) async fn get(params: &Params<'_>, exchange: &Exchange) -> Result<Value, RpcError> {
    let Some(name) = params.name.as_deref() else {
        return Err(RpcError::invalid_params("`name` is missing: which prompt?"));
    };
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument(params, "arg1")?, argument(params, "arg2")?);
            vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let uri = argument(params, "resourceUri")?;
            let resource = resource(&uri, "text/plain", "Embedded resource content for testing.");
            vec![resource, text("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        "test_input_required_result_prompt" => match hear(exchange, &[context()]).await? {
            Heard::Later(questions) => return Ok(questions),
            Heard::Answers(answers) => {
                let context = given(&answers["user_context"], "context").unwrap_or("none");
                vec![text(&format!("The context is: {context}"))]
            }
        },
        CHANGED => vec![text("Here I am.")],
        _ => return Err(RpcError::invalid_params("no such prompt").with_status(200)),
    };
    let message = |content: Value| json!({ "role": "user", "content": content });
    Ok(json!({ "messages": contents.into_iter().map(message).collect::<Vec<_>>() }))
}

fn context() -> Question {
    Question::form("user_context", "What context should the prompt use?", "context", "string")
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn argument(params: &Params<'_>, name: &str) -> Result<String, RpcError> {
    let given: Value = params.arguments.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let missing =
        || RpcError::invalid_params(format!("the argument `{name}` is missing or not a string")).with_status(200);
    given[name].as_str().map(str::to_owned).ok_or_else(missing)
}
