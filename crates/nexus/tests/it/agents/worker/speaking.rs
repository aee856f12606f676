//! A command that speaks with the operator.

use serde_json::json;

use super::Worker;
use crate::support::Hub;

#[tokio::test]
async fn a_question_waits_for_its_answer_and_the_command_goes_on_with_it() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let script = r#"echo before; "$NEXUS" agent say "half of it is done"; a=$("$NEXUS" agent ask "Which disk?") && echo "so $a it is""#;
    let _worker = Worker::start(&hub, script);
    let task = model.sends("clean up").await;
    model.comes_to(&task, "input_required").await;
    let said = model.all_about(&task).await;
    let said: Vec<(&str, &str)> = said.iter().map(|(kind, words)| (kind.as_str(), words.as_str())).collect();
    assert_eq!(said[1..], [("progress", "before"), ("progress", "half of it is done"), ("question", "Which disk?")]);

    model.does("answer_task", json!({ "id": task, "answer": "the big one" })).await;
    let done = model.comes_to(&task, "complete").await;
    assert_eq!(done["result"], "before\nso the big one it is");
}

#[tokio::test]
async fn a_question_of_a_cancelled_task_ends_with_the_reason() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let file = hub.path("said");
    // The one that asks is not interrupted by what interrupts its shell.
    let script = format!(r#"trap '' INT; "$NEXUS" agent ask "May I?" 2> {}; echo "code $?""#, file.display());
    let _worker = Worker::start(&hub, &script);
    let task = model.sends("ask me").await;
    model.comes_to(&task, "input_required").await;
    model.does("cancel_task", json!({ "id": task, "reason": "no longer wanted" })).await;
    model.hears(&task, "code 1").await;
    let why = std::fs::read_to_string(&file).unwrap();
    assert!(why.contains("no longer wanted") || why.contains("cancelled"), "{why}");
}

#[tokio::test]
async fn several_questions_at_once_get_their_own_answers() {
    let hub = Hub::with_agents().await;
    let (model, _) = hub.bridge().await;
    let script = r#"a=$("$NEXUS" agent ask one); b=$("$NEXUS" agent ask two); echo "$a $b""#;
    let _worker = Worker::start(&hub, script);
    let task = model.sends("ask twice").await;
    for (question, answer) in [("one", "first"), ("two", "second")] {
        model.hears(&task, question).await;
        model.comes_to(&task, "input_required").await;
        model.does("answer_task", json!({ "id": task, "answer": answer })).await;
    }
    assert_eq!(model.comes_to(&task, "complete").await["result"], "first second");
}
