//! The names under which the tools and prompts of the backends are listed. Names are stored: a
//! name that a model has read in a conversation last week still works, whichever backend comes
//! first today.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Characters of a tool's name. Models' interfaces refuse more, or others (MCP 2025-11-25, Tools,
/// allows 128).
pub const LENGTH_MAX: usize = 64;

/// Digits of the digest at the end of a name that had to be changed.
const DIGEST: usize = 8;

/// Names that are stored for one backend, of what it does not list now. A server may make up
/// new names without end.
pub const REMEMBERED_MAX: usize = 1_000;

/// What is named: tools and prompts have names of their own each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespace {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
}

/// How names are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// The first bearer has the bare name; a later one `backend_name`.
    #[default]
    Bare,
    /// `backend_name` for all.
    Always,
}

/// The backend that something comes from, and its name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The backend.
    pub backend: String,
    /// The name that the backend knows.
    pub name: String,
}

/// The names that were given. As JSON:
/// `{"tools": {LISTED: {"backend": …, "name": …}}, "prompts": {…}}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    tools: BTreeMap<String, Origin>,
    prompts: BTreeMap<String, Origin>,
}

impl Names {
    fn of(&self, namespace: Namespace) -> &BTreeMap<String, Origin> {
        match namespace {
            Namespace::Tool => &self.tools,
            Namespace::Prompt => &self.prompts,
        }
    }

    fn of_mut(&mut self, namespace: Namespace) -> &mut BTreeMap<String, Origin> {
        match namespace {
            Namespace::Tool => &mut self.tools,
            Namespace::Prompt => &mut self.prompts,
        }
    }

    /// Where this comes from.
    pub fn origin(&self, namespace: Namespace, listed: &str) -> Option<&Origin> {
        self.of(namespace).get(listed)
    }

    /// The name under which it is listed.
    pub fn listed_as(&self, namespace: Namespace, own: &Origin) -> Option<&str> {
        self.of(namespace)
            .iter()
            .find(|(_, one)| *one == own)
            .map(|(listed, _)| &**listed)
    }

    /// The names of one backend's: from its own to those that are listed.
    pub fn listed(&self, namespace: Namespace, backend: &str) -> BTreeMap<&str, &str> {
        let names = self
            .of(namespace)
            .iter()
            .filter(|(_, own)| own.backend == backend);
        names.map(|(listed, own)| (&*own.name, &**listed)).collect()
    }

    /// The same as values of their own.
    pub fn listed_owned(&self, namespace: Namespace, backend: &str) -> BTreeMap<String, String> {
        let listed = self.listed(namespace, backend).into_iter();
        listed
            .map(|(own, listed)| (own.to_owned(), listed.to_owned()))
            .collect()
    }

    /// A backend lists these. Who has a name keeps it. Returns whether a name was given or taken.
    pub fn assign<'a>(
        &mut self,
        namespace: Namespace,
        style: Style,
        backend: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        let mut has_changed = false;
        let names: BTreeSet<&str> = names.into_iter().collect();
        let table = self.of_mut(namespace);
        let mut has: BTreeMap<String, String> = BTreeMap::new();
        let mut absent = 0;
        table.retain(|listed, own| {
            if own.backend != backend {
                return true;
            }
            // Where bare names are not wanted, a former one is not kept.
            let is_fine = style == Style::Bare
                || *listed != sanitised(namespace, &own.name, backend, &own.name);
            let is_there = names.contains(&*own.name);
            absent += usize::from(!is_there);
            let stays = is_fine && (is_there || absent <= REMEMBERED_MAX);
            if stays {
                has.insert(own.name.clone(), listed.clone());
            }
            has_changed |= !stays;
            stays
        });
        for name in names.into_iter().filter(|name| !has.contains_key(*name)) {
            let bare = (style == Style::Bare).then(|| sanitised(namespace, name, backend, name));
            let wanted = bare.into_iter().chain(prefixed(namespace, backend, name));
            // A digest that is taken, too, is one in four billion: the tool is not listed then.
            if let Some(free) = wanted
                .into_iter()
                .find(|listed| !table.contains_key(listed))
            {
                table.insert(
                    free,
                    Origin {
                        backend: backend.to_owned(),
                        name: name.to_owned(),
                    },
                );
                has_changed = true;
            }
        }
        has_changed
    }

    /// These backends are those of the file: the names of others are free. Returns whether any was.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let mut has_changed = false;
        for table in [&mut self.tools, &mut self.prompts] {
            let had = table.len();
            table.retain(|_, own| is_there(&own.backend));
            has_changed |= table.len() < had;
        }
        has_changed
    }
}

/// The names of which one is given to what does not have a bare one, the wanted one first.
pub(crate) fn prefixed(namespace: Namespace, backend: &str, name: &str) -> [String; 2] {
    let prefixed = format!("{backend}_{name}");
    [
        sanitised(namespace, &prefixed, backend, name),
        digested(&prefixed, backend, name),
    ]
}

/// A name that every model's interface takes, for tools; prompts are chosen by people.
fn sanitised(namespace: Namespace, listed: &str, backend: &str, name: &str) -> String {
    match namespace {
        Namespace::Prompt => listed.to_owned(),
        Namespace::Tool if is_fine_for_models(listed) => listed.to_owned(),
        Namespace::Tool => digested(listed, backend, name),
    }
}

/// Whether every model's interface takes this as the name of a tool.
pub(crate) fn is_fine_for_models(name: &str) -> bool {
    let is_fine =
        |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '_';
    (1..=LENGTH_MAX).contains(&name.len()) && name.chars().all(is_fine)
}

/// What is left of a name, and a digest that tells it from all others.
pub(crate) fn digested(listed: &str, backend: &str, name: &str) -> String {
    let digest = Sha256::new()
        .chain_update(backend)
        .chain_update([0])
        .chain_update(name)
        .finalize();
    let digest: String = digest
        .iter()
        .take(DIGEST / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let fine = |character: char| {
        if character.is_ascii_alphanumeric() || character == '-' {
            character
        } else {
            '_'
        }
    };
    let head: String = listed
        .chars()
        .map(fine)
        .take(LENGTH_MAX - DIGEST - 1)
        .collect();
    format!("{head}_{digest}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Namespace::{Prompt, Tool};
    use Style::{Always, Bare};

    fn names(of: &[(&str, &[&str])], style: Style) -> Names {
        let mut names = Names::default();
        for (backend, tools) in of {
            names.assign(Tool, style, backend, tools.iter().copied());
        }
        names
    }

    fn shown(names: &Names, backend: &str) -> Vec<(String, String)> {
        let listed = names.listed(Tool, backend);
        listed
            .into_iter()
            .map(|(own, listed)| (own.to_owned(), listed.to_owned()))
            .collect()
    }

    fn pair(own: &str, listed: &str) -> (String, String) {
        (own.to_owned(), listed.to_owned())
    }

    /// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`
    /// `CapabilityNameConflictIsResolvedDeterministically`.
    #[test]
    fn the_first_bearer_has_the_bare_name() {
        let names = names(&[("a", &["search", "add"]), ("b", &["search"])], Bare);
        assert_eq!(
            shown(&names, "a"),
            [pair("add", "add"), pair("search", "search")]
        );
        assert_eq!(shown(&names, "b"), [pair("search", "b_search")]);
        assert_eq!(
            names.origin(Tool, "b_search"),
            Some(&Origin {
                backend: "b".into(),
                name: "search".into()
            })
        );
        assert_eq!(names.origin(Tool, "a_search"), None);
    }

    /// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`
    /// `CapabilityNameConflictIsResolvedDeterministically`; `aggregator` `CollisionRouting`.
    #[test]
    fn names_stay_in_another_order_after_a_third_has_joined_and_when_a_tool_was_away() {
        let first = names(&[("a", &["search"]), ("b", &["search"])], Bare);
        let text = serde_json::to_string(&first).expect("JSON");
        let mut second: Names = serde_json::from_str(&text).expect("names");
        assert_eq!(second, first);
        assert!(second.assign(Tool, Bare, "c", ["search"]));
        assert!(!second.assign(Tool, Bare, "b", ["search"]));
        assert!(!second.assign(Tool, Bare, "a", []));
        assert!(!second.assign(Tool, Bare, "a", ["search"]));
        for (backend, listed) in [("a", "search"), ("b", "b_search"), ("c", "c_search")] {
            assert_eq!(shown(&second, backend), [pair("search", listed)]);
        }
        // Who is not in the file any more has no name; the others keep theirs.
        assert!(second.retain(|backend| backend != "a"));
        second.assign(Tool, Bare, "d", ["search"]);
        assert_eq!(shown(&second, "d"), [pair("search", "search")]);
        assert_eq!(shown(&second, "b"), [pair("search", "b_search")]);
    }

    /// As in toolhive (`pkg/vmcp`): `aggregator` `PromptPrefixFormat`, `PrefixConflictResolver`.
    #[test]
    fn always_means_all() {
        let mut names = names(&[("a", &["search"])], Bare);
        assert!(names.assign(Tool, Always, "a", ["search"]));
        assert!(names.assign(Tool, Always, "b", ["search"]));
        assert_eq!(shown(&names, "a"), [pair("search", "a_search")]);
        assert_eq!(shown(&names, "b"), [pair("search", "b_search")]);
    }

    #[test]
    fn a_name_that_somebody_else_has_made_up_is_not_taken_twice() {
        let names = names(
            &[
                ("b", &["x"]),
                ("a", &["b_search"]),
                ("c", &["search"]),
                ("b", &["x", "search"]),
            ],
            Bare,
        );
        let listed = names.listed(Tool, "b")["search"].to_owned();
        assert!(
            listed.starts_with("b_search_") && listed.len() == "b_search_".len() + DIGEST,
            "{listed}"
        );
    }

    #[test]
    fn what_no_interface_takes_is_shortened_with_a_digest() {
        let long = "x".repeat(LENGTH_MAX + 1);
        let names = names(&[("a", &["files.read", "files_read", &long, ""])], Bare);
        let listed = names.listed(Tool, "a");
        assert_eq!(listed["files_read"], "files_read");
        assert!(listed["files.read"].starts_with("files_read_"));
        assert_eq!(listed[&*long].len(), LENGTH_MAX);
        let mut prompts = Names::default();
        prompts.assign(Prompt, Bare, "a", ["Review: all"]);
        assert_eq!(prompts.listed(Prompt, "a")["Review: all"], "Review: all");
        assert_eq!(prompts.listed(Tool, "a").len(), 0);
    }

    #[test]
    fn names_without_end_are_not_all_remembered() {
        let mut names = Names::default();
        for round in 0..3 {
            let made_up: Vec<String> = (0..REMEMBERED_MAX)
                .map(|n| format!("t{round}_{n}"))
                .collect();
            names.assign(Tool, Bare, "a", made_up.iter().map(String::as_str));
        }
        assert_eq!(names.listed(Tool, "a").len(), 2 * REMEMBERED_MAX);
    }

    proptest! {
        /// As in toolhive (`pkg/vmcp`): `aggregator` `AdvertisedCapabilitiesCarryBackendID`.
        #[test]
        fn every_tool_has_one_name_that_leads_back_to_it(
            rounds in prop::collection::vec((0..4_usize, prop::collection::btree_set("[ab_.]{0,3}", 0..5)), 1..20),
        ) {
            let backends = ["a", "b", "a_b", "ab"];
            let mut names = Names::default();
            let mut seen: BTreeMap<Origin, String> = BTreeMap::new();
            for (backend, tools) in &rounds {
                names.assign(Tool, Bare, backends[*backend], tools.iter().map(String::as_str));
                let listed = names.listed(Tool, backends[*backend]);
                for tool in tools {
                    let own = Origin { backend: backends[*backend].into(), name: tool.clone() };
                    let listed = listed[&**tool].to_owned();
                    prop_assert_eq!(names.origin(Tool, &listed), Some(&own));
                    // It has the name that it was given first.
                    prop_assert_eq!(&*seen.entry(own).or_insert_with(|| listed.clone()), &listed);
                }
            }
        }
    }
}
