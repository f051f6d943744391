//! Which servers a command is about: their names, their programs, a session's id, or a pid.

use std::process::ExitCode;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use mcp_sessiond_proto::ServiceName;
use mcp_sessiond_proto::text::did_you_mean;
use mcp_sessiond_proxy::unkept::{self, Unkept};

use super::listing::TRIED_AGAIN;
use super::{Inventory, NotRunning, Server, listing};
use crate::calls::Failure;
use crate::exit_code::{NO_INPUT, SOFTWARE, USAGE};
use crate::runtime::block_on;
use crate::ui::candidates::candidates;
use crate::ui::output::warn;
use crate::ui::table::printable;

/// What `serve` puts before the name that it was given, in the name of its service.
pub(crate) const SERVE_PREFIX: &str = "serve.";

/// What people name servers by.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// The name that `mcp-sessiond status` shows, or a part of it or of the program that is run; the
    /// id of its session, or a part of it; the pid of the server, its keeper or its host; or the name
    /// of a `serve`, whose servers are all meant
    #[arg(
        required_unless_present = "all",
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCandidates::new(kept)
    )]
    what: Vec<String>,
    /// Every server that is kept
    #[arg(long, conflicts_with = "what")]
    all: bool,
}

/// What a shell offers: the servers that run and are kept, by the names that `status` shows.
pub(crate) fn kept() -> Vec<CompletionCandidate> {
    candidates(running().into_iter().map(|server| {
        let about = server.display_name();
        (server.server, about)
    }))
}

/// The servers that are kept; none where that can't be found out.
pub(crate) fn running() -> Vec<Server> {
    let read = block_on(Inventory::read());
    let inventory = read.ok().and_then(Result::ok);
    inventory.map_or_else(Vec::new, |inventory| inventory.servers)
}

/// How well a name fits. The best fit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It is the session's id, or a pid.
    Whole,
    /// It is the server's name.
    Name,
    /// It is the name of the service whose sessions have the server.
    Service,
    /// It is the program with its package or script.
    Program,
    /// It is a part of one of these.
    Part,
}

/// Why nothing is done.
enum NotOne<'a> {
    /// No server is called so.
    NoMatch(&'a str),
    /// Several are.
    Ambiguous(&'a str, Vec<&'a Server>),
}

impl Selection {
    /// Does something to the servers that are meant. The work prints what it did, and returns the
    /// exit code.
    pub(crate) fn apply(&self, work: impl AsyncFnOnce(&Inventory, &[&Server]) -> u8) -> ExitCode {
        let done = block_on(async {
            let inventory = match Inventory::read().await {
                Ok(inventory) => inventory,
                Err(failure) => return failure.report(),
            };
            // What follows is done without it.
            if let Some(failure @ Failure::Hangs(..)) = &inventory.failure {
                warn(failure);
            }
            match self.resolve(&inventory) {
                Ok(servers) => work(&inventory, &servers).await,
                Err(code) => code,
            }
        });
        ExitCode::from(done.unwrap_or_else(|error| {
            warn(error);
            SOFTWARE
        }))
    }

    /// The servers that are meant, each once.
    ///
    /// # Errors
    /// The exit code, when a name fits none or several; then it was said.
    pub(crate) fn resolve<'a>(&'a self, inventory: &'a Inventory) -> Result<Vec<&'a Server>, u8> {
        if self.all {
            return Ok(inventory.servers.iter().collect());
        }
        let mut chosen: Vec<&Server> = Vec::new();
        for what in &self.what {
            for server in all(what, inventory)? {
                if chosen.iter().all(|other| other.keeper != server.keeper) {
                    chosen.push(server);
                }
            }
        }
        Ok(chosen)
    }
}

/// The server that is meant, or all of the service.
///
/// # Errors
/// The exit code, when the name fits none, or several of which some are not of that service; then it
/// was said.
pub(crate) fn all<'a>(what: &'a str, inventory: &'a Inventory) -> Result<Vec<&'a Server>, u8> {
    choose(what, &inventory.servers).map_err(|unclear| unclear.report(inventory))
}

/// Whether a server is called so.
pub(crate) fn is_known(what: &str, inventory: &Inventory) -> bool {
    let mut servers = inventory.servers.iter();
    servers.any(|server| fit(what, server).is_some()) || unkept(what, inventory).is_some()
}

/// What runs unkept, or could not be started, and is called so.
pub(crate) fn unkept(what: &str, inventory: &Inventory) -> Option<Unkept> {
    let lower = what.to_lowercase();
    let is_meant = |unkept: &Unkept| {
        unkept.service.is_none() && unkept.program.to_lowercase().contains(&lower)
    };
    unkept::list(inventory.directory.path())
        .into_iter()
        .find(is_meant)
}

/// The service of this name that a `serve` serves, and its pid.
fn serving(what: &str, inventory: &Inventory) -> Option<(ServiceName, u32)> {
    let mut notes = unkept::list(inventory.directory.path()).into_iter();
    notes.find_map(|note| {
        let service = note.service?;
        names_service(what, &service).then_some((service, note.process.pid))
    })
}

/// What does not run, and is called so.
fn not_running<'a>(what: &str, inventory: &'a Inventory) -> Option<&'a NotRunning> {
    let lower = what.to_lowercase();
    let mut servers = inventory.not_running.iter();
    servers.find(|server| server.server.to_lowercase().contains(&lower))
}

fn choose<'a>(what: &'a str, servers: &'a [Server]) -> Result<Vec<&'a Server>, NotOne<'a>> {
    let best = servers
        .iter()
        .filter_map(|server| fit(what, server))
        .min()
        .ok_or(NotOne::NoMatch(what))?;
    let fitting: Vec<&Server> = servers
        .iter()
        .filter(|server| fit(what, server) == Some(best))
        .collect();
    // A server may be called as its service is.
    let is_one = fitting.len() == 1 || fitting.iter().all(|server| is_service(what, server));
    match is_one {
        true => Ok(fitting),
        false => Err(NotOne::Ambiguous(what, fitting)),
    }
}

/// Whether this names the service of the server.
fn is_service(what: &str, server: &Server) -> bool {
    let service = server.service.as_ref();
    service.is_some_and(|service| names_service(what, service))
}

/// Whether this names a service: as `serve --name` did, or with `serve.` before it.
fn names_service(what: &str, service: &ServiceName) -> bool {
    let service = service.as_str();
    service == what || service.strip_prefix(SERVE_PREFIX) == Some(what)
}

fn fit(what: &str, server: &Server) -> Option<Fit> {
    let session = server
        .session
        .as_ref()
        .map(mcp_sessiond_client::SessionId::as_str)
        .unwrap_or_default();
    // A process of another pid namespace has the pid 0.
    let pid: Option<u32> = what.parse().ok().filter(|pid| *pid != 0);
    let pids = [server.pid, server.keeper_pid, server.host];
    let (name, lower) = (server.server.to_lowercase(), what.to_lowercase());
    let program = server.program.as_deref().unwrap_or_default().to_lowercase();
    if session == what || pid.is_some() && pids.contains(&pid) {
        Some(Fit::Whole)
    } else if name == lower {
        Some(Fit::Name)
    } else if is_service(what, server) {
        Some(Fit::Service)
    } else if program == lower {
        Some(Fit::Program)
    } else if name.contains(&lower) || program.contains(&lower) || session.contains(what) {
        Some(Fit::Part)
    } else {
        None
    }
}

impl NotOne<'_> {
    fn report(&self, inventory: &Inventory) -> u8 {
        match self {
            Self::NoMatch(what) => {
                if let Some(Unkept {
                    program,
                    process,
                    why,
                    has_failed,
                    ..
                }) = unkept(what, inventory)
                {
                    let (program, why) = (printable(&program), printable(&why));
                    let (pid, is) = (
                        process.pid,
                        if has_failed {
                            "can't be used"
                        } else {
                            "is not kept"
                        },
                    );
                    let fix = if has_failed {
                        TRIED_AGAIN
                    } else {
                        "only its host can restart or stop it"
                    };
                    warn(format_args!("{program} (pid {pid}) {is}: {why}; {fix}"));
                } else if let Some(server) = not_running(what, inventory) {
                    warn(server.sentence());
                } else if let Some((service, pid)) = serving(what, inventory) {
                    warn(format_args!(
                        "no client has a session with {service} now (`serve`, pid {pid}), so none of its servers runs"
                    ));
                } else if inventory.servers.is_empty() {
                    warn(format_args!(
                        "no server is called `{what}`: nothing is kept",
                        what = printable(what)
                    ));
                } else {
                    let names = inventory.servers.iter().map(|server| &*server.server);
                    let meant = match did_you_mean(what, names) {
                        meant if meant.is_empty() => ".".to_owned(),
                        meant => meant,
                    };
                    warn(format_args!(
                        "no server is called `{what}`{meant} These are kept:",
                        what = printable(what)
                    ));
                    warn_of(inventory.servers.iter());
                }
                if let Some(failure) = inventory
                    .failure
                    .as_ref()
                    .filter(|_| !inventory.has_no_daemon())
                {
                    return failure.report();
                }
                NO_INPUT
            }
            Self::Ambiguous(what, servers) => {
                warn(format_args!(
                    "`{}` could be any of {} servers, and nothing was done. Name one of them by the word at the end of its line:",
                    printable(what),
                    servers.len()
                ));
                listing::to_stderr_with_words(servers);
                USAGE
            }
        }
    }
}

fn warn_of<'a>(servers: impl Iterator<Item = &'a Server>) {
    listing::to_stderr(&servers.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::State;

    fn server(words: &str, session: &str, pids: [u32; 3]) -> Server {
        let [pid, keeper_pid, host] = pids.map(Some);
        Server {
            server: words.into(),
            program: None,
            command: Vec::new(),
            directory: None,
            session: session.parse().ok(),
            service: None,
            backend: None,
            host,
            host_name: None,
            pid,
            keeper: mcp_sessiond_proto::KeeperName(pids[1]),
            keeper_pid,
            front: None,
            state: State::InUse,
            hosts: None,
            withheld: None,
            age_ms: None,
            since_ms: None,
            restarts: None,
            memory: None,
            last_error: None,
            known: true,
            failure: None,
            trouble: None,
        }
    }

    fn chosen(what: &str, servers: &[Server]) -> Result<u32, Vec<u32>> {
        match choose(what, servers) {
            Ok(servers) => match servers[..] {
                [server] => Ok(server.keeper.0),
                _ => Ok(servers.iter().map(|server| server.keeper.0).sum()),
            },
            Err(NotOne::NoMatch(_)) => Err(vec![]),
            Err(NotOne::Ambiguous(_, servers)) => {
                Err(servers.iter().map(|server| server.keeper.0).collect())
            }
        }
    }

    #[test]
    fn a_server_is_found_by_its_name_and_by_its_program() {
        let named = |name: &str, program: &str, pids| Server {
            program: Some(program.to_owned()),
            ..server(name, "0199", pids)
        };
        let servers = [
            named("browser", "npx @playwright/mcp", [11, 21, 31]),
            named("playwright", "node server.js", [12, 22, 32]),
            named("files", "npx server-filesystem", [13, 23, 33]),
            named("files", "npx server-filesystem", [14, 24, 34]),
        ];
        for (what, meant) in [
            ("browser", Ok(21)),
            ("npx @playwright/mcp", Ok(21)),
            // Its name before a part of another one's program.
            ("playwright", Ok(22)),
            ("@playwright", Ok(21)),
            ("files", Err(vec![23, 24])),
            ("24", Ok(24)),
        ] {
            assert_eq!(chosen(what, &servers), meant, "{what}");
        }
    }

    #[test]
    fn the_name_of_a_service_means_the_servers_of_all_its_sessions() {
        let served = |name: &str, service: &str, pids| Server {
            service: Some(service.parse().expect("a name")),
            host: None,
            ..server(name, "0199", pids)
        };
        let servers = [
            served("counter", "serve.lab", [11, 21, 31]),
            served("counter", "serve.lab", [12, 22, 32]),
            served("counter", "serve.counter", [13, 23, 33]),
            served("files", "serve.files", [14, 100, 34]),
            served("files", "serve.files", [15, 200, 35]),
            server("lab", "0199", [16, 26, 36]),
        ];
        for (what, meant) in [
            ("serve.lab", Ok(21 + 22)),
            // The server of that name comes first.
            ("lab", Ok(26)),
            ("counter", Err(vec![21, 22, 23])),
            ("serve.counter", Ok(23)),
            // It is the name of both.
            ("files", Ok(100 + 200)),
            ("serve", Err(vec![])),
        ] {
            assert_eq!(chosen(what, &servers), meant, "{what}");
        }
    }

    #[test]
    fn the_best_fit_is_meant() {
        let servers = [
            server("npx @playwright/mcp", "0199aaaa-0001", [11, 21, 31]),
            server("npx @playwright/mcp-extra", "0199bbbb-0002", [12, 22, 31]),
            server("node server.js", "0199cccc-11", [13, 23, 33]),
            server("node server.js", "bob", [14, 24, 34]),
            server("uvx bob", "0199dddd-0003", [15, 25, 35]),
        ];
        for (what, meant) in [
            // A name: the whole of it before a part.
            ("npx @playwright/mcp", Ok(21)),
            ("NPX @Playwright/MCP", Ok(21)),
            ("extra", Ok(22)),
            ("playwright", Err(vec![21, 22])),
            ("node server.js", Err(vec![23, 24])),
            // An id: the whole of it before a part, and before words.
            ("0199aaaa-0001", Ok(21)),
            ("bbbb", Ok(22)),
            ("0199", Err(vec![21, 22, 23, 25])),
            ("bob", Ok(24)),
            // A pid before a part of an id.
            ("11", Ok(21)),
            ("22", Ok(22)),
            ("33", Ok(23)),
            ("31", Err(vec![21, 22])),
            ("99", Err(vec![21, 22, 23, 25])),
            ("4711", Err(vec![])),
            ("0", Err(vec![21, 22, 23, 25])),
            ("nothing", Err(vec![])),
        ] {
            assert_eq!(chosen(what, &servers), meant, "{what}");
        }
    }
}
