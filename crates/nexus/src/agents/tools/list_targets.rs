//! `list_targets`: whom tasks can be sent to.

use nexus_core::clock;
use nexus_core::prelude::*;

use super::failed;
use super::hearing::Hearing;
use super::shown;
use crate::agents::Bridge;
use crate::agents::targets::Target;

/// Lists the agents that `send_message` can reach: what each is for, how it is reached, and whether it is there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTargets {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Listed {
    /// The one that is meant where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    targets: Vec<ListedTarget>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListedTarget {
    target: String,
    /// How it is reached: worker, telegram or webhook.
    way: &'static str,
    /// What the agent is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// How often a task may be started.
    max_attempts: u32,
    /// Seconds after which an unfinished task is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heard: Option<String>,
    /// Nobody takes what is sent there, as far as the hub knows; it waits until somebody comes.
    deaf: bool,
}

impl Tool<Bridge> for ListTargets {
    const NAME: &'static str = "list_targets";
    const ACCESS: Access = Access::Read;
    type Reply = Listed;

    fn summary(&self) -> String {
        "list the agents".to_owned()
    }

    async fn run(self, bridge: &Bridge, _: &CallCx) -> ToolResult<Listed> {
        let channels = bridge.queue.channels().await.map_err(failed)?;
        let mut targets = Vec::new();
        for target in bridge.targets.iter() {
            let most = Hearing::most_running(Some(target));
            let running = bridge.queue.first_running(&target.name, most).await.map_err(failed)?;
            targets.push(listed(target, &Hearing::of_target(target, &channels, &running, clock::now())));
        }
        let default = bridge.targets.default().map(|target| target.name.to_string());
        Ok(Listed { default, targets })
    }
}

fn listed(target: &Target, hearing: &Hearing) -> ListedTarget {
    ListedTarget {
        target: target.name.to_string(),
        way: target.way.as_str(),
        description: target.description.clone(),
        max_attempts: target.max_attempts,
        deadline_s: target.deadline.map(|deadline| deadline.as_secs()),
        last_heard: hearing.last_heard.map(shown::time),
        deaf: hearing.deaf,
    }
}
