//! Watches the file for edits.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use mcp_sessiond_process::changes::Changes;
use mcp_sessiond_process::regular_file;
use tokio::time::Instant;

use super::{Edit, FILE_MAX, Servers, ServersError};

/// How long a file may be wrong before that is said: an editor may empty it before it writes it.
const SETTLE: Duration = Duration::from_millis(300);

/// How often the file is looked at where the system reports no changes.
const LOOK: Duration = Duration::from_secs(1);

/// How many symbolic links may lead to a file (Linux has this limit, too).
const LINKS_MAX: usize = 40;

/// The file, and the servers that it had when it was last right.
#[derive(Debug)]
pub(crate) struct Watch {
    servers: Servers,
    /// What the file had in it when it was last read, right or wrong.
    text: Option<Vec<u8>>,
    /// None: the system reports none.
    changes: Option<Changes>,
    /// A part of the way is not watched: it went while it was looked for.
    blind: bool,
    news: VecDeque<FileChange>,
    /// What is wrong with the file, and until when that may pass.
    doubt: Option<(String, Instant)>,
    /// What was last said to be wrong with the file.
    last_warning: Option<String>,
}

/// What an edit of the file means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileChange {
    /// The servers are others now.
    Edited(Edit),
    /// A sentence on what is wrong with the file, or with one of its servers. What it had before
    /// still holds.
    Wrong(String),
}

impl Watch {
    /// Reads the file, and watches it from then on. Call it within a tokio runtime.
    ///
    /// # Errors
    /// Those of [`Servers::read`].
    pub(crate) fn begin(path: &Path) -> Result<Self, ServersError> {
        let path = std::path::absolute(path).map_err(|error| ServersError::Unread {
            path: path.to_owned(),
            error,
        })?;
        let mut changes = Changes::new().ok();
        let blind = changes
            .as_mut()
            .is_none_or(|changes| watch(changes, &path).is_err());
        let text = read(&path)?;
        let servers = Servers::parse(&text, &path)?;
        let (doubt, last_warning) = (None, None);
        Ok(Self {
            servers,
            text: Some(text),
            changes,
            blind,
            news: VecDeque::new(),
            doubt,
            last_warning,
        })
    }

    /// The servers, as the file had them when it was last right. One that is wrong now is as it was
    /// before, and is in [`Servers::bad`], too.
    pub(crate) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Waits until an edit means something. What is wrong is told once. Cancel-safe.
    pub(crate) async fn next(&mut self) -> FileChange {
        loop {
            // Watch first, then look: so the next look sees what changes during this one.
            self.watch();
            self.look();
            if let Some(news) = self.news.pop_front() {
                return news;
            }
            let poll = self.blind.then(|| Instant::now() + LOOK);
            let due = self
                .doubt
                .as_ref()
                .map(|(_, until)| *until)
                .into_iter()
                .chain(poll)
                .min();
            tokio::select! {
                waited = changed(self.changes.as_ref()) => if waited.is_err() { self.changes = None },
                () = until(due) => {}
            }
        }
    }

    fn watch(&mut self) {
        self.blind = self.changes.as_mut().is_none_or(|changes| {
            changes.take();
            watch(changes, &self.servers.path).is_err()
        });
    }

    fn look(&mut self) {
        let found = read(&self.servers.path);
        let same = matches!((&found, &self.text), (Ok(found), Some(text)) if found == text);
        if same && self.doubt.is_none() && self.last_warning.is_none() {
            return;
        }
        let parsed = found.and_then(|text| {
            let servers = Servers::parse(&text, &self.servers.path);
            self.text = Some(text);
            servers
        });
        match parsed {
            Ok(servers) => {
                (self.doubt, self.last_warning) = (None, None);
                self.adopt(servers);
            }
            Err(error) => self.doubted(error.to_string()),
        }
    }

    /// The file is wrong, or not there.
    fn doubted(&mut self, why: String) {
        if self.last_warning.as_ref() == Some(&why) {
            self.doubt = None;
            return;
        }
        let until = self
            .doubt
            .as_ref()
            .map_or_else(|| Instant::now() + SETTLE, |(_, until)| *until);
        if Instant::now() < until {
            self.doubt = Some((why, until));
            return;
        }
        self.doubt = None;
        self.news.push_back(FileChange::Wrong(format!(
            "{why}; its servers stay as they are"
        )));
        self.last_warning = Some(why);
    }

    fn adopt(&mut self, mut servers: Servers) {
        for listed in &mut servers.listed {
            let Some(why) = &listed.wrong else { continue };
            let former = self
                .servers
                .listed
                .iter()
                .find(|former| former.name == listed.name);
            listed.entry = former.and_then(|former| former.entry.clone());
            if former.and_then(|former| former.wrong.as_ref()) != Some(why) {
                let stays = if listed.entry.is_some() {
                    "; it stays as it was"
                } else {
                    ""
                };
                let wrong = self.servers.wrong(&listed.name, format!("{why}{stays}"));
                self.news.push_back(FileChange::Wrong(wrong.to_string()));
            }
        }
        let edit = Servers::changes(&self.servers, &servers);
        let is_new = self.servers != servers;
        self.servers = servers;
        if is_new {
            self.news.push_back(FileChange::Edited(edit));
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ServersError> {
    regular_file::read(path, FILE_MAX).map_err(|error| ServersError::Unread {
        path: path.to_owned(),
        error,
    })
}

async fn changed(changes: Option<&Changes>) -> io::Result<()> {
    match changes {
        Some(changes) => changes.wait().await,
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn watch(changes: &mut Changes, path: &Path) -> io::Result<()> {
    for directory in leading_to(path) {
        changes.watch_entries(&directory)?;
    }
    match changes.watch_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        watched => watched,
    }
}

/// The directories whose entries lead to the file: its own, those of the symbolic links on the way,
/// and where the way ends, if it does.
fn leading_to(path: &Path) -> Vec<PathBuf> {
    let mut rest: VecDeque<OsString> = parts(path).collect();
    let (mut at, mut links, mut found) = (PathBuf::from("/"), 0, Vec::new());
    while let Some(part) = rest.pop_front() {
        if part == OsStr::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let target = next.read_link().ok().filter(|_| links < LINKS_MAX);
        let is_there = next.symlink_metadata().is_ok();
        if (target.is_some() || rest.is_empty() || !is_there) && !found.contains(&at) {
            found.push(at.clone());
        }
        if let Some(target) = target {
            links += 1;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in parts(&target).rev() {
                rest.push_front(part);
            }
        } else if is_there {
            at = next;
        } else {
            break;
        }
    }
    found
}

/// The names that a path is made of.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
