//! `servers.json`: the servers that the user has written down once, for all hosts. `wrap @NAME`
//! runs one of them.

pub(crate) mod bundle;
mod entry;
mod error;
mod fields;
mod file;
mod keyring;
pub(crate) mod remote;
mod resolve;
mod run;
mod shared;
mod watch;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use mcp_sessiond_daemon::config;
use mcp_sessiond_process::regular_file;
use mcp_sessiond_proxy::front::bundle::Decorations;
use serde_json::{Map, Value};

pub(crate) use self::entry::{Entry, Kind, is_http};
pub(crate) use self::error::ServersError;
pub(crate) use self::keyring::store_command;
#[cfg(feature = "http")]
pub(crate) use self::resolve::expanded;
#[cfg(feature = "http")]
pub(crate) use self::run::names_in;
pub(crate) use self::run::{exec_wrap, named, resume_of, shared};
pub(crate) use self::watch::{FileChange, Watch};

/// The file, beside the configuration.
const FILE: &str = "servers.json";

/// Bytes that the file may have.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// What the file has: servers by name, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    path: PathBuf,
    listed: Vec<Item>,
    decorations: Decorations,
}

/// A server of the file. One that is wrong has no entry, unless a [`watch::Watch`] has kept its
/// former one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    name: String,
    entry: Option<Entry>,
    wrong: Option<String>,
}

impl Servers {
    /// Where the file is.
    ///
    /// # Errors
    /// Without a home directory.
    pub(crate) fn usual_path() -> Result<PathBuf, ServersError> {
        Ok(config::usual_path()
            .ok_or(ServersError::NoHome)?
            .with_file_name(FILE))
    }

    /// Reads the file. A server that is wrong takes no other with it: it is in [`Self::bad`].
    ///
    /// # Errors
    /// When the file can't be read, is not JSON, or has no servers where they belong.
    pub(crate) fn read(path: &Path) -> Result<Self, ServersError> {
        let text = regular_file::read(path, FILE_MAX).map_err(|error| ServersError::Unread {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(&text, path)
    }

    /// The same, from what the file at `path` has in it.
    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Self, ServersError> {
        let (values, decorations) = file::servers(text).map_err(|error| ServersError::Form {
            path: path.to_owned(),
            error,
        })?;
        let base = path.parent().unwrap_or(Path::new("/"));
        let listed = values.into_iter().map(|(name, value)| {
            match value.and_then(|value| Entry::read(&name, &value, base)) {
                Ok(entry) => Item {
                    name,
                    entry: Some(entry),
                    wrong: None,
                },
                Err(why) => Item {
                    name,
                    entry: None,
                    wrong: Some(why),
                },
            }
        });
        Ok(Self {
            path: path.to_owned(),
            listed: listed.collect(),
            decorations,
        })
    }

    /// The servers that are right, in the order of the file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.listed
            .iter()
            .filter_map(|listed| listed.entry.as_ref())
    }

    /// Says what is wrong with what is to be added.
    pub(crate) fn decoration_error(&self, why: &dyn std::fmt::Display) -> ServersError {
        ServersError::Undecorated {
            path: self.path.clone(),
            why: why.to_string(),
        }
    }

    /// What is added to all servers together.
    pub(crate) fn decorations(&self) -> &Decorations {
        &self.decorations
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All servers, in the order of the file; of one that is wrong, why.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, Result<&Entry, &str>)> {
        self.listed.iter().map(|listed| {
            let entry = listed
                .entry
                .as_ref()
                .ok_or(listed.wrong.as_deref().unwrap_or_default());
            (&*listed.name, entry)
        })
    }

    /// The names of those that are wrong, each with why.
    #[cfg(test)]
    pub(crate) fn bad(&self) -> impl Iterator<Item = (&str, &str)> {
        self.listed
            .iter()
            .filter_map(|listed| Some((&*listed.name, listed.wrong.as_deref()?)))
    }

    /// The server of this name.
    ///
    /// # Errors
    /// When there is none, or it is wrong.
    pub(crate) fn get(&self, name: &str) -> Result<&Entry, ServersError> {
        let Some(listed) = self.listed.iter().find(|listed| listed.name == name) else {
            let mut names: Vec<String> = self
                .listed
                .iter()
                .map(|listed| listed.name.clone())
                .collect();
            names.sort();
            return Err(ServersError::Unknown {
                path: self.path.clone(),
                name: name.to_owned(),
                names,
            });
        };
        listed
            .entry
            .as_ref()
            .ok_or_else(|| self.wrong(name, listed.wrong.clone().unwrap_or_default()))
    }

    /// What is listed under this name: an entry, or why there is none. None: the name is free.
    pub(crate) fn listed_as(&self, name: &str) -> Option<Result<&Entry, &str>> {
        let listed = self.listed.iter().find(|listed| listed.name == name)?;
        Some(
            listed
                .entry
                .as_ref()
                .ok_or(listed.wrong.as_deref().unwrap_or_default()),
        )
    }

    /// The entry that this would be in the file.
    ///
    /// # Errors
    /// Why it would be wrong.
    pub(crate) fn would_be(&self, name: &str, entry: &Map<String, Value>) -> Result<Entry, String> {
        Entry::read(
            name,
            &Value::Object(entry.clone()),
            self.path.parent().unwrap_or(Path::new("/")),
        )
    }

    /// Says why this server of the file can't be run.
    fn wrong(&self, name: &str, why: String) -> ServersError {
        ServersError::Entry {
            path: self.path.clone(),
            name: name.to_owned(),
            why,
        }
    }

    /// What an edit has done. Entries are compared as they are written, so a secret that is another
    /// now is no change.
    pub(crate) fn changes(old: &Self, new: &Self) -> Edit {
        let mut edit = Edit::default();
        for entry in new.entries() {
            match old.entries().find(|former| former.name() == entry.name()) {
                None => edit.added.push(entry.name().to_owned()),
                Some(former) if former != entry => edit.changed.push(entry.name().to_owned()),
                Some(_) => {}
            }
        }
        let is_gone = |former: &&Entry| new.entries().all(|entry| entry.name() != former.name());
        edit.removed = old
            .entries()
            .filter(is_gone)
            .map(|former| former.name().to_owned())
            .collect();
        edit
    }
}

/// Names of servers, in the order of the new file; those that were removed in the order of the old
/// one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
}

#[cfg(test)]
mod tests;
