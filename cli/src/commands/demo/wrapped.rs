//! `demo`: a server that counts outlives the kills of its wrapper and of the daemon, and is ended
//! by `stop`.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::display::Display;
use super::sandbox::{Sandbox, is_gone};
use crate::ui::table::{columns, lines_within};

/// Plays it. False: something was not as it should be.
pub(super) fn run(json: bool) -> io::Result<bool> {
    let sandbox = Sandbox::new()?;
    let mut story = Display::new(json);

    story.scene(
        "Without mcp-sessiond: what a server holds in memory is lost when its host kills it",
    )?;
    let mut direct = Server::start(&sandbox, &story, false)?;
    direct.count(&mut story, 1)?;
    direct.count(&mut story, 2)?;
    direct.kill(&story)?;
    Server::start(&sandbox, &story, false)?.count(&mut story, 1)?;

    story.scene(
        "With `wrap` before its command, a keeper holds the server; the daemon is started on demand",
    )?;
    story.note(
        "This demo is not in the table of hosts, and nobody knows what a kill means there: `--resume cut` says that the server stays",
    )?;
    let mut server = Server::start(&sandbox, &story, true)?;
    let pid = server.count(&mut story, 1)?;
    server.count(&mut story, 2)?;

    story.scene("The host kills the wrapper, as on a reconnect, and starts it again")?;
    server.kill(&story)?;
    let mut server = Server::start(&sandbox, &story, true)?;
    let same = server.count(&mut story, 3)? == pid;
    story.check(
        "it is the same process, and was not initialised twice",
        same,
    )?;

    story.scene("The daemon is killed, too; calls don't pass through it")?;
    let daemon = sandbox.kill_daemon()?;
    story.note(&format!("$ kill -9 {daemon}"))?;
    server.count(&mut story, 4)?;

    story.scene("The server itself is killed: the next call is refused with the reason, and the one after it gets a fresh server")?;
    story.note(&format!("$ kill -9 {pid}"))?;
    kill(raw(pid)?, Signal::SIGKILL)?;
    // A call that is sent before its keeper has seen the end is told that the outcome is unknown.
    if !is_gone(raw(pid)?.as_raw()) {
        return Err(io::Error::other("the server outlives SIGKILL"));
    }
    let fresh = server.count(&mut story, 1)?;
    story.check("it is another process", fresh != pid)?;

    story.scene("`mcp-sessiond stop --all` ends it")?;
    story.note("$ mcp-sessiond stop --all")?;
    drop(server);
    let stopped = sandbox
        .command(&["stop", "--all"])?
        .stdout(Stdio::null())
        .status()?;
    story.check(
        "nothing is left running",
        stopped.success() && is_gone(raw(fresh)?.as_raw()),
    )?;
    story.end("Everything worked. Next: `mcp-sessiond setup` wraps the servers of your hosts.")
}

fn raw(pid: u64) -> io::Result<Pid> {
    i32::try_from(pid)
        .map(Pid::from_raw)
        .map_err(io::Error::other)
}

/// A server as its host has it: a process, and two pipes.
struct Server {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The id of the last request.
    last: u64,
}

impl Server {
    fn start(sandbox: &Sandbox, story: &Display, is_wrapped: bool) -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let own = own
            .to_str()
            .ok_or_else(|| io::Error::other("the path of this executable is not UTF-8"))?;
        let counter = [own, "demo", "--part", "counter"];
        let (front, words) = if is_wrapped {
            (
                "mcp-sessiond wrap --resume cut -- ",
                &["wrap", "--resume", "cut", "--"][..],
            )
        } else {
            ("", &[][..])
        };
        story.note(&format!("$ {front}counter &"))?;
        let words = if is_wrapped {
            [words, &counter].concat()
        } else {
            counter[1..].to_vec()
        };
        let mut process = sandbox
            .command(&words)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = || io::Error::other("a server without a pipe");
        let input = process.stdin.take().ok_or_else(pipe)?;
        let output = BufReader::new(process.stdout.take().ok_or_else(pipe)?);
        let mut server = Self {
            process,
            input,
            output,
            last: 0,
        };
        let begun = server.ask("initialize", &json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "demo", "version": "1"},
        }))?;
        begun.map_err(io::Error::other)?;
        server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        match sandbox.why_unkept() {
            Some(why) => Err(io::Error::other(format!(
                "the wrapped server runs without being kept ({why}), as one does on a machine that is too slow or too busy at the moment; run \
                 `mcp-sessiond demo` again"
            ))),
            None => Ok(server),
        }
    }

    /// Calls the tool, once more where the call was lost with the server, and returns the server's
    /// pid.
    fn count(&mut self, story: &mut Display, expected: u64) -> io::Result<u64> {
        let call = json!({"name": "count", "arguments": {}});
        let mut result = self.ask("tools/call", &call)?;
        if let Err(error) = &result {
            let told = lines_within(&format!("     count: {error}"), columns());
            story.note(told.trim_end_matches('\n'))?;
            result = self.ask("tools/call", &call)?;
        }
        let result = result.map_err(io::Error::other)?;
        let (calls, pid) = (
            &result["structuredContent"]["calls"],
            &result["structuredContent"]["pid"],
        );
        let pid = pid
            .as_u64()
            .ok_or_else(|| io::Error::other("the server said something unexpected"))?;
        story.check(
            &format!("count: {calls} (process {pid})"),
            *calls == json!(expected),
        )?;
        Ok(pid)
    }

    /// The result, or the message of an error.
    fn ask(&mut self, method: &str, params: &Value) -> io::Result<Result<Value, String>> {
        self.last += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the server has ended"));
            }
            let mut message: Value = serde_json::from_str(&line)?;
            if message["id"] == json!(self.last) && message.get("method").is_none() {
                let error = message["error"]["message"].as_str().map(str::to_owned);
                return Ok(error.map_or_else(|| Ok(message["result"].take()), Err));
            }
        }
    }

    fn say(&mut self, message: &Value) -> io::Result<()> {
        writeln!(self.input, "{message}")?;
        self.input.flush()
    }

    /// Sends SIGKILL to what the host has started.
    fn kill(mut self, story: &Display) -> io::Result<()> {
        story.note(&format!("$ kill -9 {}", self.process.id()))?;
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
