//! The C library of mcp-sessiond: version 1's three calls and the status, behind
//! `include/mcp_sessiond.h`, which is made of [`border`] and [`values`] and has the documentation.
//! All `unsafe` code is in `border.rs`.

#[cfg(not(unix))]
compile_error!("mcp-sessiond runs on Linux and macOS alone");

#[cfg(panic = "abort")]
compile_error!(
    "a panic must not end the server that calls this library: build it with `panic = \"unwind\"`"
);

pub mod border;
mod failure;
mod lines;
mod panics;
mod settings;
mod standing;
pub mod values;
mod worker;
