//! `demo http`: a page is reloaded and `serve` is killed in the middle of a call, and its client
//! loses nothing.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::curl::{Answer, Curl};
use super::display::Display;
use super::sandbox::{Sandbox, is_gone};
use super::steps::{GATES, STEPS};

/// Plays it. False: something was not as it should be.
pub(super) fn run(json: bool) -> io::Result<bool> {
    let sandbox = Sandbox::new()?;
    let mut curl = Curl::of(sandbox.directory().join("serve.sock"), json)?;
    let mut story = Display::new(json);
    let mut received = Received::default();

    story.scene("`serve` starts, in front of a server on stdio; it starts the daemon")?;
    let mut serve = Serve::start(&sandbox, &story)?;
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"}}});
    let begun = curl.post(&initialize)?;
    curl.session.clone_from(&begun.session);
    let has_begun = begun.status == 200 && begun.session.is_some();
    begun.rest()?;
    story.check("a session has begun", has_begun)?;
    curl.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?
        .rest()?;

    story.scene(
        "A call of twelve steps begins; in the middle of it the page is reloaded: curl is killed",
    )?;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "walk", "arguments": {}, "_meta": {"progressToken": "steps"}}});
    let mut page = curl.post(&call)?;
    received.until(&mut page, GATES[0].0 - 1)?;
    drop(page);
    open(&sandbox, &story, 0)?;

    story.scene("The new page asks for the rest; in the middle of that `serve` is killed")?;
    let mut page = curl.resume(&received.last)?;
    received.until(&mut page, GATES[1].0 - 1)?;
    let pid = serve.kill()?;
    story.note(&format!(
        "SIGKILL to `serve` (pid {pid}); the server goes on"
    ))?;
    drop(page);
    open(&sandbox, &story, 1)?;

    story.scene("`serve` is started again, and the page asks for the rest")?;
    serve = Serve::start(&sandbox, &story)?;
    let mut page = curl.resume(&received.last)?;
    received.until(&mut page, u64::MAX)?;
    drop(page);
    let again = curl.resume(&received.last)?;
    let complete = again.status;
    again.rest()?;

    story.scene("What curl has got in all")?;
    let steps: Vec<u64> = (1..=STEPS).collect();
    story.check(
        "each of the twelve steps once, and in order",
        received.steps == steps,
    )?;
    story.check(
        "one answer, from the server that was called",
        received.answers.len() == 1,
    )?;
    story.check("nothing is left: 204 No Content", complete == 204)?;
    story.note("Ctrl-C to `serve`: its sessions end, too")?;
    serve.end()?;
    let server = received
        .answers
        .first()
        .and_then(|text| text.rsplit(' ').next()?.parse().ok());
    story.check(
        "the server has ended with its session",
        server.is_some_and(is_gone),
    )?;
    story.end("Nothing was lost, and nothing came twice.")
}

/// Lets the server take its next steps.
fn open(sandbox: &Sandbox, story: &Display, gate: usize) -> io::Result<()> {
    let path = sandbox.directory().join(GATES[gate].1);
    story.note(&format!("$ touch {}", path.display()))?;
    std::fs::write(path, "")
}

/// What came over all connections.
#[derive(Default)]
struct Received {
    steps: Vec<u64>,
    answers: Vec<String>,
    /// The id of the last event.
    last: String,
}

impl Received {
    /// Reads until this step has come, or the stream ends.
    fn until(&mut self, page: &mut Answer, step: u64) -> io::Result<()> {
        while let Some(event) = page.event()? {
            if let Some(id) = event.id {
                self.last = id;
            }
            let Some(message) = event.message else {
                continue;
            };
            if let Some(text) = message["result"]["content"][0]["text"].as_str() {
                self.answers.push(text.to_owned());
            } else if let Some(progress) = message["params"]["progress"].as_u64() {
                self.steps.push(progress);
                if progress >= step {
                    return Ok(());
                }
            } else {
                return Err(io::Error::other(format!(
                    "`serve` sent something unexpected: {message}"
                )));
            }
        }
        Ok(())
    }
}

/// `serve`. It is ended when this is dropped, with its sessions.
struct Serve(Option<Child>);

impl Serve {
    fn start(sandbox: &Sandbox, story: &Display) -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let listen = format!("unix:{}", sandbox.directory().join("serve.sock").display());
        story.note(&format!(
            "$ mcp-sessiond serve --name demo --listen {listen} -- mcp-sessiond demo --part steps"
        ))?;
        let mut process = Command::new(&own)
            .args(["serve", "--name", "demo", "--listen", &listen, "--"])
            .arg(&own)
            .args(["demo", "--part", "steps"])
            .envs(sandbox.environment())
            .env_remove("NOTIFY_SOCKET")
            .current_dir(sandbox.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take();
        let serve = Self(Some(process));
        let mut said = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut said)?;
        }
        if said.is_empty() {
            return Err(io::Error::other("`serve` ended before it listened"));
        }
        story.note(&format!("    {}", said.trim_end()))?;
        Ok(serve)
    }

    /// Sends SIGKILL, and waits until it is dead. Returns its pid.
    fn kill(&mut self) -> io::Result<u32> {
        let mut process = self
            .0
            .take()
            .ok_or_else(|| io::Error::other("`serve` is dead already"))?;
        process.kill()?;
        process.wait()?;
        Ok(process.id())
    }

    /// Sends SIGINT, which ends the sessions, too, and waits until it has ended.
    fn end(&mut self) -> io::Result<()> {
        let Some(mut process) = self.0.take() else {
            return Ok(());
        };
        let pid = i32::try_from(process.id()).map_err(io::Error::other)?;
        kill(Pid::from_raw(pid), Signal::SIGINT)?;
        process.wait().map(drop)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
