//! The RPCs. In JSON-RPC the method has the name that it has here, and `params` is its one argument.

use crate::debug::{About, HostInfo, Page, SessionInfo, Setting, Stats, TokenInfo, WhoAmI};
use crate::error::Error;
use crate::types::{ClaimRequest, Claimed, LeaseRef, StoreRequest, Stored};

/// What the daemon does for a process.
#[tarpc::service(derive = [Clone, serde::Serialize, serde::Deserialize])]
pub trait Sessiond {
    /// Nothing. Tells that the daemon answers.
    async fn ping();
    /// Takes a session for the calling process, or for the ancestor that it names. Repeated by the same process
    /// it returns the same lease, and the token as it is now.
    async fn claim(request: ClaimRequest) -> Result<Claimed, Error>;
    /// Puts a new token in place of the former one. Once answered, it survives the daemon.
    async fn store_token(request: StoreRequest) -> Result<Stored, Error>;
    /// Deletes the token: the broker refused it. The session stays.
    async fn reject_token(request: LeaseRef) -> Result<(), Error>;
    /// Ends the lease. The session stays, for the next instance with the same key.
    async fn release(request: LeaseRef) -> Result<(), Error>;

    /// The daemon about itself.
    async fn about() -> About;
    /// The hosts that own sessions.
    async fn list_hosts() -> Vec<HostInfo>;
    /// The sessions, in order of their ids, a page at a time.
    async fn list_sessions(request: Page) -> Vec<SessionInfo>;
    /// The token files, in order of their sessions' ids, a page at a time.
    async fn list_tokens(request: Page) -> Vec<TokenInfo>;
    /// Counters.
    async fn stats() -> Stats;
    /// The settings in force.
    async fn settings() -> Vec<Setting>;
    /// What a claim would see, without claiming.
    async fn who_am_i(request: ClaimRequest) -> Result<WhoAmI, Error>;
}

/// The names of the methods, as JSON-RPC has them. A test holds them against the trait.
pub const METHODS: [&str; 12] = [
    "ping",
    "claim",
    "store_token",
    "reject_token",
    "release",
    "about",
    "list_hosts",
    "list_sessions",
    "list_tokens",
    "stats",
    "settings",
    "who_am_i",
];
