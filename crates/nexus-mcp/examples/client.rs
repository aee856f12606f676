//! Uses other MCP servers from a program that is no hub: one that is started, and one that is called.
//!
//!     nexus test-server --http 9000                                                            in one terminal
//!     cargo run -p nexus-mcp --example client -- http://127.0.0.1:9000/mcp nexus test-server   in another
//!
//! The address comes first, then the command; both servers must have the tools of `nexus test-server`.

#![allow(clippy::disallowed_methods, reason = "a program of its own: it reads its environment itself")]
#![allow(clippy::print_stdout, reason = "it is there to show something")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use nexus_core::name::ServerName;
use nexus_core::principal::{Level, PrincipalId};
use nexus_core::tasks::Tasks;
use nexus_mcp::upstream::client::{Client, Listed, Options};
use nexus_mcp::upstream::config::{Endpoint, HttpEndpoint, Program, ServerConfig};
use nexus_mcp::upstream::log::ServerLog;
use nexus_mcp::upstream::pins::InMemory;
use nexus_mcp::upstream::registry::{Caller, Registry, Standard, Visibility};
use nexus_mcp::upstream::supervisor::Parts;
use nexus_mcp::upstream::transport::stdio::StdioConnector;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let (Some(url), Some(command)) = (words.next(), words.next()) else {
        return Err("usage: client URL COMMAND [ARGUMENT]…".into());
    };
    let program = Program::new(command, words).inherit(std::env::vars());

    let tasks = Tasks::new();
    one_connection(program.clone(), &tasks).await?;
    many_servers(program, &url, &tasks).await?;
    // Everything that was started has ended by now.
    println!("nothing left behind: {}", tasks.finish(Duration::from_secs(5)).await);
    Ok(())
}

/// A single server, without anybody who looks after it.
async fn one_connection(program: Program, tasks: &Tasks) -> Outcome {
    let log = Arc::new(ServerLog::new());
    let connector = Arc::new(StdioConnector::new(program, log, tasks.clone()));
    let client = Client::connect(connector, Options::new(tasks.clone())).await?;
    let server = client.server();
    println!("{} {} speaks {}", server.name, server.version, server.protocol_version);
    println!("it lists {} tools", client.list(Listed::Tools).await?.len());
    println!("2 + 3 = {}", client.call_tool("add", &json!({ "a": 2, "b": 3 })).await?.text());
    client.close().await;
    println!("connected: {}", client.is_connected());
    Ok(())
}

/// Several servers that are kept alive, with names that do not clash, and seen by whom they should be.
async fn many_servers(program: Program, url: &str, tasks: &Tasks) -> Outcome {
    let connectors = Arc::new(Standard::new(tasks.clone()));
    let registry = Registry::new(Parts::new(connectors, Arc::new(InMemory::default()), tasks.clone()));
    let (ann, bob) = (PrincipalId::new("ann"), PrincipalId::new("bob"));
    let level = Some(Level::Trusted);

    let started = ServerConfig::new("started", Endpoint::Stdio(program));
    let called = ServerConfig::new("called", Endpoint::Http(HttpEndpoint::new(url)));
    let shared = registry.connect(started, Visibility::Shared, level).await?;
    let private = registry.connect(called, Visibility::Private(ann.clone()), level).await?;
    tokio::try_join!(shared.ready(), private.ready())?;

    for agent in [&ann, &bob] {
        let names: Vec<String> = registry.list_for(agent).iter().map(|upstream| upstream.name().to_string()).collect();
        println!("{agent} sees {}", names.join(", "));
    }
    for tool in shared.offer().allowed() {
        println!("{}: {}", tool.exposed, tool.description);
    }
    if let Some((upstream, tool)) = registry.find_by_tool("mcp_called_echo", &ann) {
        println!("{} is `{}` of {}", tool.exposed, tool.original, upstream.name());
    }

    let session = Uuid::now_v7();
    let [ann_calls, bob_calls] = [&ann, &bob].map(|agent| Caller { agent: agent.clone(), level, session });
    for (caller, tool) in [(&ann_calls, "mcp_called_echo"), (&bob_calls, "mcp_called_echo")] {
        match registry.call(caller, tool, &json!({ "message": "hello" })).await {
            Ok(result) => println!("{} hears {}", caller.agent, result.text()),
            Err(error) => println!("{} hears nothing: {error}", caller.agent),
        }
    }

    for status in registry.check_connections().await {
        println!("{} is {}", status.name, status.state);
    }
    let name = ServerName::new("called");
    registry.disconnect(&name, &ann).await?;
    println!("connected: {}", registry.is_connected(&name, &ann));
    registry.close_all().await;
    Ok(())
}
