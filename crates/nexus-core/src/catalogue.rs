//! Which tools there are: one flat list of names over all providers, with the listing rendered once.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tracing::warn;

use crate::principal::{Patterns, Principal, PrincipalId};
use crate::provider::{Origin, Provider, Revision};
use crate::tool::{Listed, ToolSpec};

/// A tool and who has it.
#[derive(Clone)]
pub struct Found {
    pub spec: Arc<ToolSpec>,
    pub provider: Arc<dyn Provider>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Found").field(&self.spec).finish()
    }
}

/// All tools of all providers. Reading takes a snapshot and holds no lock.
pub struct Catalogue {
    providers: Mutex<Vec<Arc<dyn Provider>>>,
    table: RwLock<Arc<Table>>,
    changes: watch::Sender<Revision>,
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalogue").field("tools", &self.table.read().specs.len()).finish_non_exhaustive()
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self { providers: Mutex::default(), table: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

impl Catalogue {
    /// Adds a provider's tools. The future keeps them current; whoever attaches runs it.
    pub fn attach(self: &Arc<Self>, provider: Arc<dyn Provider>) -> impl Future<Output = ()> + Send + 'static {
        let mut changes = provider.changes();
        let origin = provider.origin().clone();
        let catalogue = Arc::downgrade(self);
        self.providers.lock().push(provider);
        self.rebuild();
        async move {
            while changes.changed().await.is_ok() {
                let Some(catalogue) = catalogue.upgrade() else { return };
                if !catalogue.providers.lock().iter().any(|p| *p.origin() == origin) {
                    return;
                }
                catalogue.rebuild();
            }
        }
    }

    /// Takes a provider's tools away.
    pub fn detach(&self, origin: &Origin) {
        self.providers.lock().retain(|provider| provider.origin() != origin);
        self.rebuild();
    }

    /// The same for one of several with the same origin: a server may be connected for several keys.
    pub fn detach_one(&self, provider: &Arc<dyn Provider>) {
        self.providers.lock().retain(|known| !std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(provider)));
        self.rebuild();
    }

    /// The tool of that name, if it exists for this principal.
    pub fn find(&self, name: &str, principal: &Principal) -> Option<Found> {
        let table = self.table.read().clone();
        let found = table.by_name.get(name).or_else(|| table.private.get(&principal.id)?.get(name))?;
        principal.sees(found.spec.name.as_str()).then(|| found.clone())
    }

    /// The `tools` array as JSON text, for this principal. Rendered at most once per set of patterns.
    pub fn listing(&self, principal: &Principal) -> Arc<str> {
        let table = self.table.read().clone();
        let owns = table.private.contains_key(&principal.id);
        let serves = principal.serves.is_some();
        if principal.sees_all() && !owns && !serves {
            return table.whole.clone();
        }
        let view = (principal.allow.clone(), principal.deny.clone(), owns.then(|| principal.id.clone()), serves);
        if let Some(listing) = table.views.lock().get(&view) {
            return listing.clone();
        }
        let own = table.private.get(&principal.id).into_iter().flatten().map(|(_, found)| &found.spec);
        let sees = |spec: &&Arc<ToolSpec>| principal.sees(spec.name.as_str()) && spec.listed.to(principal);
        let mut specs: Vec<_> = table.specs.iter().chain(own).filter(sees).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        let listing = render(specs.into_iter());
        table.views.lock().insert(view, listing.clone());
        listing
    }

    /// Every tool that is not one key's alone, in order of name.
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.table.read().specs.clone()
    }

    /// Moves when the set of tools does.
    pub fn changes(&self) -> watch::Receiver<Revision> {
        self.changes.subscribe()
    }

    /// One at a time: of two at once, the later to begin could be the first to end.
    fn rebuild(&self) {
        let providers = self.providers.lock();
        let table = Arc::new(Table::of(&providers));
        let before = std::mem::replace(&mut *self.table.write(), table.clone());
        for (tool, origin) in table.left_out.difference(&before.left_out) {
            warn!(%tool, %origin, "the tool `{tool}` is there already; the later one is left out");
        }
        providers.iter().for_each(|provider| provider.shown());
        self.changes.send_modify(|revision| *revision += 1);
    }
}

/// One state of the catalogue.
struct Table {
    by_name: HashMap<Box<str>, Found>,
    specs: Arc<[Arc<ToolSpec>]>,
    whole: Arc<str>,
    /// Tools whose name was taken, and whose they are.
    left_out: HashSet<(Box<str>, Origin)>,
    /// The tools that one key has for itself.
    private: HashMap<PrincipalId, HashMap<Box<str>, Found>>,
    /// Listings of keys that do not see everything, or more than that. As many as there are different pattern sets.
    views: Mutex<HashMap<View, Arc<str>>>,
}

type View = (Patterns, Patterns, Option<PrincipalId>, bool);

impl Default for Table {
    fn default() -> Self {
        Self::of(&[])
    }
}

impl Table {
    /// Earlier providers win a name: our own are attached first, so nothing can shadow them.
    fn of(providers: &[Arc<dyn Provider>]) -> Self {
        let mut by_name: HashMap<Box<str>, Found> = HashMap::new();
        let (mut specs, mut left_out) = (Vec::new(), HashSet::new());
        let mut private: HashMap<PrincipalId, HashMap<Box<str>, Found>> = HashMap::new();
        // Those that everybody sees first: what one key has for itself takes no name from the others.
        let (shared, owned): (Vec<_>, Vec<_>) = providers.iter().partition(|provider| provider.owner().is_none());
        for provider in shared.into_iter().chain(owned) {
            for spec in provider.tools().iter() {
                let name = spec.name.as_str();
                let theirs = provider.owner().map(|owner| private.entry(owner).or_default());
                if by_name.contains_key(name) || theirs.as_ref().is_some_and(|theirs| theirs.contains_key(name)) {
                    left_out.insert((name.into(), provider.origin().clone()));
                    continue;
                }
                let found = Found { spec: spec.clone(), provider: provider.clone() };
                if let Some(theirs) = theirs {
                    theirs.insert(name.into(), found);
                    continue;
                }
                by_name.insert(name.into(), found);
                specs.push(spec.clone());
            }
        }
        let aliases: Vec<(Box<str>, Found)> = by_name
            .values()
            .flat_map(|found| found.spec.aliases.iter().map(|alias| (alias.as_str().into(), found.clone())))
            .collect();
        for (alias, found) in aliases {
            by_name.entry(alias).or_insert(found);
        }
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        let whole = render(specs.iter().filter(|spec| spec.listed == Listed::Everyone));
        Self { by_name, specs: specs.into(), whole, left_out, private, views: Mutex::default() }
    }
}

fn render<'a>(specs: impl Iterator<Item = &'a Arc<ToolSpec>>) -> Arc<str> {
    let mut out = String::from("[");
    for spec in specs {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&spec.rendered);
    }
    out.push(']');
    out.into()
}
