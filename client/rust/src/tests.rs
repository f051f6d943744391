//! The client against a daemon that does what the test says.

mod broken;
mod fake;
mod logged;
mod python;
mod starting;
mod three_calls;
