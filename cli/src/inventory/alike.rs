//! Servers of one name that run several times, which one process could serve.

use super::Server;
use crate::ui::table::{bytes, printable};

/// How many processes of one server are named: two are no burden, and may be meant.
const MANY: usize = 3;

/// What there is to say of servers that run for several hosts each: what there is, and what to do.
/// They are in order of their names.
pub(crate) fn faults(servers: &[Server]) -> Vec<(String, String)> {
    let is_own = |server: &&Server| {
        let has_name = server.program.as_deref() != Some(&*server.server);
        let is_hosts = server.host.is_some() && server.service.is_none();
        has_name && is_hosts && server.backend.is_none() && server.pid.is_some()
    };
    let own: Vec<&Server> = servers.iter().filter(is_own).collect();
    own.chunk_by(|one, other| one.server == other.server)
        .filter_map(|all| {
            let first = all.first()?;
            let is_one = all.iter().all(|server| server.command == first.command);
            let memory = all.iter().filter_map(|server| server.memory).sum();
            let name = printable(&first.server);
            (is_one && all.len() >= MANY).then(|| {
                (
                    format!("{name}: {} processes, {}", all.len(), bytes(memory)),
                    format!(
                        "`mcp-sessiond share {name}` makes them one, whose state all hosts see"
                    ),
                )
            })
        })
        .collect()
}
