//! The tools about tasks: those of the model that sends them, and those of the agent that serves them.

use std::sync::Arc;

use nexus_core::ToolError;
use nexus_core::provider::{Origin, Own};
use nexus_core::tool::{BadTool, Entry, Family};

use super::Bridge;
use super::queue::QueueError;

mod answer_task;
mod ask_operator;
mod cancel_task;
mod claim_task;
mod complete_task;
mod fail_task;
mod get_task;
mod hearing;
mod known;
mod list_targets;
mod list_tasks;
mod peek_tasks;
mod post_update;
mod pull_updates;
mod queue_status;
mod report;
mod retry_task;
mod send_message;
mod serving;
mod shown;
mod vigil;
mod words;

/// For the model.
pub const FOR_MODELS: &[Entry<Bridge>] = &[
    Entry::of::<send_message::SendMessage>(),
    Entry::of::<pull_updates::PullUpdates>(),
    Entry::of::<queue_status::QueueStatus>(),
    Entry::of::<get_task::GetTask>(),
    Entry::of::<list_tasks::ListTasks>(),
    Entry::of::<list_targets::ListTargets>(),
    Entry::of::<answer_task::AnswerTask>(),
    Entry::of::<cancel_task::CancelTask>(),
    Entry::of::<retry_task::RetryTask>(),
];

/// For the agent that serves a target: [`super::FOR_AGENTS`].
pub const FOR_AGENTS: &[Entry<Bridge>] = &[
    Entry::of::<claim_task::ClaimTask>(),
    Entry::of::<peek_tasks::PeekTasks>(),
    Entry::of::<post_update::PostUpdate>(),
    Entry::of::<ask_operator::AskOperator>(),
    Entry::of::<complete_task::CompleteTask>(),
    Entry::of::<fail_task::FailTask>(),
];

pub fn tools(bridge: &Arc<Bridge>) -> Result<Family<Bridge>, BadTool> {
    Family::new(Origin::Own(Own::Agents), bridge.clone(), &[FOR_MODELS, FOR_AGENTS])
}

/// What the queue could not do, told to the caller.
fn failed(error: QueueError) -> ToolError {
    match &error {
        QueueError::Unknown(_) => ToolError::refused(error).hint("`list_tasks` shows those there are"),
        QueueError::Conflict { .. } => ToolError::refused(error).hint("`get_task` tells what happened to it"),
        QueueError::Lost { .. } => ToolError::refused(error).hint("`peek_tasks` shows what is still yours"),
        QueueError::SameWords { .. } => ToolError::refused(error).hint("wait for that one, or cancel it first"),
        QueueError::Store(_) => ToolError::failed(error)
            .hint("perhaps nothing was changed; try again, and if it stays so the operator should look at the hub's disk and store"),
        QueueError::Ending => ToolError::failed(error).hint("try again when it is back"),
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::tool::{Access, Listed};

    use super::*;

    #[test]
    fn an_agents_key_is_good_for_what_agents_are_shown() {
        let specs: Vec<_> = FOR_AGENTS.iter().map(|entry| entry.spec().unwrap()).collect();
        let mut names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let mut known = super::super::FOR_AGENTS;
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
        assert!(specs.iter().all(|spec| spec.listed == Listed::Agents && spec.most == Access::ReadLogged));
    }

    #[test]
    fn the_model_starts_and_ends_work_only_with_a_yes() {
        let specs = FOR_MODELS.iter().map(|entry| entry.spec().unwrap());
        let (writes, reads): (Vec<_>, Vec<_>) = specs.partition(|spec| spec.most == Access::Write);
        let names = |specs: &[nexus_core::tool::ToolSpec]| -> Vec<String> {
            specs.iter().map(|spec| spec.name.to_string()).collect()
        };
        assert_eq!(names(&writes), ["send_message", "answer_task", "cancel_task", "retry_task"]);
        assert!(reads.iter().all(|spec| spec.access == Access::Read && spec.listed == Listed::Everyone));
    }
}
