//! Who has tools, and what a call becomes once its arguments are valid.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::arguments::Arguments;
use crate::call::CallCx;
use crate::error::ToolResult;
use crate::gate::Permit;
use crate::name::{NodeName, ServerName, ToolName};
use crate::principal::PrincipalId;
use crate::reply::Reply;
use crate::tool::{Access, ToolSpec};

/// Where a tool comes from. The gate treats our own and other people's differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    Own(Own),
    Upstream(ServerName),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Own {
    BuiltIn,
    /// The tools about the gate itself.
    Gate,
    Agents,
    Links,
}

impl Origin {
    /// From the words that `Display` gives.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(server) = text.strip_prefix("upstream:") {
            return Some(Origin::Upstream(ServerName::new(server)));
        }
        let own = [Own::BuiltIn, Own::Gate, Own::Agents, Own::Links].map(Origin::Own);
        own.into_iter().find(|origin| origin.to_string() == text)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Own(Own::BuiltIn) => f.write_str("built-in"),
            Origin::Own(Own::Gate) => f.write_str("gate"),
            Origin::Own(Own::Agents) => f.write_str("agents"),
            Origin::Own(Own::Links) => f.write_str("links"),
            Origin::Upstream(server) => write!(f, "upstream:{server}"),
        }
    }
}

/// Counts the changes of a set of tools.
pub type Revision = u64;

/// Owns tools.
pub trait Provider: Send + Sync {
    fn origin(&self) -> &Origin;

    /// All of them. The catalogue hides some from some keys, never from some sessions.
    fn tools(&self) -> Arc<[Arc<ToolSpec>]>;

    /// Moves when `tools` does.
    fn changes(&self) -> watch::Receiver<Revision>;

    /// What `tools` gave last can be found and called from now on.
    fn shown(&self) {}

    /// The only key that sees its tools. None: everybody does.
    fn owner(&self) -> Option<PrincipalId> {
        None
    }

    /// Whether its tools put questions of their own to the caller, whose answers come with the next try. For all
    /// others an answer that the gate did not ask for is refused.
    fn asks(&self) -> bool {
        false
    }

    /// Checks the arguments. From here on they are valid.
    fn intend(&self, tool: &ToolName, args: &Arguments) -> ToolResult<Box<dyn Intent>>;
}

/// A call whose arguments are valid and which has not happened yet.
pub trait Intent: Send {
    fn access(&self) -> Access;

    /// One line for the human who is asked.
    fn summary(&self) -> String;

    /// Characters of it that are shown. It is cut where it is known what has to be hidden.
    fn longest_summary(&self) -> usize {
        usize::MAX
    }

    /// Whether the summary is to end in the arguments, as the record shows them.
    fn tells_arguments(&self) -> bool {
        false
    }

    fn node(&self) -> Option<&NodeName>;

    /// Must be confirmed whatever was approved before.
    fn always_asks(&self) -> bool {
        false
    }

    /// The upstream server it is about, where that is not its provider: the gate decides as for that server's tools.
    fn server(&self) -> Option<&ServerName> {
        None
    }

    /// Whether a human is to be asked for all tools of that server, also where each call was to be confirmed.
    fn wants_all(&self) -> bool {
        false
    }

    /// What a human should know of the server before they let it be used at all: where it comes from, what it has.
    fn introduction(&self) -> Option<String> {
        None
    }

    /// Looks up what the summary cannot tell and a human needs to decide: what is known of the thing it names. Asked for
    /// only when a human is.
    fn background(&self) -> Option<BoxFuture<'static, Option<String>>> {
        None
    }

    /// Does it. Uses up the permit, and checks that it covers this access.
    fn run(self: Box<Self>, permit: Permit, cx: CallCx) -> BoxFuture<'static, ToolResult<Reply>>;
}
