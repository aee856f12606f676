//! The client for ComputerCraft, served by the door that it will call: `wget run http://hub:3001/install.lua`.

use crate::upgrade::{Method, Refusal, response};

const CLIENT: &str = include_str!("../../../clients/computercraft/nexus.lua");
const INSTALLER: &str = include_str!("../../../clients/computercraft/install.lua");

const NOTHING: Refusal = Refusal::new(404, "Not Found", "there is /install.lua, /nexus.lua, and a WebSocket\n");
const DOOR: Refusal = Refusal::new(
    426,
    "Upgrade Required",
    "This is the door for ComputerCraft computers. At a computer: wget run http://THIS-ADDRESS/install.lua\n",
);

/// What stands at a path. `host` is how the computer calls this hub, and is plain.
pub fn page(path: &str, method: Method, host: &str, needs_token: bool) -> Vec<u8> {
    let program = match path.split('?').next() {
        Some("/nexus.lua") => CLIENT,
        Some("/install.lua") => INSTALLER,
        Some("/") => return DOOR.render(),
        _ => return NOTHING.render(),
    };
    let program = program.replace("@ADDRESS@", host).replace("@TOKEN_NEEDED@", &needs_token.to_string());
    let mut answer = response("200 OK", "", program.as_bytes());
    if method == Method::Head {
        answer.truncate(answer.len() - program.len());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_knows_where_it_came_from() {
        for path in ["/nexus.lua", "/install.lua?x=1"] {
            let page = String::from_utf8(page(path, Method::Get, "192.168.1.10:3001", true)).unwrap();
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("192.168.1.10:3001"), "{page}");
            assert!(!page.contains("@ADDRESS@") && !page.contains("@TOKEN_NEEDED@"), "{page}");
        }
        let head = page("/nexus.lua", Method::Head, "hub", false);
        assert!(head.ends_with(b"\r\n\r\n"));
        assert!(page("/etc/passwd", Method::Get, "hub", false).starts_with(b"HTTP/1.1 404"));
        assert!(page("/", Method::Get, "hub", false).starts_with(b"HTTP/1.1 426"));
    }
}
