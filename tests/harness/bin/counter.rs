//! A server that does what the tests ask of it: `counter [--deaf] [--modern] [--gate FILE] [--starts LOG N] [--pinged FILE] [ANYTHING…]`.
//!
//! | tool | what it does |
//! | --- | --- |
//! | `increment`, `get` | answer the count |
//! | `slow {gate}` | tells by a log message that it has begun, waits until the file `gate` is there, and answers as `increment`; counts nothing once it is cancelled |
//! | `ask {prompt}` | asks the host for a sample, and answers its text |
//! | `notify {n, gate}` | sends `n` log messages, numbered on from the last; with a gate it answers at once, and sends them when that file is there |
//! | `steps {n, gates}` | sends `n` log messages, numbered from 1, and answers `n`; `gates` names the file that it waits for after the message of a number |
//! | `progress {n, gates}` | the same by progress of the call |
//! | `die {code}` | exits at once, without an answer |
//! | `half` | writes half an answer, and exits |
//! | `block {begun, gate}` | makes the file `begun`, does nothing else until the file `gate` is there, and answers as `increment` |
//! | `ignore {told}` | neither SIGTERM nor the end of its input ends it any more; with `told` it exits at SIGTERM when it has written that to this file |
//! | `spawn {how, file, told}` | starts a process, and answers its pid: a `child` in its group, `detached` in a session of its own, or an `orphan`, which is nobody's child. It writes its pid to `file`, and, when it gets that, `SIGTERM` to `told` |
//! | `big {bytes}` | answers a text of this length |
//! | `echo {…}` | answers its arguments, as JSON |
//! | `env` | answers its environment, as JSON |
//! | `complain {text}` | writes this to standard error |
//! | `change` | says that its tools have changed; with `--modern` alone |
//!
//! `COUNTER_PIDS` names a file to which it appends its pid before anything else,
//! `COUNTER_HANDSHAKES` one for a line at each `initialize`. With `--deaf` it answers no ping; with
//! `--modern` it speaks MCP 2026-07-28 alone, where what `ask` asks is the result of the call; with
//! `--gate` it makes the file `FILE.begun`, and reads nothing before FILE is there; with
//! `--pinged` it makes that file at the first ping. With `--starts` it can be seen how many are starting at once: whoever starts it has written `+ PID`
//! into LOG; it adds `= NUMBER`, how many of those live that have not answered `tools/list` yet, and
//! `- PID` when it is about to answer it, which it does once N have been starting at once.

mod stdio;

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

const TOOLS: [&str; 16] = [
    "increment",
    "get",
    "slow",
    "ask",
    "notify",
    "steps",
    "progress",
    "die",
    "half",
    "block",
    "ignore",
    "spawn",
    "big",
    "echo",
    "env",
    "complain",
];
/// The version of MCP that has no `initialize`.
const MODERN: &str = "2026-07-28";
/// The first argument of a process that this server starts.
const SPAWNED: &str = "--spawned";

/// What calls share, each of which may wait in a thread of its own.
#[derive(Default)]
struct State {
    count: u64,
    notified: u64,
    /// Calls that the host has cancelled, as JSON.
    cancelled: HashSet<String>,
    is_ignoring: bool,
    /// Whether it speaks MCP 2026-07-28 alone, and the requests that have subscribed to its lists.
    is_modern: bool,
    listening: Vec<Value>,
}

#[derive(Clone, Default)]
struct Counter(Arc<(Mutex<State>, stdio::Asked)>);

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == SPAWNED) {
        return spawned(&words[1..]);
    }
    stdio::note("COUNTER_PIDS", std::process::id());
    let option = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)
    };
    if let Some(gate) = option("--gate") {
        fs::write(format!("{gate}.begun"), "")?;
        stdio::wait_for(gate, || false);
    }
    let (starts, pinged) = (option("--starts"), option("--pinged"));
    let together = words.iter().position(|word| word == "--starts");
    let together = together
        .and_then(|at| words.get(at + 2))
        .map(|n| format!("= {n}"));
    if let Some(log) = starts {
        append(log, &format!("= {}", starting(log)?))?;
    }
    let is_deaf = words.iter().any(|word| word == "--deaf");
    let counter = Counter::default();
    counter.lock().is_modern = words.iter().any(|word| word == "--modern");
    for message in stdio::messages() {
        match (message["method"].as_str(), starts, pinged) {
            (Some("tools/list"), Some(log), _) => {
                stdio::wait_for("/nowhere", || {
                    let noted = fs::read_to_string(log).unwrap_or_default();
                    noted.lines().any(|line| Some(line) == together.as_deref())
                });
                append(log, &format!("- {}", std::process::id()))?;
            }
            (Some("ping"), _, Some(file)) => fs::write(file, "")?,
            _ => {}
        }
        if !(is_deaf && message["method"] == "ping") {
            counter.take(message);
        }
    }
    while counter.lock().is_ignoring {
        std::thread::park();
    }
    exit(0)
}

fn append(log: &str, line: &str) -> io::Result<()> {
    let mut log = fs::OpenOptions::new().append(true).open(log)?;
    log.write_all(format!("{line}\n").as_bytes())
}

/// How many of those that are noted in LOG live, and have not answered `tools/list`.
fn starting(log: &str) -> io::Result<usize> {
    let noted = fs::read_to_string(log)?;
    let of = |sign: &str| -> HashSet<&str> {
        let lines = noted.lines().filter(|line| line.starts_with(sign));
        lines
            .filter_map(|line| line.split(' ').next_back())
            .collect()
    };
    let lives = |pid: &&str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        !state.is_empty() && !state.starts_with(['Z', 'X'])
    };
    Ok(of("+").difference(&of("-")).copied().filter(lives).count())
}

impl Counter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, message: Value) {
        let Some(method) = message["method"].as_str() else {
            return self.0.1.answered(message);
        };
        let params = &message["params"];
        let Some(id) = message.get("id") else {
            if method == "notifications/cancelled" {
                self.lock()
                    .cancelled
                    .insert(params["requestId"].to_string());
            }
            return;
        };
        if self.lock().is_modern
            && let Some(answer) = Self::modern(method, params)
        {
            return self.answer(id, answer);
        }
        let answer = match method {
            "subscriptions/listen" => return self.listen(id, params),
            "initialize" => {
                stdio::note("COUNTER_HANDSHAKES", std::process::id());
                let capabilities = json!({"tools": {}, "logging": {}});
                Ok(stdio::initialized(params, "counter", &capabilities))
            }
            "tools/list" if self.lock().is_modern => {
                Ok(stdio::tools(&[&TOOLS[..], &["change"]].concat()))
            }
            "tools/list" => Ok(stdio::tools(&TOOLS)),
            "tools/call" => return self.call(message),
            "ping" | "logging/setLevel" => Ok(json!({})),
            _ => stdio::not_found(),
        };
        self.answer(id, answer);
    }

    fn answer(&self, id: &Value, mut answer: stdio::Answer) {
        if let Ok(result) = &mut answer
            && self.lock().is_modern
            && result.get("resultType").is_none()
        {
            result["resultType"] = "complete".into();
            if result.get("tools").is_some() {
                result["ttlMs"] = 0.into();
                result["cacheScope"] = "private".into();
            }
        }
        stdio::answer(id, answer);
    }

    /// What is different in the later era. None: nothing.
    fn modern(method: &str, params: &Value) -> Option<stdio::Answer> {
        let meta = |name: &str| &params["_meta"][format!("io.modelcontextprotocol/{name}")];
        if method == "initialize" || meta("protocolVersion") != MODERN {
            let why = "Unsupported protocol version".to_owned();
            return Some(Err((-32022, why)));
        }
        match method {
            "server/discover" => {
                let capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
                let server = json!({"name": "counter", "version": "1.0.0"});
                Some(Ok(json!({
                    "resultType": "complete", "supportedVersions": [MODERN], "capabilities": capabilities,
                    "_meta": {"io.modelcontextprotocol/serverInfo": server},
                })))
            }
            "ping" | "logging/setLevel" => Some(stdio::not_found()),
            "tools/call" if params["name"] == "ask" => {
                if meta("clientCapabilities").get("sampling").is_none() {
                    return Some(Err((-32021, "the host can't be asked".to_owned())));
                }
                if let Some(given) = params["inputResponses"].get("text") {
                    assert_eq!(params["requestState"], "asked");
                    let text = given["content"]["text"].as_str().unwrap_or("None");
                    return Some(Ok(stdio::text(&text)));
                }
                let prompt = params["arguments"]["prompt"].as_str().unwrap_or("Well?");
                let request = json!({"method": "sampling/createMessage", "params": sample(prompt)});
                Some(Ok(json!({
                    "resultType": "input_required", "inputRequests": {"text": request}, "requestState": "asked",
                })))
            }
            _ => None,
        }
    }

    /// A client wants to know when the tools have changed.
    fn listen(&self, id: &Value, params: &Value) {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        let wanted = &params["notifications"];
        stdio::say(json!({
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": wanted, "_meta": meta},
        }));
        self.lock().listening.push(meta);
    }

    /// The tools have changed.
    fn change(&self) {
        for meta in &self.lock().listening {
            let params = json!({"_meta": meta});
            stdio::say(json!({"method": "notifications/tools/list_changed", "params": params}));
        }
    }

    /// Calls a tool. One that waits does so in a thread of its own.
    fn call(&self, message: Value) {
        let waits = ["slow", "ask", "steps", "progress"];
        let name = message["params"]["name"].as_str().unwrap_or_default();
        if waits.contains(&name) {
            let counter = self.clone();
            std::thread::spawn(move || counter.finish(&message));
        } else {
            self.finish(&message);
        }
    }

    fn finish(&self, message: &Value) {
        let id = &message["id"];
        let answer = self.run(id, &message["params"]);
        // A call that was cancelled is not answered (MCP, Cancellation).
        if !self.is_cancelled(id) {
            self.answer(id, answer.map(|text| stdio::text(&text)));
        }
    }

    fn is_cancelled(&self, id: &Value) -> bool {
        self.lock().cancelled.contains(&id.to_string())
    }

    fn increment(&self) -> String {
        let mut state = self.lock();
        state.count += 1;
        state.count.to_string()
    }

    fn run(&self, id: &Value, params: &Value) -> Result<String, (i64, String)> {
        let given = &params["arguments"];
        let word = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| given[name].as_u64().unwrap_or_default();
        let said = match params["name"].as_str().unwrap_or_default() {
            "increment" => self.increment(),
            "get" => self.lock().count.to_string(),
            "slow" => {
                log("slow", &format!("begun {}", word("gate")).into());
                if !stdio::wait_for(word("gate"), || self.is_cancelled(id)) {
                    return Ok(String::new());
                }
                self.increment()
            }
            "ask" => self.ask(given["prompt"].as_str().unwrap_or("Well?"))?,
            "notify" => self.notify(number("n"), given["gate"].as_str()),
            "steps" => steps(given, |n| log("steps", &n.into())),
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                let total = number("n");
                steps(given, |n| {
                    let params = json!({"progressToken": token, "progress": n, "total": total});
                    stdio::say(json!({"method": "notifications/progress", "params": params}));
                })
            }
            "die" => exit(given["code"].as_i64().map_or(1, |code| code as i32)),
            "half" => half(id),
            "block" => {
                fs::write(word("begun"), "").expect("a file");
                stdio::wait_for(word("gate"), || false);
                self.increment()
            }
            "ignore" => {
                self.ignore(given["told"].as_str());
                "ignoring".to_owned()
            }
            "spawn" => spawn(given).expect("a process"),
            "big" => "x".repeat(number("bytes") as usize),
            "echo" => given.to_string(),
            "env" => stdio::environment(),
            "complain" => {
                io::stderr()
                    .write_all(word("text").as_bytes())
                    .expect("it is read");
                word("text").len().to_string()
            }
            "change" => {
                self.change();
                String::new()
            }
            unknown => return Err((-32602, format!("there is no tool {unknown}"))),
        };
        Ok(said)
    }

    fn ask(&self, prompt: &str) -> Result<String, (i64, String)> {
        let answer = self.0.1.ask("sampling/createMessage", &sample(prompt));
        let text = answer["result"]["content"]["text"].as_str();
        let text = text.map(str::to_owned);
        text.ok_or_else(|| (-32603, answer["error"]["message"].to_string()))
    }

    fn notify(&self, n: u64, gate: Option<&str>) -> String {
        let counter = self.clone();
        let send = move || {
            for _ in 0..n {
                let mut state = counter.lock();
                state.notified += 1;
                log("notify", &state.notified.into());
            }
        };
        match gate.map(str::to_owned) {
            None => send(),
            Some(gate) => {
                std::thread::spawn(move || {
                    stdio::wait_for(gate, || false);
                    send();
                });
            }
        }
        n.to_string()
    }

    fn ignore(&self, told: Option<&str>) {
        self.lock().is_ignoring = true;
        let mut signals = Signals::new([SIGTERM]).expect("a signal that can be caught");
        let told = told.map(str::to_owned);
        std::thread::spawn(move || {
            for _ in &mut signals {
                if let Some(told) = &told {
                    tell_and_exit(told);
                }
            }
        });
    }
}

/// What a sample is asked for with.
fn sample(prompt: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"messages": [message], "maxTokens": 10})
}

fn tell_and_exit(told: &str) -> ! {
    fs::write(told, "SIGTERM").expect("a file");
    exit(0)
}

fn log(logger: &str, data: &Value) {
    let params = json!({"level": "info", "logger": logger, "data": data});
    stdio::say(json!({"method": "notifications/message", "params": params}));
}

fn steps(given: &Value, tell: impl Fn(u64)) -> String {
    let n = given["n"].as_u64().unwrap_or_default();
    for step in 1..=n {
        tell(step);
        if let Some(gate) = given["gates"][step.to_string()].as_str() {
            stdio::wait_for(gate, || false);
        }
    }
    n.to_string()
}

fn half(id: &Value) -> ! {
    let half = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"te"#);
    let mut output = io::stdout();
    let _ = output
        .write_all(half.as_bytes())
        .and_then(|()| output.flush());
    exit(7)
}

/// Starts a process, which says its pid once it is what it is to be.
fn spawn(given: &Value) -> io::Result<String> {
    let word = |name: &str| given[name].as_str().unwrap_or_default();
    let mut child = Command::new(std::env::current_exe()?)
        .args([SPAWNED, word("how"), word("file"), word("told")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut pid = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut pid)?;
    if word("how") == "orphan" {
        child.wait()?;
    }
    Ok(pid.trim_end().to_owned())
}

/// What such a process does: it lives until it is ended.
fn spawned(words: &[String]) -> io::Result<()> {
    let [how, file, told] = words else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if how == "orphan" {
        // Nobody waits for it: its parent is gone as soon as it runs.
        let _ = Command::new(std::env::current_exe()?)
            .args([SPAWNED, "detached", file, told])
            .spawn()?;
        return Ok(());
    }
    if how == "detached" {
        nix::unistd::setsid()?;
    }
    let mut signals = Signals::new([SIGTERM])?;
    if !file.is_empty() {
        let new = format!("{file}.new");
        fs::write(&new, std::process::id().to_string())?;
        fs::rename(new, file)?;
    }
    writeln!(io::stdout(), "{}", std::process::id())?;
    let _ = signals.forever().next();
    if !told.is_empty() {
        tell_and_exit(told);
    }
    Ok(())
}
