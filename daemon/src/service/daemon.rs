//! What every connection shares.

use std::sync::Arc;

use mcp_sessiond_proto::debug::About;

use crate::contents::Contents;
use crate::counters::Meters;
use crate::edge::Edge;
use crate::fleet::Fleet;
use crate::gauge::Gauge;
use crate::storage::Opener;
use crate::wills::Wills;

/// What every connection shares.
#[derive(Debug)]
pub struct Daemon {
    /// Hosts, leases and tokens.
    pub edge: Arc<Edge>,
    /// What sessions contain.
    pub contents: Arc<Contents>,
    /// The last wills of streams and tasks.
    pub wills: Arc<Wills>,
    /// What it does for the other daemons that share its storage.
    pub fleet: Arc<Fleet>,
    /// What is counted and measured.
    pub meters: Arc<Meters>,
    /// What opens the storage of the contents.
    pub opener: Opener,
    /// The connections.
    pub connections: Arc<Gauge>,
    /// What does not change while the daemon runs; the uptime is filled in when asked.
    pub about: About,
}
