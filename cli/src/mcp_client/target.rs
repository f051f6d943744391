//! Which server a name means for `call`, and how it is reached without disturbing a
//! host's.

use std::ffi::OsString;
use std::path::PathBuf;

use mcp_sessiond_process::executable;
use mcp_sessiond_proto::text::did_you_mean;

use super::CallFailure;
use crate::exit_code::{NO_INPUT, UNAVAILABLE};
use crate::inventory::{Inventory, Server};
use crate::servers::{Entry, Kind, Servers};
use crate::ui::output::warn;

/// A call means the server that has the name, and not another one of its own.
const NAMED: [&str; 2] = ["--exclusive", "--name"];

/// How a server is reached: by the words behind `mcp-sessiond wrap`.
#[derive(Debug)]
pub(crate) struct Target {
    /// What the user calls it.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    pub(crate) words: Vec<OsString>,
    /// The directory that it is started in; none: this process's.
    pub(crate) directory: Option<PathBuf>,
}

/// What the names of sessions begin with that belong to `call`. The daemon ends such a session when
/// nobody has used it for `backends.linger_ms`.
const OWN_PREFIX: char = '@';

impl Target {
    /// The server that is meant: a shared one, one with a name of the user's, or one of
    /// `servers.json`; never one that belongs to a host.
    ///
    /// # Errors
    /// Exit code 69 where it belongs to a host; 66 where there is no such server.
    pub(crate) async fn find(what: &str) -> Result<Self, CallFailure> {
        let inventory = Inventory::read()
            .await
            .map_err(|failure| CallFailure::new(UNAVAILABLE, failure.to_string()))?;
        let name = what.strip_prefix(OWN_PREFIX).unwrap_or(what);
        let file = Servers::usual_path().and_then(|path| Servers::read(&path));
        let entry = file.as_ref().ok().and_then(|file| file.get(name).ok());
        if let Some(entry) = entry.filter(|entry| entry.options().shared) {
            return Ok(Self::wrap(what, vec![format!("@{}", entry.name()).into()]));
        }
        let is_named =
            |server: &&Server| server.is_users() && server.hosts.is_none() && server.server == what;
        if let Some(server) = inventory.servers.iter().find(is_named)
            && !what.starts_with(OWN_PREFIX)
        {
            let mut words: Vec<OsString> = NAMED.map(OsString::from).into();
            words.extend([what.into(), "--".into()]);
            words.extend(server.command.iter().map(OsString::from));
            return Ok(Self::wrap(what, words));
        }
        if let Some(entry) = entry {
            return Ok(Self::of_entry(what, entry, &inventory));
        }
        // What is wrong with the entry is more than that there is none.
        if let Ok(file) = &file
            && file.listed_as(name).is_some()
            && let Err(error) = file.get(name)
        {
            return Err(CallFailure::new(error.code(), error.to_string()));
        }
        Err(Self::refuse(what, &inventory, file.as_ref().ok()))
    }

    /// A server of the list, in a session that is the user's own.
    fn of_entry(what: &str, entry: &Entry, inventory: &Inventory) -> Self {
        let at_name = format!("{OWN_PREFIX}{}", entry.name());
        if let Kind::Http { .. } = entry.kind() {
            return Self::wrap(what, vec![at_name.into()]);
        }
        let runs = |server: &Server| server.is_users() && server.server == at_name;
        if !inventory.servers.iter().any(runs) {
            warn(format_args!(
                "{at_name} runs in a session of your own, apart from every host's; it ends ten minutes after the last call (`backends.linger_ms`)"
            ));
        }
        let mut words: Vec<OsString> = NAMED.map(OsString::from).into();
        words.extend([at_name.clone().into(), at_name.into()]);
        Self::wrap(what, words)
    }

    fn wrap(name: &str, words: Vec<OsString>) -> Self {
        Self {
            name: name.to_owned(),
            executable: executable::own().unwrap_or_else(|| "/proc/self/exe".into()),
            words,
            directory: None,
        }
    }

    /// Another server of the same command, which ends with whoever asks it: for what is the same in
    /// both, while somebody has the first one.
    pub(crate) async fn twin(what: &str) -> Option<Self> {
        let inventory = Inventory::read().await.ok()?;
        let is_meant = |server: &&Server| server.server == what && !server.command.is_empty();
        let server = inventory.servers.iter().find(is_meant)?;
        let mut words: Vec<OsString> = ["--resume", "never", "--"].map(OsString::from).into();
        words.extend(server.command.iter().map(OsString::from));
        Some(Self {
            directory: server.directory.clone(),
            ..Self::wrap(what, words)
        })
    }

    /// Why the name means none.
    fn refuse(what: &str, inventory: &Inventory, file: Option<&Servers>) -> CallFailure {
        let is_meant = |server: &&Server| server.host.is_some() && server.server == what;
        let owners: Vec<String> = inventory
            .servers
            .iter()
            .filter(is_meant)
            .map(|server| {
                let host = server.host_name.as_deref().unwrap_or("a host");
                format!("{host} (pid {})", server.host.unwrap_or_default())
            })
            .collect();
        if !owners.is_empty() {
            return CallFailure::of_another(
                UNAVAILABLE,
                format!(
                    "{what} belongs to {}. To use it from a shell, write `--name {what}` behind `wrap` in its entry in the host's file and restart the host, \
                     or share it: `\"shared\": true` in servers.json",
                    owners.join(" and to ")
                ),
            );
        }
        let of_file = file.into_iter().flat_map(Servers::entries);
        let mut known: Vec<String> = of_file.map(|entry| entry.name().to_owned()).collect();
        known.extend(
            inventory
                .servers
                .iter()
                .filter(|server| server.is_users() && server.hosts.is_none())
                .map(|server| server.server.clone()),
        );
        known.sort();
        known.dedup();
        let which = match did_you_mean(what, known.iter().map(String::as_str)) {
            _ if known.is_empty() => {
                "; servers.json lists none, and no server with a `--name` runs (write `--name NAME` behind `wrap` in its entry in the host's file)"
                    .to_owned()
            }
            meant if meant.is_empty() => format!("; there are {}", known.join(", ")),
            meant => meant,
        };
        CallFailure::new(
            NO_INPUT,
            format!("there is no server `{what}` that can be called from a shell{which}"),
        )
    }
}
