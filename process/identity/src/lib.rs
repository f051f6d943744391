//! What names a process, and what tells the instances of one host apart: values alone.
//!
//! - [`process_id`]: [`ProcessId`] and [`StartTime`] name one process, for good: by boot id, pid,
//!   start time and, where the kernel has it, the inode of its pidfd.
//! - [`key`]: [`Traits`] are what an instance was started with, digested: no argument and no
//!   variable. [`Key`] tells the instances of one host apart; it is made of the traits, and of what
//!   the instance says of itself ([`SelfDescription`]).
//! - [`digest()`], [`Encoder`]: digests of several things together, so that no two different
//!   sequences are the same bytes.
//!
//! **Architecture Invariant:** no I/O and no clock. Whoever reads a process makes these
//! (`mcp-sessiond-process`); whoever decides about sessions compares them
//! (`mcp-sessiond-registry`). The crate has no `std`, so that the compiler keeps it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

extern crate alloc;

mod digest;
mod key;
mod process_id;

pub use digest::Encoder;
pub use key::{Conversation, Key, KeyDoubt, SelfDescription, Traits, digest};
pub use process_id::{ProcessId, StartTime, StartTimeError};
