//! `demo http`: a page is reloaded and `serve` is killed in the middle of a call, and its client loses nothing.

use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::curl::{Answer, Curl, line};
use super::stage::Stage;
use super::steps::{GATES, STEPS};
use crate::table::{BAD, GOOD, HEADING, paint};

/// How long the server may take to end after its session.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Plays it. False: something was not as it should be.
pub(super) fn tell(json: bool) -> io::Result<bool> {
    let stage = Stage::set()?;
    let mut curl = Curl::of(stage.directory().join("serve.sock"), json)?;
    let mut story = Story { json, scene: String::new(), wrong: 0 };
    let mut heard = Heard::default();

    story.scene("`serve` starts, in front of a server on stdio; it starts the daemon")?;
    let mut serve = Serve::start(&stage, &story)?;
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"}}});
    let begun = curl.post(&initialize)?;
    curl.session.clone_from(&begun.session);
    let has_begun = begun.status == 200 && begun.session.is_some();
    begun.rest()?;
    story.check("a session has begun", has_begun)?;
    curl.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?.rest()?;

    story.scene("A call of twelve steps begins; in the middle of it the page is reloaded: curl is killed")?;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "walk", "arguments": {}, "_meta": {"progressToken": "steps"}}});
    let mut page = curl.post(&call)?;
    heard.until(&mut page, GATES[0].0 - 1)?;
    drop(page);
    story.open(&stage, 0)?;

    story.scene("The new page asks for the rest; in the middle of that `serve` is killed")?;
    let mut page = curl.resume(&heard.last)?;
    heard.until(&mut page, GATES[1].0 - 1)?;
    let pid = serve.kill()?;
    story.note(&format!("SIGKILL to `serve` (pid {pid}); the server goes on"))?;
    drop(page);
    story.open(&stage, 1)?;

    story.scene("`serve` is started again, and the page asks for the rest")?;
    serve = Serve::start(&stage, &story)?;
    let mut page = curl.resume(&heard.last)?;
    heard.until(&mut page, u64::MAX)?;
    drop(page);
    let again = curl.resume(&heard.last)?;
    let complete = again.status;
    again.rest()?;

    story.scene("What curl has got in all")?;
    let steps: Vec<u64> = (1..=STEPS).collect();
    story.check("each of the twelve steps once, and in order", heard.steps == steps)?;
    story.check("one answer, from the server that was called", heard.answers.len() == 1)?;
    story.check("nothing is left: 204 No Content", complete == 204)?;
    story.note("Ctrl-C to `serve`: its sessions end, too")?;
    serve.end()?;
    let server = heard.answers.first().and_then(|text| text.rsplit(' ').next()?.parse().ok());
    story.check("the server has ended with its session", server.is_some_and(is_gone))?;
    story.end()
}

/// Whether a process ends in time.
fn is_gone(pid: i32) -> bool {
    let until = Instant::now() + PATIENCE;
    while kill(Pid::from_raw(pid), None).is_ok() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// What came over all connections.
#[derive(Default)]
struct Heard {
    steps: Vec<u64>,
    answers: Vec<String>,
    /// The id of the last event.
    last: String,
}

impl Heard {
    /// Reads until this step has come, or the stream ends.
    fn until(&mut self, page: &mut Answer, step: u64) -> io::Result<()> {
        while let Some(event) = page.event()? {
            if let Some(id) = event.id {
                self.last = id;
            }
            let Some(message) = event.message else { continue };
            if let Some(text) = message["result"]["content"][0]["text"].as_str() {
                self.answers.push(text.to_owned());
            } else if let Some(progress) = message["params"]["progress"].as_u64() {
                self.steps.push(progress);
                if progress >= step {
                    return Ok(());
                }
            } else {
                return Err(io::Error::other(format!("`serve` sent something unexpected: {message}")));
            }
        }
        Ok(())
    }
}

/// `serve`. It is ended when this is dropped, with its sessions.
struct Serve(Option<Child>);

impl Serve {
    fn start(stage: &Stage, story: &Story) -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let listen = format!("unix:{}", stage.directory().join("serve.sock").display());
        story.note(&format!(
            "$ mcp-sessiond serve --name demo --listen {listen} -- mcp-sessiond demo --part steps"
        ))?;
        let mut process = Command::new(&own)
            .args(["serve", "--name", "demo", "--listen", &listen, "--"])
            .arg(&own)
            .args(["demo", "--part", "steps"])
            .envs(stage.environment())
            .env_remove("NOTIFY_SOCKET")
            .current_dir(stage.directory())
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
        let mut process = self.0.take().ok_or_else(|| io::Error::other("`serve` is dead already"))?;
        process.kill()?;
        process.wait()?;
        Ok(process.id())
    }

    /// Sends SIGINT, which ends the sessions, too, and waits until it has ended.
    fn end(&mut self) -> io::Result<()> {
        let Some(mut process) = self.0.take() else { return Ok(()) };
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

/// What is shown beside curl's own output.
struct Story {
    json: bool,
    scene: String,
    wrong: usize,
}

impl Story {
    fn scene(&mut self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.scene);
        self.note(&format!("\n{}", paint(HEADING, text)))
    }

    fn note(&self, text: &str) -> io::Result<()> {
        if self.json { Ok(()) } else { line(text) }
    }

    /// Lets the server take its next steps.
    fn open(&self, stage: &Stage, gate: usize) -> io::Result<()> {
        let path: PathBuf = stage.directory().join(GATES[gate].1);
        self.note(&format!("$ touch {}", path.display()))?;
        std::fs::write(path, "")
    }

    fn check(&mut self, expected: &str, holds: bool) -> io::Result<()> {
        self.wrong += usize::from(!holds);
        if self.json {
            return line(
                &json!({"scene": self.scene, "expected": expected, "as_expected": holds}).to_string(),
            );
        }
        let mark = if holds { paint(GOOD, "yes") } else { paint(BAD, "NO ") };
        line(&format!("{mark}  {expected}"))
    }

    fn end(self) -> io::Result<bool> {
        match self.wrong {
            0 => self.note(&paint(GOOD, "\nNothing was lost, and nothing came twice."))?,
            wrong => self.note(&paint(BAD, &format!("\n{wrong} of these do not hold.")))?,
        }
        Ok(self.wrong == 0)
    }
}
