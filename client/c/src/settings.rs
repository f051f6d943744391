//! What `mcp_sessiond_init` was told, as the client takes it.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mcp_sessiond_client::{CALL_TIMEOUT, Options, Siblings, Start};

use crate::failure::Failure;
use crate::values::{mcp_sessiond_siblings as siblings, mcp_sessiond_start as start};

/// The longest timeout: a day, as the header says.
const TIMEOUT_MAX_MS: u32 = 24 * 3600 * 1000;

/// The fields of `mcp_sessiond_options`, with texts that can be read.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) label: Option<&'a CStr>,
    pub(crate) entry: Option<&'a CStr>,
    pub(crate) client: Option<&'a CStr>,
    pub(crate) directory: Option<&'a CStr>,
    pub(crate) executable: Option<&'a CStr>,
    pub(crate) timeout_ms: u32,
    pub(crate) start: u32,
    pub(crate) siblings: u32,
    pub(crate) instance: u32,
}

impl Settings<'_> {
    /// The options, and how long a call may take.
    pub(crate) fn read(&self) -> Result<(Options, Duration), Failure> {
        let mut options = Options::default();
        if let Some(label) = parsed("label", self.label)? {
            options = options.label(label);
        }
        if let Some(entry) = parsed("entry", self.entry)? {
            options = options.entry(entry);
        }
        if let Some(client) = parsed("client", self.client)? {
            options = options.client(client);
        }
        if let Some(directory) = path(self.directory) {
            if !directory.is_absolute() {
                return Err(Failure::argument(
                    "options.directory must be an absolute path",
                ));
            }
            options = options.directory(directory);
        }
        let binary = path(self.executable);
        options = match self.start {
            number if number == start::MCP_SESSIOND_START_AUTO as u32 => {
                options.start(Start::Auto { binary })
            }
            number if number == start::MCP_SESSIOND_START_NEVER as u32 => {
                options.start(Start::Never)
            }
            other => return Err(no_such("start", other, "mcp_sessiond_start")),
        };
        if self.siblings != siblings::MCP_SESSIOND_SIBLINGS_DEFAULT as u32 {
            const NUMBERS: [(siblings, Siblings); 4] = [
                (siblings::MCP_SESSIOND_SIBLINGS_FRESH, Siblings::Fresh),
                (
                    siblings::MCP_SESSIOND_SIBLINGS_SUCCESSOR,
                    Siblings::Successor,
                ),
                (siblings::MCP_SESSIOND_SIBLINGS_OLDEST, Siblings::Oldest),
                (siblings::MCP_SESSIOND_SIBLINGS_NEVER, Siblings::Never),
            ];
            let found = NUMBERS
                .iter()
                .find(|(number, _)| *number as u32 == self.siblings);
            let (_, chosen) =
                found.ok_or_else(|| no_such("siblings", self.siblings, "mcp_sessiond_siblings"))?;
            options = options.siblings(*chosen);
        }
        if self.instance != 0 {
            options = options.instance(self.instance);
        }
        let timeout = match self.timeout_ms {
            0 => CALL_TIMEOUT,
            ms if ms > TIMEOUT_MAX_MS => {
                let sentence =
                    format!("options.timeout_ms is {ms}; it can be {TIMEOUT_MAX_MS} at most");
                return Err(Failure::argument(sentence));
            }
            ms => Duration::from_millis(ms.into()),
        };
        Ok((options, timeout))
    }
}

/// A text that has a form.
fn parsed<T: FromStr>(name: &str, text: Option<&CStr>) -> Result<Option<T>, Failure>
where
    T::Err: std::fmt::Display,
{
    let Some(text) = text else { return Ok(None) };
    let text = text
        .to_str()
        .map_err(|_| Failure::argument(format!("options.{name} must be UTF-8")))?;
    text.parse()
        .map(Some)
        .map_err(|error| Failure::argument(format!("options.{name}: {error}")))
}

fn path(path: Option<&CStr>) -> Option<PathBuf> {
    path.map(|path| OsStr::from_bytes(path.to_bytes()).into())
}

fn no_such(field: &str, number: u32, of: &str) -> Failure {
    Failure::argument(format!(
        "options.{field} is {number}, which is not a {of} that this version knows"
    ))
}
