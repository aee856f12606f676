//! The port for computers: taken, switched off, or as the ready line says.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::failure;
use crate::support::computers::free_address;
use crate::support::{Hub, Program, Stdio, within};

/// Leaves the machine's network behind if it can, takes the usual port (or leaves it free), and becomes the program.
/// Where it cannot and somebody else has that port, it is just as taken.
const LAUNCHER: &str = r#"
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import with_hub
alone = with_hub.try_only_loopback()
if sys.argv[2] == "free" and not alone:
    sys.exit(77)
if sys.argv[2] == "taken":
    taken = socket.socket()
    try:
        taken.bind(("0.0.0.0", 3001))
        taken.listen()
        taken.set_inheritable(True)
    except OSError:
        if alone:
            raise
os.execv(sys.argv[3], sys.argv[3:])
"#;

/// Nothing is configured but where its data is.
fn unconfigured(command: &str, port: &str, folder: &Path) -> Program {
    let tests = format!("{}/../../tests", env!("CARGO_MANIFEST_DIR"));
    let program = Program::bare(&[command]).data(&folder.join("data")).current_dir(folder);
    program.launched_by(&["python3", "-B", "-c", LAUNCHER, &tests, port])
}

/// What it says until it is ready. None: this machine allows no network of one's own.
async fn ready(program: &Program) -> (tokio::process::Child, Option<String>) {
    let (child, mut talk) = program.spawn_talking();
    let said = within("the ready line", talk.wait_for(|said| said.contains("nexus ready mcp="))).await;
    let said = said.map(|said| said.clone()).ok();
    (child, said)
}

#[tokio::test]
async fn without_any_configuration_it_listens_on_3001_and_warns_of_links_without_a_token() {
    let folder = TempDir::new().unwrap();
    let (mut hub, said) = ready(&unconfigured("serve", "free", folder.path())).await;
    let Some(said) = said else {
        assert_eq!(hub.wait().await.unwrap().code(), Some(77), "it did not come up");
        return;
    };
    assert!(said.contains(" links=ws://0.0.0.0:3001/ "), "{said}");
    assert!(said.contains("computers may link without a token, from private addresses"), "{said}");
}

/// Gives its own loopback a public address, calls the program from there and from this machine, and notes what it heard.
const STRANGER: &str = r#"
import fcntl, os, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
import with_hub
if not with_hub.try_only_loopback():
    sys.exit(77)
SIOCSIFADDR, PUBLIC = 0x8916, "203.0.113.1"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(PUBLIC))
    fcntl.ioctl(any_socket, SIOCSIFADDR, struct.pack("16s16s", b"lo:1", address))
if os.fork() == 0:
    heard = []
    for source in (PUBLIC, "127.0.0.1"):
        for _ in range(400):
            try:
                with socket.create_connection((source, 3001), 5, (source, 0)) as caller:
                    caller.sendall(b"GET /install.lua HTTP/1.1\r\nHost: hub\r\n\r\n")
                    heard.append(caller.recv(4096).decode().split("\r\n")[0])
                    break
            except OSError:
                time.sleep(0.05)
    with open(sys.argv[2] + ".part", "w") as file:
        file.write("\n".join(heard))
    os.rename(sys.argv[2] + ".part", sys.argv[2])
    os._exit(0)
os.execv(sys.argv[3], sys.argv[3:])
"#;

#[tokio::test]
async fn without_a_token_nobody_is_let_in_from_a_public_address() {
    let folder = TempDir::new().unwrap();
    let heard = folder.path().join("heard");
    let tests = format!("{}/../../tests", env!("CARGO_MANIFEST_DIR"));
    let program = Program::bare(&["serve"]).data(&folder.path().join("data")).current_dir(folder.path());
    let program = program.launched_by(&["python3", "-B", "-c", STRANGER, &tests, heard.to_str().unwrap()]);
    let (mut hub, said) = ready(&program).await;
    if said.is_none() {
        assert_eq!(hub.wait().await.unwrap().code(), Some(77), "it did not come up");
        return;
    }
    let told = within("what the callers heard", async {
        loop {
            match std::fs::read_to_string(&heard) {
                Ok(told) => break told,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    assert_eq!(told.await, "HTTP/1.1 403 Forbidden\nHTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_hub_serves_though_the_usual_port_is_taken_and_its_tools_say_why() {
    let folder = TempDir::new().unwrap();
    let program = unconfigured("serve", "taken", folder.path()).env("MCP_PORT", "0");
    let (hub, said) = ready(&program).await;
    let said = said.unwrap();
    assert!(!said.contains("links=") && !said.contains("without a token"), "{said}");
    let why = "0.0.0.0:3001 is taken by another program; CC_LINK_PORT=3002 listens for computers on another port";
    assert!(said.contains("no computer can link with this hub") && said.contains(why), "{said}");
    // Through its control socket: its network may be one of its own.
    let beside = Program::bare(&["stdio"]).data(&folder.path().join("data")).current_dir(folder.path());
    let mut door = Stdio::legacy(&beside).await;
    for (tool, arguments) in [("probe-computers", json!({})), ("list_peripherals", json!({ "computer": 12 }))] {
        let told = failure(&door.call(tool, arguments).await);
        assert!(told.contains("no computers can be reached") && told.contains(why), "{told}");
    }
    assert!(
        door.said().contains(&format!("process {} does the background work", hub.id().unwrap())),
        "{}",
        door.said()
    );
    assert_eq!(door.end().await.1, Some(0));
}

#[tokio::test]
async fn a_door_alone_serves_though_the_usual_port_is_taken() {
    let folder = TempDir::new().unwrap();
    let mut door = Stdio::legacy(&unconfigured("stdio", "taken", folder.path())).await;
    door.says("no computer can link with this hub").await;
    let told = failure(&door.call("probe-computers", json!({})).await);
    assert!(told.contains("0.0.0.0:3001 is taken by another program"), "{told}");
    assert!(!door.request("tools/list", json!({})).await["result"]["tools"].as_array().unwrap().is_empty());
    assert_eq!(door.end().await.1, Some(0));
}

#[tokio::test]
async fn a_port_that_was_chosen_and_is_taken_ends_the_start_before_a_key_is_shown() {
    let address = free_address();
    let _taken = TcpListener::bind(address).unwrap();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let by_variable = Hub::start().keyless().env("CC_LINK_HOST", &host).env("CC_LINK_PORT", &port);
    let by_file = Hub::start().keyless().without_env("CC_LINK_HOST").without_env("CC_LINK_PORT");
    let by_file = by_file.yaml(&format!("links: {{ host: {host}, port: {port} }}"));
    for setup in [by_variable, by_file] {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let ran = setup.data(&data).refused().await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains(&format!("{address} is taken by another program")), "{ran:?}");
        assert!(ran.stderr.contains("CC_LINK_PORT=0"), "{ran:?}");
        assert!(!ran.stderr.contains("nxk_") && !ran.stderr.contains("nexus ready"), "{ran:?}");
        assert!(!data.join("key").exists());
    }
    let folder = TempDir::new().unwrap();
    let door = Program::bare(&["stdio"]).data(&folder.path().join("data")).current_dir(folder.path());
    let ran = door.env("CC_LINK_HOST", &host).env("CC_LINK_PORT", &port).run().await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.contains(&format!("{address} is taken by another program")), "{ran:?}");
}

#[tokio::test]
async fn links_can_be_switched_off() {
    let hub = Hub::start().robot().yaml("links: { enabled: false }").await;
    assert_eq!(hub.door(), None, "{}", hub.said());
    assert!(!hub.said().contains("links="), "{}", hub.said());
    let health = hub.health().await;
    assert_eq!(
        (&health["ok"], &health["computers"], &health["links"]["state"]),
        (&json!(true), &json!(0), &json!("closed"))
    );
    let robot = hub.robot();
    let mut door = Stdio::legacy(&hub.program(&["stdio"])).await;
    for (tool, arguments) in [
        ("probe-computers", json!({})),
        ("list_computers", json!({})),
        ("run_lua", json!({ "computer": 12, "code": "x" })),
        ("stop_computers", json!({})),
    ] {
        let told = failure(&robot.call(tool, arguments.clone()).await);
        assert!(
            told.contains("no computers can be reached: links are switched off: `links.enabled`"),
            "{tool}: {told}"
        );
        if matches!(tool, "probe-computers" | "list_computers") {
            let told = failure(&door.call(tool, arguments).await);
            assert!(told.contains("links are switched off"), "{tool}: {told}");
        }
    }
}

#[tokio::test]
async fn the_ready_line_names_the_port_that_was_found() {
    let mut hub = Hub::start().await;
    let door = hub.door().unwrap();
    assert!(door.ip().is_loopback() && door.port() != 0, "{door}");
    assert!(hub.said().contains(&format!("/sse links=ws://{door}/ pid={}", hub.pid)), "{}", hub.said());
    assert!(!hub.said().contains("without a token"), "nobody beyond this machine: {}", hub.said());
    hub.restart().await;
    assert!(hub.door().is_some());
}

#[tokio::test]
async fn a_token_that_is_too_short_is_a_fault_of_the_configuration() {
    let ran = Hub::start().env("CC_LINK_TOKEN", "q7q7q7q").refused().await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("environment: CC_LINK_TOKEN") && !ran.stderr.contains("q7q7q7q"), "{ran:?}");
    assert!(ran.stderr.contains("1 fault; nothing was started"), "{ran:?}");
}
