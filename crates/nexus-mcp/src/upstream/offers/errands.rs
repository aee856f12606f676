//! The names under which the hub calls what is no tool: a server's prompts and resources go through the gate and into
//! the record like its tools do.

use serde_json::Map;
use sha2::{Digest, Sha256};

use nexus_core::name::{BadToolName, ServerName, ToolName};
use nexus_core::tool::{Access, Foreign, Listed, ToolSpec};

use crate::upstream::names::slug_of;

/// Characters of a server's part in such a name.
const LONGEST: usize = 40;

/// The names of one server. Tools of servers never have two underscores in a row, so these are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Errands {
    pub(crate) get_prompt: ToolName,
    pub(crate) read_resource: ToolName,
    pub(crate) complete: ToolName,
    pub(crate) follow: ToolName,
}

impl Errands {
    pub(crate) fn of(server: &ServerName) -> Result<Self, BadToolName> {
        let base = base(server);
        let name = |what: &str| ToolName::parse(&format!("mcp_{base}__{what}"));
        Ok(Self {
            get_prompt: name("get_prompt")?,
            read_resource: name("read_resource")?,
            complete: name("complete")?,
            follow: name("follow")?,
        })
    }

    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        let spec = |name: &ToolName, title: &str| {
            ToolSpec::foreign(Foreign {
                name: name.clone(),
                title: title.to_owned(),
                description: title.to_owned(),
                access: Access::ReadLogged,
                input: Map::new(),
                rendered: "{}".into(),
                listed: Listed::Nobody,
            })
        };
        vec![
            spec(&self.get_prompt, "Get a prompt"),
            spec(&self.read_resource, "Read a resource"),
            spec(&self.complete, "Complete an argument"),
            spec(&self.follow, "Follow a resource"),
        ]
    }
}

/// The server's name as it is where it can stand in a tool's name; otherwise with a hash, so that no two are the same.
fn base(server: &ServerName) -> String {
    let mut slug = slug_of(server);
    if slug == server.as_str() && slug.len() <= LONGEST {
        return slug;
    }
    let hash: String = Sha256::digest(server.as_str()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    slug.truncate(LONGEST - hash.len() - 1);
    format!("{}_{hash}", slug.trim_end_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_servers_share_a_name_and_none_is_too_long() {
        let read = |server: &str| Errands::of(&ServerName::new(server)).unwrap().read_resource.as_str().to_owned();
        assert_eq!(read("github"), "mcp_github__read_resource");
        let names = ["github", "GitHub", "git hub", "git-hub", "git_hub", "", "/", &"x".repeat(400), &"x".repeat(401)];
        let mut made: Vec<String> = names.iter().map(|name| read(name)).collect();
        assert!(made.iter().all(|name| name.len() <= 64 && name.starts_with("mcp_")), "{made:?}");
        made.sort();
        made.dedup();
        assert_eq!(made.len(), names.len(), "{made:?}");
    }
}
