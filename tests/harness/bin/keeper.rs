//! A keeper that does what a test says: `keeper SOCKET [--member]`. It leads a session of
//! processes, unless it is to stay a member of its parent's.
//!
//! It listens on SOCKET, takes commands from the first connection, one a line, and ends with it:
//! `call METHOD PARAMS`, which says that to the daemon and answers with `result` or `error`; and
//! `backend`, which starts a process that takes no notice of any signal that it can ignore, and
//! answers with its `pid`. Each is answered with one line of JSON.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use mcp_sessiond_proto::hello::Codec;
use mcp_sessiond_tests::Peer;
use serde_json::{Value, json};

/// A backend outlives a test that fails, but not for long.
const BACKEND: &str = "trap '' TERM INT HUP; echo ready; exec sleep 120";

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments
        .next()
        .ok_or_else(|| io::Error::other("usage: keeper SOCKET [--member]"))?;
    if arguments.next().is_none() {
        nix::unistd::setsid()?;
    }
    let (control, _) = UnixListener::bind(&socket)?.accept()?;
    let mut answers = control.try_clone()?;
    for command in BufReader::new(control).lines() {
        let command = command?;
        let (verb, argument) = command.split_once(' ').unwrap_or((&command, ""));
        let answer = match verb {
            "call" => call(argument)?,
            _ => json!({"pid": backend()?}),
        };
        answers.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

fn call(argument: &str) -> io::Result<Value> {
    let (method, params) = argument.split_once(' ').unwrap_or((argument, "{}"));
    let directory = std::env::var("MCP_SESSIOND_DIR").map_err(io::Error::other)?;
    let mut peer = Peer::connect(&mcp_sessiond_proto::paths::socket(directory.as_ref()));
    peer.greet(Codec::JsonRpc);
    Ok(match peer.call(method, serde_json::from_str(params)?) {
        Ok(result) => json!({"result": result}),
        Err(error) => json!({"error": error}),
    })
}

/// Leads a process group of its own, as backends do.
fn backend() -> io::Result<u32> {
    let mut command = Command::new("sh");
    command
        .args(["-c", BACKEND])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn()?;
    let mut ready = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut ready)?;
    }
    Ok(child.id())
}
