//! Lists that come in pages, from servers that may have no end of them.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Ask;
use super::few::Few;
use super::line::Line;
use super::outcome::failed;
use crate::upstream::error::{Delivery, ProtocolError, RequestError};
use crate::wire::quoted;

const MOST_PAGES: usize = 100;
const MOST_TOOLS: usize = 1000;
const MOST_OTHERS: usize = 5000;

/// Bytes of all entries together.
const LARGEST_LIST: usize = 16 * 1024 * 1024;

/// Bytes of a cursor. It goes back as it came, with every page.
const LONGEST_CURSOR: usize = 16 * 1024;

/// What a server can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listed {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl Listed {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resource templates",
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Tools => MOST_TOOLS,
            Self::Prompts | Self::Resources | Self::Templates => MOST_OTHERS,
        }
    }
}

/// One page. Each entry stays as the server wrote it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tools: Option<Few<&'a RawValue>>,
    #[serde(borrow)]
    prompts: Option<Few<&'a RawValue>>,
    #[serde(borrow)]
    resources: Option<Few<&'a RawValue>>,
    #[serde(borrow)]
    resource_templates: Option<Few<&'a RawValue>>,
    next_cursor: Option<String>,
}

pub(super) async fn all(line: &Arc<Line>, what: Listed) -> Result<Vec<Box<RawValue>>, RequestError> {
    let too_many = |what, limit| failed(ProtocolError::TooMany { what, limit }, Delivery::Answered);
    let nonsense = |why: &str| failed(ProtocolError::Nonsense(why.to_owned()), Delivery::Answered);
    let mut entries: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut cursors = HashSet::new();
    let mut ask = Ask::new(what.method());
    for _ in 0..MOST_PAGES {
        let result = line.request(ask).await?;
        let page: Page<'_> =
            serde_json::from_str(result.get()).map_err(|_| nonsense("a page of a list does not fit"))?;
        let listed = match what {
            Listed::Tools => page.tools,
            Listed::Prompts => page.prompts,
            Listed::Resources => page.resources,
            Listed::Templates => page.resource_templates,
        };
        let Few(listed) = listed.ok_or_else(|| nonsense("a page without its list"))?;
        bytes += listed.iter().map(|entry| entry.get().len()).sum::<usize>();
        if entries.len() + listed.len() > what.most() {
            return Err(too_many(what.plural(), what.most()));
        }
        if bytes > LARGEST_LIST {
            return Err(too_many("bytes", LARGEST_LIST));
        }
        entries.extend(listed.into_iter().map(RawValue::to_owned));
        let Some(cursor) = page.next_cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(entries) };
        if cursor.len() > LONGEST_CURSOR {
            return Err(nonsense("a cursor without end"));
        }
        ask = Ask::new(what.method()).with(format!(r#""cursor":{}"#, quoted(&cursor)));
        if !cursors.insert(cursor) {
            return Err(nonsense("the same page twice"));
        }
    }
    Err(too_many("pages", MOST_PAGES))
}
