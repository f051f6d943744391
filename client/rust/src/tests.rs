//! The client against a daemon that does what the test says.

mod broken;
pub(crate) mod fake;
mod logged;
mod python;
mod runtimes;
#[cfg(feature = "sessions")]
pub(crate) mod sessions;
mod starting;
mod three_calls;
#[cfg(feature = "tower")]
mod tower;
#[cfg(feature = "sessions")]
mod waits;
