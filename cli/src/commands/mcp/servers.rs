//! The servers of the host that has started this process.

use mcp_sessiond_client::Directory;
use mcp_sessiond_process::{self as process, HostDoubt, PinnedProcess};
use mcp_sessiond_proto::backends::{KeeperReply, KeeperRequest};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proto::text::did_you_mean;
use mcp_sessiond_proxy::keeper::dial::{Dialled, dial};
use mcp_sessiond_proxy::secrets::hide_tokens;
use mcp_sessiond_proxy::unkept::{self, Unkept};
use serde_json::{Value, json};

use crate::config::load_or_default;
use crate::inventory::{Inventory, NotRunning, Server, Unready};
use crate::ui::table::duration;

/// They, as they are at the moment.
pub(super) struct OwnServers {
    pub(super) inventory: Inventory,
    /// The pid of the host.
    host: u32,
    /// Those that run without being kept, or could not be started.
    unkept: Vec<Unkept>,
}

impl OwnServers {
    /// Looks.
    ///
    /// # Errors
    /// A sentence: this process has no host, or nothing can be known of its servers.
    pub(super) async fn look() -> Result<Self, String> {
        let table = load_or_default().table();
        let host_of = |process: PinnedProcess| process::find_host(&process, &table).host;
        let own = PinnedProcess::own().map_err(|error| error.to_string())?;
        let unknown = |why: HostDoubt| {
            format!("mcp-sessiond can't tell which host has started this process: {why}")
        };
        let mut found = host_of(own.clone()).map_err(unknown)?;
        let mut inventory = Inventory::read().await.map_err(|why| why.to_string())?;
        let servers = &mut inventory.servers;
        let keeper = found.id().pid;
        let by_keeper = servers
            .iter()
            .position(|server| server.keeper_pid == Some(keeper));
        let host = match by_keeper.map(|at| servers.remove(at)) {
            // It is kept itself, and its keeper knows whose it is.
            Some(kept) => kept.host.ok_or(
                "this server is not of one host, since it is shared or has a name; write `mcp-sessiond mcp` into the host's own file",
            )?,
            None => {
                // A wrapper that can't have it kept runs it as its own child.
                let name = |process: &PinnedProcess| process::name_of(process.id().pid);
                while name(&found) == name(&own) {
                    found = host_of(found).map_err(unknown)?;
                }
                found.id().pid
            }
        };
        let is_of_host = |pid: u32| {
            let process = PinnedProcess::open(pid).ok();
            let of = process.and_then(|process| host_of(process).ok());
            of.is_some_and(|of| of.id().pid == host)
        };
        // What the user has named is this host's while it has it.
        for server in servers.iter_mut().filter(|server| server.is_users()) {
            server.host = server
                .front
                .filter(|front| is_of_host(*front))
                .and(Some(host));
        }
        let mut unkept = unkept::list(inventory.directory.path());
        unkept.retain(|one| one.service.is_none() && is_of_host(one.process.pid));
        Ok(Self {
            inventory,
            host,
            unkept,
        })
    }

    /// Those that are kept.
    fn kept(&self) -> impl Iterator<Item = &Server> {
        let servers = self.inventory.servers.iter();
        servers.filter(|server| server.host == Some(self.host))
    }

    /// Those that are not ready, and those that don't run.
    fn others(&self) -> impl Iterator<Item = (&str, Value)> {
        let is_own = |of: Option<u32>| of == Some(self.host);
        let unready = self.inventory.unready.iter();
        let unready = unready.filter(move |one| is_own(one.host)).map(unready_row);
        let not_running = self.inventory.not_running.iter();
        let not_running = not_running.filter(move |one| is_own(one.host));
        let not_running = not_running.map(not_running_row);
        let unkept = self.unkept.iter().map(unkept_row);
        unready.chain(not_running).chain(unkept)
    }

    /// All of them, for a model.
    pub(super) fn rows(&self) -> Vec<Value> {
        let kept = self.kept().map(|server| row(server, &self.inventory));
        kept.chain(self.others().map(|(_, row)| row)).collect()
    }

    /// The one that is kept and has this name, or pid.
    ///
    /// # Errors
    /// A sentence: there is none, or there are several.
    pub(super) fn find(&self, name: &str) -> Result<&Server, String> {
        let is_it = |server: &&Server| {
            server.server == name || server.pid.is_some_and(|pid| pid.to_string() == name)
        };
        match &self.kept().filter(is_it).collect::<Vec<_>>()[..] {
            [server] => Ok(server),
            [] => Err(self.absent(name)),
            several => {
                let pids = several.iter().filter_map(|server| server.pid);
                let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
                Err(format!(
                    "there are {} servers {name:?}; name one of them by its pid: {}",
                    several.len(),
                    pids.join(", ")
                ))
            }
        }
    }

    fn absent(&self, name: &str) -> String {
        if let Some((_, row)) = self.others().find(|(other, _)| *other == name) {
            let problem = row["problem"].as_str().unwrap_or("it does not run");
            return format!("{name} has no process that could be asked: {problem}");
        }
        let names = || self.kept().map(|server| &*server.server);
        let known: Vec<&str> = names().chain(self.others().map(|(name, _)| name)).collect();
        match known.is_empty() {
            true => format!(
                "this host has no server {name:?}, and none that mcp-sessiond keeps; shared ones are not among them"
            ),
            false => format!(
                "this host has no server {name:?}{}; it has {}",
                did_you_mean(name, known.iter().copied()),
                known.join(", ")
            ),
        }
    }

    /// What the host has lost of a server, in sentences.
    pub(super) fn losses(&self, server: &Server) -> Vec<String> {
        let losses = self.inventory.losses.iter();
        let is_of_it = |of: &str| of == server.server;
        losses
            .filter(|loss| loss.host == Some(self.host))
            .filter(|loss| loss.of.as_ref().is_none_or(|of| is_of_it(of.in_list())))
            .map(|loss| loss.sentence())
            .collect()
    }
}

/// These texts about a server, without what looks like a secret of it, as its keeper knows them.
pub(super) fn hidden(directory: &Directory, server: &Server, texts: Vec<String>) -> Vec<String> {
    let count = texts.len();
    let socket = paths::keeper_socket(directory.path(), server.keeper);
    match dial(&socket, &KeeperRequest::Hide { texts }) {
        Ok(Dialled {
            reply: KeeperReply::Hidden { texts },
            ..
        }) => texts,
        // It may have secrets in it.
        _ => {
            let what = format!(
                "not shown here: `mcp-sessiond logs {}` shows it",
                server.server
            );
            vec![what; count.min(1)]
        }
    }
}

/// A kept server.
fn row(server: &Server, inventory: &Inventory) -> Value {
    let daemon_answers = inventory.connection.is_some();
    let problem = server.fault(daemon_answers).map(|(what, _)| {
        // Of one that does not say how it is, this is all our own.
        match server.failure {
            Some(_) => what,
            None => hidden(&inventory.directory, server, vec![what]).concat(),
        }
    });
    json!({
        "name": server.server,
        "program": server.program,
        "pid": server.pid,
        "state": match &server.trouble {
            Some(trouble) => trouble.state(),
            None => server.state.as_str(),
        },
        "running_for": server.age_ms.map(duration),
        "restarts": server.restarts,
        "problem": problem,
    })
}

fn unready_row(one: &Unready) -> (&str, Value) {
    let problem = one
        .fault()
        .map(|(what, then)| format!("{}; {then}", hide_tokens(&what)));
    let state = one.trouble.state();
    (
        &one.server,
        json!({"name": one.server, "state": state, "problem": problem}),
    )
}

fn not_running_row(one: &NotRunning) -> (&str, Value) {
    let problem = "it does not run; its host's next message starts it";
    (
        &one.server,
        json!({"name": one.server, "state": "not running", "problem": problem}),
    )
}

fn unkept_row(one: &Unkept) -> (&str, Value) {
    let state = if one.has_failed { "failed" } else { "not kept" };
    (
        &one.program,
        json!({"name": one.program, "state": state, "problem": hide_tokens(&one.why)}),
    )
}
