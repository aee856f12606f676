//! What a server has to offer, made from what it lists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use nexus_core::name::{ServerName, ToolName};
use nexus_core::text::clean;

use super::state::SetAside;
use super::tool::{Held, Listed, OfferedTool, Standing, hides_something, shown};
use crate::upstream::client::ServerInfo;
use crate::upstream::config::ServerConfig;
use crate::upstream::names::{Claims, Names, Naming};
use crate::upstream::pins::{self, Compared, Pin, Verdict};

/// Bytes of a prompt or resource in a list.
const LARGEST_ITEM: usize = 64 * 1024;

/// Bytes of a URI or of a prompt's name.
const LONGEST_KEY: usize = 4096;

/// Things set aside that are worth naming; a hostile server could have a thousand.
const MOST_SET_ASIDE: usize = 100;

/// All that a server offers. Stays as it was while the server is away.
#[derive(Debug)]
pub struct Offer {
    /// In the server's order, those that are held too.
    pub tools: Vec<Arc<OfferedTool>>,
    pub prompts: Vec<Arc<OfferedPrompt>>,
    pub resources: Vec<Arc<OfferedResource>>,
    pub templates: Vec<Arc<OfferedResource>>,
    /// What it lists and what is not offered.
    pub set_aside: Vec<SetAside>,
    /// None: it was not connected yet, and this is what it had last time.
    pub server: Option<ServerInfo>,
    pub naming: Naming,
    by_name: HashMap<ToolName, usize>,
    prompts_by_name: HashMap<ToolName, usize>,
}

/// A prompt as it is offered here.
#[derive(Debug)]
pub struct OfferedPrompt {
    pub exposed: ToolName,
    pub original: String,
    /// As the server lists it, its texts cleaned.
    pub definition: Value,
}

/// A resource or a template of resources as it is offered here.
#[derive(Debug)]
pub struct OfferedResource {
    /// With the prefix of its server.
    pub exposed: String,
    pub original: String,
    /// As the server lists it, its texts cleaned.
    pub definition: Value,
}

impl Offer {
    pub fn empty(naming: Naming) -> Self {
        Self {
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            set_aside: Vec::new(),
            server: None,
            naming,
            by_name: HashMap::new(),
            prompts_by_name: HashMap::new(),
        }
    }

    /// By what clients call it.
    pub fn tool(&self, exposed: &ToolName) -> Option<&Arc<OfferedTool>> {
        self.by_name.get(exposed).map(|at| &self.tools[*at])
    }

    /// By what clients call it.
    pub fn prompt(&self, exposed: &ToolName) -> Option<&Arc<OfferedPrompt>> {
        self.prompts_by_name.get(exposed).map(|at| &self.prompts[*at])
    }

    /// The same with these tools allowed, as far as they are still what they were.
    pub(crate) fn with_allowed(&self, tools: &[Arc<OfferedTool>]) -> Self {
        let is_meant =
            |tool: &OfferedTool| tools.iter().any(|other| other.exposed == tool.exposed && other.hash == tool.hash);
        let allowed = |tool: &Arc<OfferedTool>| if is_meant(tool) { Arc::new(tool.allowed()) } else { tool.clone() };
        Self {
            tools: self.tools.iter().map(allowed).collect(),
            prompts: self.prompts.clone(),
            resources: self.resources.clone(),
            templates: self.templates.clone(),
            set_aside: self.set_aside.clone(),
            server: self.server.clone(),
            naming: self.naming.clone(),
            by_name: self.by_name.clone(),
            prompts_by_name: self.prompts_by_name.clone(),
        }
    }

    /// The same under other names.
    pub(crate) fn renamed(&self, naming: &Naming, claims: &NameClaims) -> Self {
        let mut offer = Self::empty(naming.clone());
        let names = Names::of(naming, self.tools.iter().map(|tool| tool.original.as_str()), &claims.tools);
        let tool = |tool: &Arc<OfferedTool>| Some(Arc::new(tool.called(names.exposed(&tool.original)?.clone())));
        offer.tools = self.tools.iter().filter_map(tool).collect();
        let names = Names::of(naming, self.prompts.iter().map(|prompt| prompt.original.as_str()), &claims.prompts);
        let prompt = |prompt: &Arc<OfferedPrompt>| {
            let (original, definition) = (prompt.original.clone(), prompt.definition.clone());
            Some(Arc::new(OfferedPrompt { exposed: names.exposed(&original)?.clone(), original, definition }))
        };
        offer.prompts = self.prompts.iter().filter_map(prompt).collect();
        let resource = |resource: &Arc<OfferedResource>| {
            let (original, definition) = (resource.original.clone(), resource.definition.clone());
            Arc::new(OfferedResource { exposed: naming.expose_uri(&original), original, definition })
        };
        offer.resources = self.resources.iter().map(resource).collect();
        offer.templates = self.templates.iter().map(resource).collect();
        offer.set_aside = self.set_aside.clone();
        offer.server = self.server.clone();
        offer.index();
        offer
    }

    fn index(&mut self) {
        self.by_name = self.tools.iter().enumerate().map(|(at, tool)| (tool.exposed.clone(), at)).collect();
        self.prompts_by_name =
            self.prompts.iter().enumerate().map(|(at, prompt)| (prompt.exposed.clone(), at)).collect();
    }

    /// Whether clients would be told the same.
    pub(crate) fn reads_like(&self, other: &Self) -> bool {
        let tool = |tool: &Arc<OfferedTool>| (tool.exposed.clone(), tool.hash.clone(), tool.is_allowed());
        let same = |one: &[Arc<OfferedResource>], two: &[Arc<OfferedResource>]| {
            one.len() == two.len()
                && one.iter().zip(two).all(|(one, two)| one.exposed == two.exposed && one.definition == two.definition)
        };
        let prompt =
            |one: &OfferedPrompt, two: &OfferedPrompt| one.exposed == two.exposed && one.definition == two.definition;
        let instructions = |offer: &Self| offer.server.as_ref().and_then(|server| server.instructions.clone());
        self.tools.iter().map(tool).eq(other.tools.iter().map(tool))
            && self.prompts.len() == other.prompts.len()
            && self.prompts.iter().zip(&other.prompts).all(|(one, two)| prompt(one, two))
            && same(&self.resources, &other.resources)
            && same(&self.templates, &other.templates)
            && instructions(self) == instructions(other)
    }

    /// Tools that may be called.
    pub fn allowed(&self) -> impl Iterator<Item = &Arc<OfferedTool>> {
        self.tools.iter().filter(|tool| tool.is_allowed())
    }

    /// Tools that wait to be allowed.
    pub fn held(&self) -> impl Iterator<Item = &Arc<OfferedTool>> {
        self.tools.iter().filter(|tool| !tool.is_allowed())
    }
}

/// What a server lists, as it came.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub server: Option<ServerInfo>,
    pub tools: Vec<Box<RawValue>>,
    pub prompts: Vec<Box<RawValue>>,
    pub resources: Vec<Box<RawValue>>,
    pub templates: Vec<Box<RawValue>>,
    /// Lists that could not be had.
    pub missing: Vec<SetAside>,
}

/// Who else has names.
#[derive(Clone, Debug, Default)]
pub struct NameClaims {
    pub tools: Claims,
    pub prompts: Claims,
}

impl NameClaims {
    /// The server is gone; others may have its names.
    pub fn release(&self, server: &ServerName) {
        self.tools.release(server);
        self.prompts.release(server);
    }
}

/// An offer, and what is to be remembered before it is made.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub offer: Offer,
    /// At first contact: also when there is no tool.
    pub first: Option<Vec<Pin>>,
}

/// Makes the offer. Gives way between tools: a server may have a thousand, each a small program.
pub(crate) async fn assemble(
    config: &ServerConfig,
    naming: &Naming,
    claims: &NameClaims,
    lists: Lists,
    allowed: Option<&[Pin]>,
) -> Assembled {
    let mut offer = Offer::empty(naming.clone());
    offer.set_aside = lists.missing;
    let mut listed = Vec::new();
    let mut seen = HashSet::new();
    for raw in &lists.tools {
        match Listed::read(raw.get()) {
            Ok(tool) if seen.insert(tool.original.clone()) => listed.push(tool),
            Ok(tool) => {
                offer.set_aside.push(SetAside { tool: shown(&tool.original), why: "it is listed twice".into() });
            }
            Err(aside) => offer.set_aside.push(aside),
        }
        tokio::task::yield_now().await;
    }
    let pins: Vec<Pin> = listed.iter().map(|tool| tool.pin.clone()).collect();
    let (standings, first) = match pins::compare(allowed, &pins) {
        Verdict::FirstContact => (vec![Standing::Allowed; listed.len()], Some(pins)),
        Verdict::Compared(each) => (each.into_iter().map(standing).collect(), None),
    };
    let wanted = |name: &str| config.allow.matches(name) && !config.deny.matches(name);
    let listed: Vec<_> = listed.into_iter().zip(standings).filter(|(tool, _)| wanted(&tool.original)).collect();
    let names = Names::of(naming, listed.iter().map(|(tool, _)| tool.original.as_str()), &claims.tools);
    for (tool, standing) in listed {
        let Some(exposed) = names.exposed(&tool.original).cloned() else {
            offer.set_aside.push(SetAside { tool: shown(&tool.original), why: "no name is left for it".into() });
            continue;
        };
        match tool.offered(exposed, naming.server(), standing) {
            Ok(tool) => offer.tools.push(Arc::new(tool)),
            Err(aside) => offer.set_aside.push(aside),
        }
    }
    add_prompts(&mut offer, &lists.prompts, &claims.prompts);
    offer.index();
    offer.resources = resources(&mut offer.set_aside, naming, &lists.resources, "uri");
    offer.templates = resources(&mut offer.set_aside, naming, &lists.templates, "uriTemplate");
    bound(&mut offer.set_aside);
    offer.server = lists.server;
    Assembled { offer, first }
}

/// What a server that was met before is known to have, without connecting to it.
pub(crate) async fn recalled(config: &ServerConfig, naming: &Naming, claims: &NameClaims, pins: &[Pin]) -> Offer {
    let mut known: Vec<&Pin> = pins.iter().collect();
    known.sort_unstable_by(|a, b| a.tool.cmp(&b.tool));
    let tools = known.iter().filter_map(|pin| RawValue::from_string(pin.definition.clone()).ok()).collect();
    assemble(config, naming, claims, Lists { tools, ..Lists::default() }, Some(pins)).await.offer
}

fn standing(compared: Compared) -> Standing {
    match compared {
        Compared::Same => Standing::Allowed,
        Compared::Differs { before } => Standing::Held(Held::new(before)),
    }
}

fn add_prompts(offer: &mut Offer, raw: &[Box<RawValue>], claims: &Claims) {
    let items = read(&mut offer.set_aside, raw, "name");
    let names = Names::of(&offer.naming, items.iter().map(|(name, _)| name.as_str()), claims);
    for (original, definition) in items {
        if let Some(exposed) = names.exposed(&original).cloned() {
            offer.prompts.push(Arc::new(OfferedPrompt { exposed, original, definition }));
        }
    }
}

fn resources(
    aside: &mut Vec<SetAside>,
    naming: &Naming,
    raw: &[Box<RawValue>],
    key: &str,
) -> Vec<Arc<OfferedResource>> {
    let items = read(aside, raw, key).into_iter();
    let offered = items.map(|(original, definition)| {
        Arc::new(OfferedResource { exposed: naming.expose_uri(&original), original, definition })
    });
    offered.collect()
}

/// Items of a list with what they are known by, each once.
fn read(aside: &mut Vec<SetAside>, raw: &[Box<RawValue>], key: &str) -> Vec<(String, Value)> {
    let mut seen = HashSet::new();
    let mut items = Vec::new();
    for raw in raw {
        match item(raw.get(), key) {
            Ok((name, value)) if seen.insert(name.clone()) => items.push((name, value)),
            Ok(_) => {}
            Err(why) => aside.push(why),
        }
    }
    items
}

fn item(raw: &str, key: &str) -> Result<(String, Value), SetAside> {
    let nameless = |why: &str| SetAside { tool: format!("(a list item without {key})"), why: why.to_owned() };
    if raw.len() > LARGEST_ITEM {
        return Err(nameless(&format!("it has more than {LARGEST_ITEM} bytes")));
    }
    let mut value: Value = serde_json::from_str(raw).map_err(|_| nameless("it cannot be read"))?;
    let name =
        value.get(key).and_then(Value::as_str).ok_or_else(|| nameless("it is not known by anything"))?.to_owned();
    if name.is_empty() || name.len() > LONGEST_KEY || hides_something(&name) {
        let why = format!("its {key} is empty, too long or holds characters that cannot be seen");
        return Err(SetAside { tool: shown(&name), why });
    }
    clean_all(&mut value);
    Ok((name, value))
}

fn clean_all(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(cleaned) = clean(text) {
                *text = cleaned;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_all),
        Value::Object(fields) => fields.values_mut().for_each(clean_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn bound(aside: &mut Vec<SetAside>) {
    let more = aside.len().saturating_sub(MOST_SET_ASIDE);
    if more > 0 {
        aside.truncate(MOST_SET_ASIDE);
        aside.push(SetAside { tool: format!("({more} more)"), why: "they are not named here".into() });
    }
}

#[cfg(test)]
mod tests;
