//! How a front reaches its server.

pub mod child;
pub mod connector;
mod daemon_calls;
pub(crate) mod facts;
pub mod keeper_connector;
mod keeper_watch;
pub mod remote;
pub mod service;
pub mod shared;
pub(crate) mod without_daemon;
