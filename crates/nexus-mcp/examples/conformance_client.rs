//! The program that the official conformance suite runs as the client under test (`conformance client --command …`).
//!
//! Everything that is tested is the library's. What is here is what a scenario wants done, and a robot in the place of
//! the person: it agrees to what is asked of it, and follows the authorization page to where that sends it.
//!
//!     conformance_client URL          with MCP_CONFORMANCE_SCENARIO, and MCP_CONFORMANCE_CONTEXT where there is one

#![allow(clippy::disallowed_methods, reason = "a program of its own, told by its environment what to do")]
#![allow(clippy::print_stderr, reason = "the suite shows what a failed client said")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use nexus_core::audit::Nowhere;
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::client::{Ask, Client, Host, Listed, Options};
use nexus_mcp::upstream::config::HttpEndpoint;
use nexus_mcp::upstream::log::ServerLog;
use nexus_mcp::upstream::oauth::{Browser, Identity, InMemory, OAuth, OAuthError, Registered, Web};
use nexus_mcp::upstream::supervisor::headers;
use nexus_mcp::upstream::transport::http::HttpConnector;
use nexus_mcp::wire::RpcError;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The suite gives each scenario thirty seconds.
const PATIENCE: Duration = Duration::from_secs(25);

/// A page that describes this client; the suite knows its address and reads none.
const ABOUT_US: &str = "https://conformance-test.local/client-metadata.json";

#[tokio::main]
async fn main() -> ExitCode {
    match tokio::time::timeout(PATIENCE, run()).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("the scenario takes too long");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Outcome {
    let url = std::env::args().next_back().filter(|word| word.contains("://")).ok_or("the last word is the URL")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO")?;
    let context: Value = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => Value::Null,
    };
    let client = connect(&url, &context).await?;
    let done = play(&client, &scenario, &context).await;
    client.close().await;
    done
}

async fn connect(url: &str, context: &Value) -> Outcome<Client> {
    let endpoint = HttpEndpoint::new(url);
    let web = Web::new(&endpoint, Arc::new(Nowhere))?;
    let (tasks, log) = (Tasks::new(), Arc::new(ServerLog::default()));
    let login = OAuth::new(web, identity(context), Arc::new(InMemory::default()), tasks.clone());
    let login = login.with_browser(Arc::new(Robot));
    let connector = HttpConnector::new(endpoint, Arc::new(Nowhere), Some(Arc::new(login)), log, tasks.clone());
    let capabilities = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} });
    let options =
        Options { capabilities, host: Arc::new(Robot), name: "nexus-conformance".into(), ..Options::new(tasks) };
    Ok(Client::connect(Arc::new(connector), options).await?)
}

fn identity(context: &Value) -> Identity {
    let text = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
    let registered =
        text("client_id").map(|id| Registered { id, secret: text("client_secret"), issuer: text("issuer") });
    Identity { name: "Nexus".into(), metadata_url: Some(ABOUT_US.into()), registered, scopes: Vec::new() }
}

async fn play(client: &Client, scenario: &str, context: &Value) -> Outcome {
    match scenario {
        "http-custom-headers" => {
            let tools = tools(client).await?;
            for call in context["toolCalls"].as_array().ok_or("no toolCalls in the context")? {
                let name = call["name"].as_str().unwrap_or_default();
                let tool = tools.iter().find(|tool| tool.name == name).ok_or("a call of a tool that is not listed")?;
                tool.call(client, &call["arguments"]).await?;
            }
        }
        "json-schema-2020-12-preservation" => {
            let tools = tools(client).await?;
            let schema = tools.iter().find(|tool| tool.name == "json_schema_2020_12_tool").map(|tool| &tool.schema);
            client.call_tool("json_schema_echo", &json!({ "schema": schema })).await?;
        }
        // Listing is all there is to do: the schema leads to an address that must not be called.
        "json-schema-ref-no-deref" => drop(tools(client).await?),
        "http-standard-headers" => everything(client).await?,
        "sep-2322-client-request-state" => {
            tools(client).await?;
            let call = |name: &'static str| async move { client.call_tool(name, &json!({})).await.map(drop) };
            // At the same time: what belongs to one must not show in the other.
            tokio::try_join!(call("test_mrtr_echo_state"), call("test_mrtr_unrelated"))?;
            call("test_mrtr_no_state").await?;
            call("test_mrtr_no_result_type").await?;
        }
        _ => call_all(client).await?,
    }
    Ok(())
}

/// Each tool once, with arguments made from its schema.
async fn call_all(client: &Client) -> Outcome {
    for tool in tools(client).await? {
        let arguments = sample(&tool.schema);
        tool.call(client, &arguments).await?;
    }
    Ok(())
}

async fn everything(client: &Client) -> Outcome {
    call_all(client).await?;
    for resource in client.list(Listed::Resources).await? {
        let resource: Value = serde_json::from_str(resource.get())?;
        let uri = resource["uri"].as_str().unwrap_or_default();
        client.request(Ask::about_uri("resources/read", uri)).await?;
    }
    for prompt in client.list(Listed::Prompts).await? {
        let prompt: Value = serde_json::from_str(prompt.get())?;
        let name = prompt["name"].as_str().unwrap_or_default();
        client.request(Ask::new("prompts/get").about(name).with(format!(r#""name":{}"#, json!(name)))).await?;
    }
    Ok(())
}

struct Tool {
    name: String,
    schema: Map<String, Value>,
    headers: Vec<headers::HeaderParam>,
}

impl Tool {
    async fn call(&self, client: &Client, arguments: &Value) -> Outcome {
        let mut ask = Ask::tool(&self.name, &arguments.to_string());
        ask.headers = headers::of(&self.headers, arguments.as_object().unwrap_or(&Map::new()));
        client.call(ask).await?;
        Ok(())
    }
}

/// The tools that may be used: those with headers that no header can carry are left out.
async fn tools(client: &Client) -> Outcome<Vec<Tool>> {
    let mut kept = Vec::new();
    for listed in client.list(Listed::Tools).await? {
        let mut tool: Map<String, Value> = serde_json::from_str(listed.get())?;
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(Value::Object(schema)) = tool.remove("inputSchema") else { continue };
        match headers::find(&schema) {
            Ok(headers) => kept.push(Tool { name, schema, headers }),
            Err(why) => eprintln!("{name} is left out: {why}"),
        }
    }
    Ok(kept)
}

/// Arguments with every required field.
fn sample(schema: &Map<String, Value>) -> Value {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    required.map(|name| (name.to_owned(), value(name))).collect::<Map<String, Value>>().into()
}

/// Agrees to everything.
#[derive(Debug)]
struct Robot;

impl Host for Robot {
    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        let params: Value = params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let answer = match method {
            "elicitation/create" => json!({ "action": "accept", "content": defaults(&params["requestedSchema"]) }),
            "roots/list" => json!({ "roots": [] }),
            "sampling/createMessage" => {
                json!({ "role": "assistant", "content": { "type": "text", "text": "yes" }, "model": "robot" })
            }
            _ => return Box::pin(async move { Err(RpcError::method_not_found(method)) }),
        };
        Box::pin(async move { to_raw_value(&answer).map_err(|error| RpcError::new(-32603, error.to_string(), 500)) })
    }
}

/// The form as it stands before anybody has typed: its defaults, and a yes where there is none.
fn defaults(schema: &Value) -> Map<String, Value> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let value = |field: &Value| match (field.get("default"), field["type"].as_str()) {
        (Some(default), _) => Some(default.clone()),
        (None, Some("boolean")) => Some(json!(true)),
        _ => None,
    };
    fields.filter_map(|(name, field)| Some((name.clone(), value(field)?))).collect()
}

impl Browser for Robot {
    fn redirect_uri(&self) -> String {
        "http://127.0.0.1:3000/callback".into()
    }

    /// The suite's page asks nobody anything: it answers with where to go.
    fn visit<'a>(&'a self, page: &'a Url, _: &'a str) -> BoxFuture<'a, Result<Url, OAuthError>> {
        Box::pin(async move {
            let failed = || OAuthError::Unusable("the authorization page leads nowhere".into());
            let address = (page.host_str().ok_or_else(failed)?, page.port_or_known_default().ok_or_else(failed)?);
            let mut stream = TcpStream::connect(address).await.map_err(OAuthError::Listener)?;
            let target = &page[url::Position::BeforePath..];
            let request =
                format!("GET {target} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n", address.0, address.1);
            stream.write_all(request.as_bytes()).await.map_err(OAuthError::Listener)?;
            let mut answer = Vec::new();
            stream.take(64 * 1024).read_to_end(&mut answer).await.map_err(OAuthError::Listener)?;
            let answer = String::from_utf8_lossy(&answer);
            let headers = answer.lines().filter_map(|line| line.split_once(": "));
            let location = headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
            Url::parse(location.ok_or_else(failed)?.1.trim()).map_err(|_| failed())
        })
    }
}
