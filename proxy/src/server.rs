//! How a front reaches its server.

pub mod attach;
pub mod child;
mod daemon_calls;
pub(crate) mod facts;
mod keeper_watch;
pub mod kept;
pub mod remote;
pub mod service;
pub mod shared;
pub(crate) mod without_daemon;
