//! The state that a server gives its caller to keep between two rounds, wrapped in ours: it comes back only with the
//! same call of the same key in the same session, and not for ever.

use serde_json::{Value, json};
use uuid::Uuid;

use nexus_core::call::CallKey;
use nexus_core::clock;
use nexus_core::principal::PrincipalId;

use crate::seal::Seal;

/// What the state of a server's question begins with. The gate's own questions have another one.
pub(crate) const OURS: &str = "nexus-up:";

/// How long the answers to a server's questions are waited for.
pub(crate) const LIFE_MS: i64 = 30 * 60 * 1000;

/// Bytes of a server's state. It goes to the client and comes back with the next try.
const LARGEST: usize = 64 * 1024;

/// Wraps and unwraps. One for all servers of a hub.
pub(crate) struct States(Seal);

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("States")
    }
}

/// What a state belongs to.
#[derive(Debug)]
pub(crate) struct Bound<'a> {
    pub(crate) server: &'a str,
    pub(crate) principal: &'a PrincipalId,
    pub(crate) session: Uuid,
    pub(crate) call: CallKey,
}

/// Why a state is not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadState {
    #[error("requestState was changed, or belongs to another request, session or key")]
    Foreign,
    #[error("requestState has expired; call again without it")]
    Expired,
    #[error("the server wants more state to be kept than {LARGEST} bytes")]
    TooLarge,
}

impl Default for States {
    fn default() -> Self {
        Self(Seal::random())
    }
}

impl States {
    pub(crate) fn wrap(&self, bound: &Bound<'_>, state: &str) -> Result<String, BadState> {
        self.wrap_at(bound, state, clock::monotonic_ms())
    }

    fn wrap_at(&self, bound: &Bound<'_>, state: &str, now_ms: i64) -> Result<String, BadState> {
        if state.len() > LARGEST {
            return Err(BadState::TooLarge);
        }
        let kept = json!({ "ends": now_ms + LIFE_MS, "state": state });
        let (session, call) = bound.words();
        Ok(format!("{OURS}{}", self.0.close(&bound.purpose(&session, &call), &kept)))
    }

    /// The server's own state. None: this is no state of a server's question.
    pub(crate) fn unwrap(&self, bound: &Bound<'_>, wrapped: &str) -> Option<Result<String, BadState>> {
        let sealed = wrapped.strip_prefix(OURS)?;
        Some(self.unwrap_at(bound, sealed, clock::monotonic_ms()))
    }

    fn unwrap_at(&self, bound: &Bound<'_>, sealed: &str, now_ms: i64) -> Result<String, BadState> {
        let (session, call) = bound.words();
        let kept = self.0.open(&bound.purpose(&session, &call), sealed).ok_or(BadState::Foreign)?;
        match (kept["ends"].as_i64(), &kept["state"]) {
            (Some(ends), Value::String(state)) if now_ms < ends => Ok(state.clone()),
            (Some(_), Value::String(_)) => Err(BadState::Expired),
            _ => Err(BadState::Foreign),
        }
    }
}

impl Bound<'_> {
    fn words(&self) -> (String, String) {
        let call = self.call.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.session.to_string(), call)
    }

    fn purpose<'a>(&'a self, session: &'a str, call: &'a str) -> [&'a str; 5] {
        ["upstream", self.server, self.principal.as_str(), session, call]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Uuid = Uuid::from_u128(1);

    fn bound<'a>(server: &'a str, principal: &'a PrincipalId, session: Uuid, tool: &str) -> Bound<'a> {
        Bound { server, principal, session, call: CallKey::of(tool, &[0; 32]) }
    }

    #[test]
    fn a_state_comes_back_only_with_the_same_call_of_the_same_key_in_the_same_session() {
        let (states, key, other) = (States::default(), PrincipalId::new("laptop"), PrincipalId::new("phone"));
        let wrapped = states.wrap(&bound("github", &key, SESSION, "t"), "their state \"1\"").unwrap();
        let back = |bound: Bound<'_>| states.unwrap(&bound, &wrapped);
        assert_eq!(back(bound("github", &key, SESSION, "t")), Some(Ok("their state \"1\"".into())));

        let foreign = Some(Err(BadState::Foreign));
        assert_eq!(back(bound("gitlab", &key, SESSION, "t")), foreign);
        assert_eq!(back(bound("github", &other, SESSION, "t")), foreign);
        assert_eq!(back(bound("github", &key, Uuid::from_u128(2), "t")), foreign);
        assert_eq!(back(bound("github", &key, SESSION, "u")), foreign);
        assert_eq!(states.unwrap(&bound("github", &key, SESSION, "t"), &format!("{wrapped}-TAMPERED")), foreign);
        assert_eq!(States::default().unwrap(&bound("github", &key, SESSION, "t"), &wrapped), foreign);
        assert_eq!(states.unwrap(&bound("github", &key, SESSION, "t"), "nexus:abc"), None);
    }

    #[test]
    fn a_state_runs_out() {
        let (states, key) = (States::default(), PrincipalId::new("laptop"));
        let of = || bound("github", &key, SESSION, "t");
        let wrapped = states.wrap_at(&of(), "s", 1_000).unwrap();
        let sealed = wrapped.strip_prefix(OURS).unwrap();
        assert_eq!(states.unwrap_at(&of(), sealed, 1_000 + LIFE_MS - 1), Ok("s".into()));
        assert_eq!(states.unwrap_at(&of(), sealed, 1_000 + LIFE_MS), Err(BadState::Expired));
    }

    #[test]
    fn a_state_is_bounded() {
        let (states, key) = (States::default(), PrincipalId::new("laptop"));
        let state = "x".repeat(LARGEST + 1);
        assert_eq!(states.wrap(&bound("github", &key, SESSION, "t"), &state), Err(BadState::TooLarge));
    }
}
