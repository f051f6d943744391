//! Features that can be added to a bundle. Each is one small type around a bundle, and is a
//! bundle itself; their order is configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use futures::future::BoxFuture;
use mcp_sessiond_jsonrpc::owned::{Id, Message};
use serde::{Deserialize, Serialize};

use crate::bundle::{Bundle, Error};
use crate::call::{Call, Item, List, Target};
use crate::connection::Answer;
use crate::names::{Namespace, Origin, is_fine_for_models};
use crate::status::Status;

mod cache;
mod calls;
mod current;
mod describe;
mod filter;
mod glob;
mod log;
mod rename;
mod time;

pub use current::Current;
pub use glob::{Glob, NoGlob};
pub use log::{CallEnd, CallEntry, CallLog};

/// A type that stands around another bundle. What it does not say otherwise is as the other says.
pub trait Decorator: Send + Sync {
    /// The bundle that it stands around.
    fn inner(&self) -> &dyn Bundle;

    /// [`Bundle::list`].
    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        self.inner().list(list)
    }

    /// [`Bundle::call`].
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        self.inner().call(call)
    }

    /// [`Bundle::tell`].
    fn tell(&self, message: Message) -> BoxFuture<'_, ()> {
        self.inner().tell(message)
    }

    /// [`Bundle::origin_of`].
    fn origin_of(&self, target: &Target) -> Option<Origin> {
        self.inner().origin_of(target)
    }

    /// [`Bundle::listed_as`].
    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String> {
        self.inner().listed_as(namespace, own)
    }
}

impl<D: Decorator> Bundle for D {
    fn status(&self) -> Status {
        self.inner().status()
    }

    fn instructions(&self) -> String {
        self.inner().instructions()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.inner().ready()
    }

    fn list(&self, list: List) -> BoxFuture<'_, Result<Vec<Item>, Error>> {
        Decorator::list(self, list)
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Error>> {
        Decorator::call(self, call)
    }

    fn tell(&self, message: Message) -> BoxFuture<'_, ()> {
        Decorator::tell(self, message)
    }

    fn wait_for_owner<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, ()> {
        self.inner().wait_for_owner(uri)
    }

    fn give_up(&self, id: &Id, why: &str) -> bool {
        self.inner().give_up(id, why)
    }

    fn origin_of(&self, target: &Target) -> Option<Origin> {
        Decorator::origin_of(self, target)
    }

    fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<String> {
        Decorator::listed_as(self, namespace, own)
    }

    fn version(&self) -> u64 {
        self.inner().version()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner().close()
    }
}

/// A feature that is added. As JSON `{"filter": {…}}`, or a word where there is nothing to say:
/// `"log"`.
///
/// With `server` it concerns what that backend has, by the names that the backend itself uses;
/// without, everything, by the names that are listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decoration {
    /// Some is not listed and can't be called.
    Filter(Filter),
    /// Some is listed under another name.
    Rename(Rename),
    /// Some is described otherwise.
    Describe(Describe),
    /// Calls are noted: who, when, how they ended.
    Log,
    /// How many calls may be under way.
    Calls(Calls),
    /// How long a call may take.
    Time(Time),
    /// Lists are made once, and kept until one changes.
    Cache,
}

/// What is listed and can be called: what a glob of `only` fits, where there are any, and none of
/// `without`. They are for the names of tools and prompts, for URIs, and for the templates of URIs.
/// A URI that a template fits counts as that, too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// The backend; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What there is. Absent: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<Glob>>,
    /// What there is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<Glob>,
}

/// Other names: from the former ones to these. A name that is given here belongs to nothing
/// else: what was listed under it gets a name with a digest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The backend; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Tools.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
    /// Prompts.
    #[serde(default)]
    pub prompts: BTreeMap<String, String>,
}

impl Rename {
    fn of(&self, namespace: Namespace) -> &BTreeMap<String, String> {
        match namespace {
            Namespace::Tool => &self.tools,
            Namespace::Prompt => &self.prompts,
        }
    }
}

/// Other descriptions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Describe {
    /// The backend; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Of tools, by name.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
    /// Of prompts, by name.
    #[serde(default)]
    pub prompts: BTreeMap<String, String>,
    /// Of resources, by URI, and of templates, by their text.
    #[serde(default)]
    pub resources: BTreeMap<String, String>,
}

/// How many calls may be under way. Others wait for their turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// The backend; all together where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// So many.
    pub most: NonZeroU32,
}

/// How long a call may take. Then it is cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// The backend; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// So long.
    pub timeout_ms: NonZeroU32,
}

/// Why decorations can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// Two things would have one name.
    #[error("rename: two {what} would be called {name:?}; give each a name of its own")]
    TwoForOne {
        /// Tools or prompts.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// It is not a valid name.
    #[error(
        "rename: {name:?} can't be the name of a tool: use 1 to {} of A-Z, a-z, 0-9, \"_\" and \"-\"",
        crate::names::LENGTH_MAX
    )]
    NoToolName {
        /// What should be one.
        name: String,
    },
    /// It is not a valid name.
    #[error("rename: the new name of the prompt {name:?} is empty")]
    NoPromptName {
        /// The prompt.
        name: String,
    },
}

/// Decorations that can be used together, the innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Decoration>", into = "Vec<Decoration>")]
pub struct Decorations {
    all: Vec<Decoration>,
    /// Whether they are for one of several backends alone, where everything has its bare name.
    is_alone: bool,
}

impl TryFrom<Vec<Decoration>> for Decorations {
    type Error = Mistake;

    fn try_from(decorations: Vec<Decoration>) -> Result<Self, Mistake> {
        let mut given = BTreeSet::new();
        for decoration in &decorations {
            let Decoration::Rename(rename) = decoration else {
                continue;
            };
            for (name, new) in &rename.prompts {
                if new.is_empty() {
                    return Err(Mistake::NoPromptName { name: name.clone() });
                }
                if !given.insert(("prompts", new)) {
                    return Err(Mistake::TwoForOne {
                        what: "prompts",
                        name: new.clone(),
                    });
                }
            }
            for new in rename.tools.values() {
                if !is_fine_for_models(new) {
                    return Err(Mistake::NoToolName { name: new.clone() });
                }
                if !given.insert(("tools", new)) {
                    return Err(Mistake::TwoForOne {
                        what: "tools",
                        name: new.clone(),
                    });
                }
            }
        }
        Ok(Self {
            all: decorations,
            is_alone: false,
        })
    }
}

impl From<Decorations> for Vec<Decoration> {
    fn from(decorations: Decorations) -> Self {
        decorations.all
    }
}

impl Decoration {
    /// The backend that it concerns. None: all.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Filter(Filter { server, .. })
            | Self::Rename(Rename { server, .. })
            | Self::Describe(Describe { server, .. })
            | Self::Calls(Calls { server, .. })
            | Self::Time(Time { server, .. }) => server.as_deref(),
            Self::Log | Self::Cache => None,
        }
    }
}

impl Decorations {
    /// The backends that are named in them, each once.
    pub fn servers(&self) -> BTreeSet<&str> {
        self.all.iter().filter_map(Decoration::server).collect()
    }

    /// Those that concern all backends, or one of these.
    pub fn of(&self, is_there: impl Fn(&str) -> bool) -> Self {
        let is_its = |decoration: &&Decoration| decoration.server().is_none_or(&is_there);
        Self {
            all: self.all.iter().filter(is_its).cloned().collect(),
            is_alone: self.is_alone,
        }
    }

    /// Those for this backend alone. What a filter keeps out where it is one of several is kept out
    /// here, too.
    pub fn alone(&self, backend: &str) -> Self {
        Self {
            is_alone: true,
            ..self.of(|server| server == backend)
        }
    }

    /// How the names of all backends are changed, before the decoration at this place.
    fn renames_before(&self, place: usize) -> Vec<Rename> {
        let renames = self.all[..place]
            .iter()
            .filter_map(|decoration| match decoration {
                Decoration::Rename(rename) if rename.server.is_none() => Some(rename.clone()),
                _ => None,
            });
        renames.collect()
    }
}

/// A bundle with these features. The first decoration is next to the bundle, the last one next to
/// the host. Calls are noted in `log`, if that is one of them.
pub fn decorate(
    bundle: Arc<dyn Bundle>,
    with: &Decorations,
    log: &Arc<dyn CallLog>,
) -> Arc<dyn Bundle> {
    with.all
        .iter()
        .cloned()
        .enumerate()
        .fold(bundle, |inner, (place, decoration)| match decoration {
            Decoration::Filter(filter) => {
                let bundle_renames = with.is_alone.then(|| with.renames_before(place));
                Arc::new(filter::FilteredBundle {
                    inner,
                    filter,
                    bundle_renames,
                })
            }
            Decoration::Rename(rename) => Arc::new(rename::RenamedBundle { inner, rename }),
            Decoration::Describe(describe) => {
                Arc::new(describe::DescribedBundle { inner, describe })
            }
            Decoration::Log => Arc::new(log::LoggedBundle {
                inner,
                log: log.clone(),
            }),
            Decoration::Calls(calls) => Arc::new(calls::QueuedBundle::new(inner, calls)),
            Decoration::Time(time) => Arc::new(time::TimedBundle { inner, time }),
            Decoration::Cache => Arc::new(cache::CachedBundle::new(inner)),
        })
}

/// Whether something of this backend concerns a setting for `server`.
fn belongs_to(server: Option<&str>, own: &Origin) -> bool {
    server.is_none_or(|server| own.backend == server)
}

/// Whether a call concerns a setting for `server`. A URI that is in no list may be any
/// backend's.
fn concerns(bundle: &dyn Bundle, server: Option<&str>, target: &Target) -> bool {
    server.is_none()
        || match bundle.origin_of(target) {
            Some(own) => belongs_to(server, &own),
            None => target.uri().is_some(),
        }
}

/// The setting of a limit, as errors name it.
fn setting_name(name: &str, server: Option<&str>) -> String {
    match server {
        None => format!("the setting {name:?}"),
        Some(server) => format!("the setting {name:?} of the server {server:?}"),
    }
}
