//! `wrap --all`, and `serve` of several: servers of `servers.json`, as one.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mcp_sessiond_client::{ClaimRequest, Options};
use mcp_sessiond_daemon::config::{Config, Names};
use mcp_sessiond_proto::Resume;
use mcp_sessiond_proxy::front::bundle::{
    self, Calls, Decoration, Decorations, Edit, Failure, FailureCode, Filter, Glob, Launch, List,
    Mistake, Rename, Server, Settings, Style, Time, Waking,
};
use mcp_sessiond_proxy::program::Program;
use mcp_sessiond_proxy::server::shared::Shared;

use super::{Entry, FileChange, Kind, Servers, ServersError, Watch, remote};
use crate::config::{front_settings, load_or_default};
use crate::ui::output::warn;

/// What the command line says of all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flags {
    /// When all are started, where the host is answered from memory until then.
    pub(crate) lazy: Option<Waking>,
    /// Whether an edit of what its script imports makes a server another one.
    pub(crate) has_sources: bool,
}

/// Runs them all, until the host closes its end or is gone.
///
/// # Errors
/// When the file can't be read.
pub(crate) fn run(
    options: &Options,
    claim: ClaimRequest,
    filter: Filter,
    flags: Flags,
) -> Result<ExitCode, ServersError> {
    let (path, servers) = read(&filter)?;
    // All of them are in one session: what must not be resumed in it is not resumed.
    let is_never =
        |entry: &Entry| !entry.options().disabled && entry.options().resume == Some(Resume::Never);
    let never = servers
        .all()
        .any(|(_, entry)| entry.is_ok_and(is_never))
        .then_some(Resume::Never);
    let claim = ClaimRequest {
        resume: claim.resume.or(never),
        ..claim
    };
    warn_of_secrets(&servers, flags.lazy);
    let config = Arc::new(load_or_default());
    let listed = config.clone();
    let list = move || -> Box<dyn List> {
        // It was there a moment ago. Where it can't be watched, it is as it was.
        let watch = Watch::begin(&path);
        Box::new(FileServers {
            servers,
            watch,
            filter,
            flags,
            names: None,
            config: listed,
        })
    };
    Ok(bundle::run(
        options,
        claim,
        list,
        settings(&config),
        front_settings(&config),
    ))
}

fn read(filter: &Filter) -> Result<(PathBuf, Servers), ServersError> {
    let path = Servers::usual_path()?;
    let servers = Servers::read(&path)?;
    decorations(&servers, filter).map_err(|error| servers.decoration_error(&error))?;
    Ok((path, servers))
}

/// Says which servers are started with their host although they were to wait for their first calls.
fn warn_of_secrets(servers: &Servers, lazy: Option<Waking>) {
    let waits =
        |entry: &&Entry| !entry.options().disabled && lazy.or(entry.options().lazy).is_some();
    for entry in servers.entries().filter(waits) {
        if may_be_another_account(entry) {
            warn(format_args!(
                "{}: the server is started with its host, which waits for it: its entry looks up a secret or uses a login, so what it answered before \
                 may have been another account's",
                entry.name()
            ));
        }
    }
}

/// With another secret or another login an entry may be another account's server, which tells
/// something else.
fn may_be_another_account(entry: &Entry) -> bool {
    entry.kind().looks_up() || entry.kind().logs_in()
}

/// Where the servers are that `serve` serves, and which these are. Without `names` it is all of
/// them.
///
/// # Errors
/// When the file can't be read, or there is no server of such a name in it.
#[cfg(feature = "http")]
pub(crate) fn listed(
    names: Option<Vec<String>>,
    filter: Filter,
) -> Result<(PathBuf, impl Fn() -> Box<dyn List> + Send + Sync), ServersError> {
    let (path, servers) = read(&filter)?;
    for name in names.iter().flatten() {
        if servers.listed_as(name).is_none() {
            servers.get(name)?;
        }
    }
    let (at, config) = (path.clone(), Arc::new(load_or_default()));
    let list = move || -> Box<dyn List> {
        let (servers, names, filter) = (servers.clone(), names.clone(), filter.clone());
        let config = config.clone();
        Box::new(FileServers {
            servers,
            watch: Watch::begin(&at),
            filter,
            flags: Flags {
                lazy: None,
                has_sources: true,
            },
            names,
            config,
        })
    };
    Ok((path, list))
}

/// How several servers are started.
pub(crate) fn settings(config: &Config) -> Settings {
    let bundle = &config.bundle;
    Settings {
        init_concurrency: bundle.init_concurrency,
        init_timeout: Duration::from_millis(bundle.init_timeout_ms),
        ready_wait: Duration::from_millis(bundle.ready_wait_ms),
        names: match bundle.names {
            Names::Bare => Style::Bare,
            Names::Always => Style::Always,
        },
        ..Settings::default()
    }
}

/// The servers of the file.
struct FileServers {
    servers: Servers,
    watch: Result<Watch, ServersError>,
    /// Of the command line.
    filter: Filter,
    flags: Flags,
    /// Those of the file that are meant. None: all that are not switched off.
    names: Option<Vec<String>>,
    config: Arc<Config>,
}

impl FileServers {
    fn current(&self) -> &Servers {
        self.watch.as_ref().map_or(&self.servers, Watch::servers)
    }
}

impl List for FileServers {
    fn place(&self) -> String {
        self.servers.path().to_string_lossy().into_owned()
    }

    fn servers(&self) -> Vec<Server> {
        let is_meant = |name: &str, entry: Result<&Entry, &str>| match &self.names {
            Some(names) => names.iter().any(|named| named == name),
            // Those that the user has switched off are none of ours.
            None => !entry.is_ok_and(|entry| entry.options().disabled),
        };
        let (servers, config) = (self.current(), &self.config);
        let meant = servers.all().filter(|(name, entry)| is_meant(name, *entry));
        meant
            .map(|(name, entry)| server(name, entry, self.flags, servers.path(), config))
            .collect()
    }

    fn decorations(&self) -> Result<Decorations, String> {
        let servers = self.current();
        let all = decorations(servers, &self.filter)
            .map_err(|error| servers.decoration_error(&error).to_string())?;
        Ok(match &self.names {
            Some(names) => all.of(|server| names.iter().any(|name| name == server)),
            None => all,
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Edit> {
        Box::pin(async {
            let news = match &mut self.watch {
                Ok(watch) => watch.next().await,
                Err(_) => std::future::pending().await,
            };
            match news {
                FileChange::Edited(_) => Edit::Servers(self.servers()),
                FileChange::Wrong(why) => Edit::Wrong(why),
            }
        })
    }
}

/// What is added: to each server by its entry, then to all by the file, and last by the command
/// line.
fn decorations(servers: &Servers, filter: &Filter) -> Result<Decorations, Mistake> {
    let mut all: Vec<Decoration> = Vec::new();
    for entry in servers.entries() {
        let options = entry.options();
        let server = Some(entry.name().to_owned());
        if options.only.is_some() || !options.without.is_empty() {
            let only = options.only.as_deref().map(globs);
            let without = globs(&options.without);
            all.push(Decoration::Filter(Filter {
                server: server.clone(),
                only,
                without,
            }));
        }
        if !options.rename.is_empty() {
            let (tools, prompts) = (options.rename.clone(), BTreeMap::new());
            all.push(Decoration::Rename(Rename {
                server: server.clone(),
                tools,
                prompts,
            }));
        }
        all.extend(options.calls.map(|most| {
            Decoration::Calls(Calls {
                server: server.clone(),
                most,
            })
        }));
        let timeout_ms = options
            .timeout
            .and_then(|time| u32::try_from(time.as_millis()).ok());
        let timeout_ms = timeout_ms.and_then(NonZeroU32::new);
        all.extend(timeout_ms.map(|timeout_ms| {
            Decoration::Time(Time {
                server: server.clone(),
                timeout_ms,
            })
        }));
    }
    all.extend(Vec::from(servers.decorations().clone()));
    if filter.only.is_some() || !filter.without.is_empty() {
        all.push(Decoration::Filter(filter.clone()));
    }
    Decorations::try_from(all)
}

/// An entry has no empty pattern.
fn globs(texts: &[String]) -> Vec<Glob> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// An entry of the file, or why there is none.
fn server(
    name: &str,
    entry: Result<&Entry, &str>,
    flags: Flags,
    list: &Path,
    config: &Arc<Config>,
) -> Server {
    // Secrets are not looked up for this: a token that was renewed makes no other server.
    let own = name.to_owned();
    let identity = entry.map_or_else(
        |why| format!("wrong: {why}"),
        |entry| {
            // The same server, if it is shared or not, but not the same process.
            let shared = if entry.options().shared {
                " shared"
            } else {
                ""
            };
            entry.kind().written() + shared
        },
    );
    let of_entry = || entry.ok().and_then(|entry| entry.options().lazy);
    let lazy = flags.lazy.or_else(of_entry);
    let lazy = lazy.filter(|_| !entry.is_ok_and(may_be_another_account));
    let (list, config) = (list.to_owned(), config.clone());
    let entry = entry.cloned().map_err(str::to_owned);
    let launch = move || {
        let bad = |why: String| Failure::new(FailureCode::BadEntry, why);
        let shared = entry
            .as_ref()
            .ok()
            .map(|entry| entry.shared(&list, &config))
            .transpose()
            .map_err(bad)?;
        let says_so = |entry: &Entry| entry.options().has_sources;
        let has_sources = flags.has_sources && entry.as_ref().is_ok_and(says_so);
        if let Some(shared) = shared.flatten() {
            return Ok(Launch::Shared(Shared {
                has_sources,
                ..shared
            }));
        }
        match entry
            .as_ref()
            .map_err(Clone::clone)
            .and_then(Entry::resolve)
            .map_err(bad)?
        {
            Kind::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                let arguments = args.into_iter().map(Into::into).collect();
                let environment = env
                    .into_iter()
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect();
                // What `status` calls it, and `stop` and `restart`.
                let program = Program {
                    name: command.into(),
                    arguments,
                    title: own.parse().ok(),
                    has_sources,
                };
                Ok(Launch::Program {
                    program,
                    environment,
                    home: cwd,
                })
            }
            Kind::Http { url, headers } => remote::server(&own, &url, &headers).map(Launch::Remote),
        }
    };
    Server {
        name: name.to_owned(),
        identity,
        launch: Arc::new(launch),
        lazy,
    }
}
