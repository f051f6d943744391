//! The C library of mcp-sessiond: version 1's three calls and the status, behind
//! `include/mcp_sessiond.h`, which is generated from [`ffi`] and [`values`] and has the
//! documentation.
//!
//! - [`ffi`]: the functions that C calls: reads pointers, calls safe code, returns a number. All
//!   `unsafe` code of the package is there.
//! - [`values`]: the structs, enums and constants of the header. Numbers never change their
//!   meaning.
//! - [`settings`]: the options of C, checked, as the client's.
//! - [`worker`]: the thread of a handle, which runs the client and blocks all signals.
//! - [`lines`]: log lines, held until the calling thread can hand them to the program.
//! - [`status`]: the client's status as the struct of C.
//! - [`failure`]: a result with its sentence, and the last one of each thread.
//! - [`panics`]: catches panics, so that none crosses into C.
#![allow(rustdoc::private_intra_doc_links, reason = "this page is the code map")]

#[cfg(not(unix))]
compile_error!("mcp-sessiond runs only on Linux and macOS");

#[cfg(panic = "abort")]
compile_error!(
    "a panic must not end the server that calls this library: build it with `panic = \"unwind\"`"
);

mod failure;
pub mod ffi;
mod lines;
mod panics;
mod settings;
mod status;
pub mod values;
mod worker;
