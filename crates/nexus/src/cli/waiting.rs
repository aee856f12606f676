//! A call that waits for a yes, told to the person at the terminal. The hub's own words about it are for models.

use serde_json::Value;

use nexus_core::text;

use super::one_line;

/// Characters of what would be done.
const LONGEST_SUMMARY: usize = 2_000;

/// What the hub said instead of doing it.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting {
    pub code: String,
    /// The tool, where it would run, and what it would do there.
    what: String,
}

/// Where the yes can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the REPL, for a tool of the hub.
    Here,
    /// In the REPL, for a tool of a server behind it.
    HereForServer,
    /// Only at the command line of the hub.
    Hub,
    /// The session in which it waited is over.
    Nowhere,
}

impl Waiting {
    /// None: it does not wait.
    pub fn of(result: &Value) -> Option<Self> {
        let body = Some(&result["structuredContent"]).filter(|body| body["status"] == "approval_required")?;
        let field = |value: &Value, most| text::cut(&one_line(value.as_str().unwrap_or_default()), most).into_owned();
        let action = &body["action"];
        let (tool, node) = (field(&action["tool"], 100), field(&action["node"], 100));
        let what = format!("{tool} on {node}: {}", field(&action["summary"], LONGEST_SUMMARY));
        Some(Self { code: field(&body["code"], 40), what })
    }

    /// Line by line: what waits, and what allows it.
    pub fn told(&self, place: Place) -> Vec<String> {
        let code = &self.code;
        if place == Place::Nowhere {
            let nothing = "not done, as nobody has said yes; make the call again to be asked again";
            return vec![nothing.to_owned(), format!("  {}", self.what)];
        }
        let mut lines = vec![format!("not done: it waits for a yes, code {code}"), format!("  {}", self.what)];
        let at_the_hub = format!("nexus approve {code}");
        match place {
            Place::Here => {
                lines.push(format!("/approve {code} allows it once, /approve all writes of this session;"));
                lines.push(format!("`{at_the_hub}` at the hub's command line does it too. Then make the call again."));
            }
            Place::HereForServer => {
                lines
                    .push(format!("/approve {code} [once | session | each] allows this call, all tools of its server"));
                lines.push("in this session, or its server with a question for each call;".to_owned());
                lines.push(format!("`{at_the_hub}` at the hub's command line does it too. Then make the call again."));
            }
            Place::Hub => {
                lines.push(format!(
                    "`{at_the_hub}` at the hub's command line allows it and others like it in this session,"
                ));
                lines.push("with `--once` this call alone. Then make the call again.".to_owned());
            }
            Place::Nowhere => {}
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pending() -> Value {
        let action = json!({ "tool": "write_file", "node": "local", "summary": "write\u{1b}[2J 2 bytes\nto /x" });
        let how = "Tell the operator what you want to do and why.";
        json!({ "isError": true, "structuredContent": {
            "status": "approval_required", "action": action, "code": "ABCD2345", "how": how,
        } })
    }

    #[test]
    fn a_person_is_told_the_code_what_would_happen_and_what_they_can_do_and_nothing_meant_for_a_model() {
        check(Place::Here, &["/approve ABCD2345 ", "nexus approve ABCD2345"], "each");
        check(Place::HereForServer, &["/approve ABCD2345 [once | session | each]", "nexus approve ABCD2345"], "writes");
        check(Place::Hub, &["nexus approve ABCD2345", "--once"], "/approve");

        #[track_caller]
        fn check(place: Place, expected: &[&str], absent: &str) {
            let told = Waiting::of(&pending()).unwrap().told(place).join("\n");
            assert!(told.contains("write_file on local: write 2 bytes to /x"), "{told}");
            assert!(expected.iter().all(|words| told.contains(words)), "{told}");
            assert!(!told.contains(absent) && !told.contains("Tell the operator"), "{told}");
        }
    }

    #[test]
    fn what_is_done_or_has_failed_does_not_wait() {
        assert_eq!(Waiting::of(&json!({ "content": [] })), None);
        assert_eq!(Waiting::of(&json!({ "isError": true, "structuredContent": { "error": "no" } })), None);
    }
}
