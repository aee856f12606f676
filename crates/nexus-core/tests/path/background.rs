//! What a human reads before they answer: what is known of the matter, and a summary that is hidden before it is cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nexus_core::approval::Scope;
use nexus_core::arguments::Arguments;
use nexus_core::call::{Call, Said};
use nexus_core::gate::Answer;
use nexus_core::hub::Outcome;
use nexus_core::prelude::*;
use nexus_core::principal::Level;
use nexus_core::provider::{Origin, Own};
use nexus_core::tool::{Entry, Family};
use serde_json::json;

use crate::bench::Bench;

/// How often it was asked what is known.
#[derive(Default)]
struct Library(AtomicUsize);

/// Writes a letter.
#[derive(Debug, Deserialize, JsonSchema)]
struct Write {
    words: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Written {}

impl Tool<Library> for Write {
    const NAME: &'static str = "write";
    const ACCESS: Access = Access::Write;
    const LONGEST_SUMMARY: usize = 40;
    type Reply = Written;

    fn summary(&self) -> String {
        format!("write: {}", self.words)
    }

    fn background(&self, library: &Arc<Library>) -> Option<BoxFuture<'static, Option<String>>> {
        library.0.fetch_add(1, Ordering::SeqCst);
        Some(std::future::ready(Some("it is known".to_owned())).boxed())
    }

    async fn run(self, _: &Library, _: &CallCx) -> ToolResult<Written> {
        Ok(Written {})
    }
}

const TOOLS: &[Entry<Library>] = &[Entry::of::<Write>()];

fn bench() -> (Bench, Arc<Library>) {
    let (bench, library) = (Bench::new(Level::Trusted), Arc::new(Library::default()));
    let family = Family::new(Origin::Own(Own::Links), library.clone(), &[TOOLS]).unwrap();
    drop(bench.hub.catalogue.attach(Arc::new(family)));
    (bench, library)
}

async fn asked(bench: &Bench, words: &str) -> Box<nexus_core::hub::Pending> {
    match bench.call("write", json!({ "words": words })).await {
        Ok(Outcome::Ask(pending)) => pending,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_known_is_looked_up_for_who_is_asked_and_not_when_they_have_answered() {
    let (bench, library) = bench();
    let looked = || library.0.load(Ordering::SeqCst);
    let pending = asked(&bench, "a").await;
    assert_eq!((pending.summary(), looked()), ("write: a (it is known)", 1));
    // The operator answers, and the call comes again.
    let code = pending.code();
    pending.asked("operator");
    bench.hub.approvals.approve(&code, Scope::Once).await.unwrap();
    assert!(!bench.reply("write", json!({ "words": "a" })).await.is_error());
    assert_eq!(looked(), 1);
    // The answer comes with the next try.
    let pending = asked(&bench, "b").await;
    let ticket = pending.ticket();
    pending.asked("input_required");
    let args = json!({ "words": "b" }).as_object().unwrap().clone();
    let said = Some(Said::Answer { ticket, heard: Some(Ok(Answer::Once)) });
    let call = Call { tool: "write".to_owned(), args: Arguments::tree_of(args), said, cx: bench.cx.clone() };
    let Ok(Outcome::Done(reply)) = bench.hub.call(call).await else { panic!("it was asked again") };
    assert!(!reply.is_error());
    assert_eq!(looked(), 2);
}

#[tokio::test]
async fn a_summary_is_cut_when_all_is_hidden_that_is_to_be() {
    let (bench, _) = bench();
    for before in 0..40 {
        let words = format!("{} https://me:hunter2hunter2@host/ and more", "x".repeat(before));
        let pending = asked(&bench, &words).await;
        let shown = pending.summary().to_owned();
        assert!(!shown.contains("hunter") && shown.chars().count() <= 41 + " (it is known)".len(), "{shown}");
        pending.asked("operator");
        let row = bench.kept.rows.lock().last().unwrap().call.clone().unwrap();
        assert!(!format!("{row:?}").contains("hunter"), "{row:?}");
    }
}

#[tokio::test]
async fn who_decides_sees_what_a_secret_would_hide_also_where_it_is_cut() {
    let (bench, _) = bench();
    let pending = asked(&bench, &format!("Cookie: sid=hunter2; rm -rf / {}", "x".repeat(100))).await;
    assert_eq!(pending.summary(), "write: Cookie: sid=hunter2; rm -rf / xxx… (it is known)");
    pending.asked("operator");
    let row = bench.kept.rows.lock().last().unwrap().call.clone().unwrap();
    assert_eq!(row.summary.unwrap(), "write: Cookie: [redacted] (it is known)");
}
