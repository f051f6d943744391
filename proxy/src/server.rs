//! How a front reaches its server.

pub mod attach;
pub mod child;
pub(crate) mod facts;
pub mod kept;
pub mod remote;
pub mod service;
pub mod shared;
pub(crate) mod without_daemon;
