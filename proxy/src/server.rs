//! How a front reaches its server.

pub mod attach;
pub mod child;
pub mod kept;
pub mod remote;
pub mod service;
pub mod shared;
