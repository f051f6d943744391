//! What names a process, and what tells the instances of one host apart: values alone.
//!
//! - [`ProcessId`], [`StartTime`]: one process, for good.
//! - [`Traits`], [`Key`]: what an instance was started with, digested.
//!
//! **Architecture Invariant:** no I/O and no clock. Whoever reads a process makes these
//! (`mcp-sessiond-process`); whoever decides about sessions compares them
//! (`mcp-sessiond-registry`). The crate has no `std`, so that the compiler keeps it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod digest;
mod key;
mod process_id;

pub use digest::Encoder;
pub use key::{
    Conversation, FORMER_RECIPE, Former, Key, KeyDoubt, KeyDoubtError, RECIPE, Said, Traits, digest,
};
pub use process_id::{ProcessId, StartTime, StartTimeError};
