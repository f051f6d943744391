//! What a person sees: text on standard output and standard error, tables and colours, the screen
//! of `status -w`, and lengths of time.

pub(crate) mod candidates;
pub(crate) mod client_log;
pub(crate) mod output;
pub(crate) mod progress;
#[cfg(feature = "tui")]
pub(crate) mod screen;
pub(crate) mod table;
pub(crate) mod time;
