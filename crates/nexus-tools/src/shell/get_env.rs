//! `get_env`: the names of the hub's variables, and the values of those an operator lets be read.

use std::collections::BTreeMap;

use crate::prelude::*;

/// Lists the environment variables of the hub: all names, and the values of the few that may be read.
///
/// Values are held back because they often are secrets. With `key`, only that variable.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetEnv {
    /// The variable's name. Without it, all are listed.
    key: Option<String>,
    /// Node to look on; without it, the hub's own machine.
    node: Option<NodeName>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Variables {
    /// Names of the variables that are set, sorted.
    names: Vec<String>,
    /// Values of those that may be read.
    values: BTreeMap<String, String>,
}

#[derive(Debug, Error)]
#[error("the value of `{0}` is not shown")]
struct NotReadable(String);

impl Tool<Toolbox> for GetEnv {
    const NAME: &'static str = "get_env";
    const ACCESS: Access = Access::Read;
    type Reply = Variables;

    fn summary(&self) -> String {
        match &self.key {
            Some(key) => format!("read the variable {key} on {}", super::on(self.node.as_ref())),
            None => format!("list the variables on {}", super::on(self.node.as_ref())),
        }
    }

    fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    async fn run(self, env: &Toolbox, _: &CallCx) -> ToolResult<Variables> {
        let Node::Local(_) = env.node(self.node.as_ref())?;
        let readable = |name: &String| env.settings.readable_env.contains(name);
        if let Some(key) = self.key.as_ref().filter(|key| !readable(key)) {
            let allowed = env.settings.readable_env.join(", ");
            return Err(ToolError::refused(NotReadable(key.chars().take(100).collect())).hint(format!(
                "readable are: {allowed}; an operator can add names to `shell.readable_env` in nexus.yaml"
            )));
        }
        let asked = |name: &&(String, String)| self.key.as_ref().is_none_or(|key| *key == name.0);
        let found: BTreeMap<_, _> = env.settings.env.iter().filter(asked).cloned().collect();
        Ok(Variables {
            names: found.keys().cloned().collect(),
            values: found.into_iter().filter(|(name, _)| readable(name)).collect(),
        })
    }
}
