//! Why a server of the file can't be run.

use std::path::{Path, PathBuf};

use mcp_sessiond_proto::text::did_you_mean;
use mcp_sessiond_proxy::front::failed_start::StartError;

use super::FILE;
use crate::exit_code::{DATA_ERROR, NO_INPUT, OS_ERROR};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServersError {
    /// There is no home directory to look in.
    #[error("there is no home directory, and so no {FILE}")]
    NoHome,
    /// The file is not there, or can't be read.
    #[error("{}", unread(path, error))]
    Unread {
        path: PathBuf,
        error: std::io::Error,
    },
    /// It is not JSON, or not of the form.
    #[error("{}: {error}", path.display())]
    Form {
        path: PathBuf,
        error: serde_json::Error,
    },
    #[error("there is no server {name:?} in {}{}", path.display(), there_are(name, names))]
    Unknown {
        path: PathBuf,
        name: String,
        names: Vec<String>,
    },
    /// The entry can't be run, and why.
    #[error("the server {name:?} in {}: {why}", path.display())]
    Entry {
        path: PathBuf,
        name: String,
        why: String,
    },
    /// What is to be added to its servers can't be.
    #[error("{}: {why}", path.display())]
    Undecorated { path: PathBuf, why: String },
    #[error("could not start again as {}: {error}", path.display())]
    Exec {
        path: PathBuf,
        error: std::io::Error,
    },
}

impl ServersError {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NoHome | Self::Unread { .. } | Self::Unknown { .. } => NO_INPUT,
            Self::Form { .. } | Self::Entry { .. } | Self::Undecorated { .. } => DATA_ERROR,
            Self::Exec { .. } => OS_ERROR,
        }
    }
}

impl From<ServersError> for StartError {
    fn from(error: ServersError) -> Self {
        Self {
            code: error.code(),
            sentence: error.to_string(),
        }
    }
}

fn unread(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    if error.kind() == std::io::ErrorKind::NotFound {
        format!("there is no {path}; `mcp-sessiond import` makes one from a host's file")
    } else {
        format!("could not read {path}: {error}")
    }
}

fn there_are(name: &str, names: &[String]) -> String {
    if names.is_empty() {
        return "; it has none".to_owned();
    }
    match did_you_mean(name, names.iter().map(String::as_str)) {
        meant if meant.is_empty() => format!("; there are: {}", names.join(", ")),
        meant => meant,
    }
}
