//! A hub with targets, and the two sides of its bridge: a model that sends, an agent that serves.

use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Executor};

use super::{Client, Hub, LOOK_AGAIN, Setup, secret, within};

/// Two targets that are served by workers; `homelab` is the default.
pub const TARGETS: &str = "
agents:
  default: homelab
  targets:
    homelab: { worker: {}, description: the management node }
    attic: { worker: {} }
";

/// The model's key: its messages need no approval.
pub const MODEL: &str = "model";
/// The key of the agent that serves `homelab`.
pub const AGENT: &str = "agent";
/// The key of the agent that serves `attic`.
pub const ATTIC: &str = "attic-agent";

/// What the model's key may write without asking.
const APPROVED: &str = "approved: [send_message, cancel_task, answer_task, retry_task]";

impl Hub {
    /// With [`TARGETS`], a model's key and a key for each agent.
    pub fn with_agents() -> Setup {
        Hub::start().yaml(TARGETS).agent_keys()
    }

    /// Waits until `/health` tells this of the tasks.
    pub async fn has_tasks(&self, numbers: &Value) {
        let look = async {
            while self.health().await["agents"] != *numbers {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        within(&format!("/health to tell {numbers}"), look).await;
    }

    /// Nobody else writes into the store until what it gives is dropped.
    pub async fn hold_store(&self) -> SqliteConnection {
        let mut holder = SqliteConnectOptions::new().filename(self.data.join("nexus.db")).connect().await.unwrap();
        holder.execute("BEGIN EXCLUSIVE").await.unwrap();
        holder
    }

    /// The two sides of a bridge, each in an era of its own.
    pub async fn bridge(&self) -> (Client, Client) {
        (self.legacy(&secret(MODEL)).await, self.modern(&secret(AGENT)))
    }
}

impl Setup {
    /// The keys of [`Hub::with_agents`], for other targets in the file.
    pub fn agent_keys(self) -> Self {
        self.key(MODEL, APPROVED).key(AGENT, "target: homelab").key(ATTIC, "target: attic")
    }
}

impl Client {
    /// Sends a message that is to be queued; its id.
    pub async fn sends(&self, message: &str) -> String {
        let sent = self.does("send_message", json!({ "message": message })).await;
        assert_eq!(sent["queued"], true, "{sent}");
        sent["id"].as_str().unwrap().to_owned()
    }

    /// Answers the question that a task waits for.
    pub async fn answers(&self, id: &str, answer: &str) -> Value {
        let question = self.does("get_task", json!({ "id": id })).await["question_id"].clone();
        self.does("answer_task", json!({ "id": id, "answer": answer, "question_id": question })).await
    }

    /// The updates since the last look, without moving on by an explicit cursor.
    pub async fn pulls(&self, arguments: Value) -> Vec<Value> {
        let pulled = self.does("pull_updates", arguments).await;
        pulled["updates"].as_array().unwrap_or_else(|| panic!("{pulled}")).clone()
    }

    /// The words of an error that the caller can mend.
    #[track_caller]
    pub fn fails(&self, tool: &str, arguments: Value) -> impl Future<Output = String> {
        let tool = tool.to_owned();
        async move {
            let result = self.call(&tool, arguments.clone()).await;
            assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
            let error = &result["structuredContent"]["error"];
            let words = ["message", "hint"].map(|part| error[part].as_str().unwrap_or_default());
            words.join(" ")
        }
    }
}

/// Kind and content of updates, for a look at all of them.
pub fn told(updates: &[Value]) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    updates.iter().map(|update| (word(&update["kind"]), word(&update["content"]))).collect()
}
