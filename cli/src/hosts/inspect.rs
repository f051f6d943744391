//! How the servers in a host's file stand, for `doctor`. Nothing is changed.

use std::path::{Path, PathBuf};

use super::Host;
use super::edit::body;
use super::entries::{Form, form};
use super::executable::Executable;
use super::file::HostFile;
use super::members::{Server, servers, tree};

/// How a server stands in a host's file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// It is run by us.
    Wrapped,
    /// It is run by an executable of ours that is gone, which has this path.
    Gone(String),
    /// It could be wrapped.
    Wrappable,
    /// It can't be: a clause that says why.
    NotWrappable(&'static str),
}

/// A server in a host's file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) state: EntryState,
    /// Whether it names us without a path.
    pub(crate) is_bare: bool,
}

/// What is in a host's file.
#[derive(Debug)]
pub(crate) struct HostEntries {
    /// Where it is, without symbolic links.
    pub(crate) file: PathBuf,
    /// In its order.
    pub(crate) entries: Vec<Entry>,
    /// Why `setup` would not edit it: a sentence with what to do.
    pub(crate) hindrance: Option<String>,
}

/// The servers of a file of this host's. None: there is no such file.
///
/// # Errors
/// When it can't be read or is not of its form: a clause, which quotes nothing of it but names.
pub(crate) fn entries_of(host: Host, path: &Path) -> Result<Option<HostEntries>, String> {
    let Some(file) = HostFile::read(path).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    // Where there is none, only our usual name tells.
    let executable =
        Executable::that_stays().map_or_else(|_| "mcp-sessiond".to_owned(), |found| found.path);
    let tree = tree(host, body(&file.text))?;
    let mut entries = Vec::new();
    for Server { name, entry, .. } in servers(host, tree.as_ref())? {
        let form = form(host, entry).map_err(|why| format!("the server {name:?}: {why}"))?;
        let first = form.words().into_iter().next().unwrap_or_default();
        let is_bare = first == "mcp-sessiond";
        let state = match &form {
            Form::NotWrappable(why) => EntryState::NotWrappable(why),
            form if !form.is_ours(&executable) => EntryState::Wrappable,
            form if form.renew(&executable).is_some() => EntryState::Gone(first),
            _ => EntryState::Wrapped,
        };
        entries.push(Entry {
            name,
            state,
            is_bare,
        });
    }
    let hindrance = file.hindrance();
    Ok(Some(HostEntries {
        file: file.path,
        entries,
        hindrance,
    }))
}
