//! A process that leases a service, as an HTTP server does, and obeys a test: `serving NAME`.
//!
//! It first says `{"leased": EPOCH}`; or it says `{"taken": {"pid", "since_ms"}}` and exits with
//! 75. Then it reads commands, one line of JSON each, until its input ends. It does not wait for
//! one command to complete before it reads the next, except for `backend`, `calls`, `end` and
//! `release`. The commands, and what it answers:
//!
//! - `{"backend": SESSION, "command": […]}`:
//!   `{"attached": SESSION, "keeper", "incarnation", "is_initialized"}`, or
//!   `{"attached": null, "why"}`; from then on each line of the backend is
//!   `{"session", "number", "line"}`, and its end `{"gone": SESSION}`
//! - `{"send": SESSION, "line": text}`: `{"taken": SESSION, "line"}`, or
//!   `{"lost": SESSION, "line"}`
//! - `{"confirm": SESSION, "number"}`: nothing
//! - `{"calls": SESSION}`: `{"calls": […]}`
//! - `{"end": SESSION}`: `{"ended": SESSION}`
//! - `{"drop": SESSION}`: `{"dropped": SESSION}`
//! - `{"release": true}`: `{"released": true}`

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use mcp_sessiond_proxy::program::Program;
use mcp_sessiond_proxy::server::service::{Backend, Command, NotLeased, Options, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

type Backends = HashMap<String, Arc<Backend>>;

#[tokio::main]
async fn main() -> ExitCode {
    let name = std::env::args()
        .nth(1)
        .and_then(|name| name.parse().ok())
        .expect("usage: serving NAME");
    let binary = std::env::var_os("MCP_SESSIOND_BIN").map(Into::into);
    let service = match Service::lease(
        name,
        Options {
            control: None,
            binary,
            descriptors: None,
        },
    )
    .await
    {
        Ok(service) => service,
        Err(NotLeased::Taken { pid, since }) => {
            let since_ms = since
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis());
            say(&json!({"taken": {"pid": pid, "since_ms": u64::try_from(since_ms).unwrap_or(0)}}));
            return ExitCode::from(75);
        }
        Err(error) => {
            say(&json!({"failed": error.to_string()}));
            return ExitCode::FAILURE;
        }
    };
    say(&json!({"leased": service.epoch().0}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut backends = Backends::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let command: Value = serde_json::from_str(&line).expect("JSON");
        obey(&service, &mut backends, &command).await;
    }
    ExitCode::SUCCESS
}

fn say(line: &Value) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

async fn obey(service: &Service, backends: &mut Backends, command: &Value) {
    let of = |verb: &str| command[verb].as_str().map(str::to_owned);
    let backend = |session: &str| backends.get(session).expect("it is attached").clone();
    if let Some(session) = of("backend") {
        match service
            .backend(&session.parse().expect("an id"), &program(command))
            .await
        {
            Ok(backend) => {
                let backend = Arc::new(backend);
                say(&json!({
                    "attached": session, "keeper": backend.keeper(), "incarnation": backend.incarnation(),
                    "is_initialized": backend.is_initialized(),
                }));
                tokio::spawn(tell(session.clone(), Arc::downgrade(&backend)));
                backends.insert(session, backend);
            }
            Err(error) => say(&json!({"attached": null, "why": error.to_string()})),
        }
    } else if let Some(session) = of("send") {
        let (backend, line) = (backend(&session), of("line").expect("text"));
        tokio::spawn(async move {
            let what = if backend.send(line.clone()).await.is_ok() {
                "taken"
            } else {
                "lost"
            };
            say(&json!({what: session, "line": line}));
        });
        // Keeps the order of the commands.
        tokio::task::yield_now().await;
    } else if let Some(session) = of("confirm") {
        backend(&session).confirm(command["number"].as_u64().expect("a number"));
    } else if let Some(session) = of("calls") {
        say(&json!({"calls": backend(&session).open_calls().await.ok()}));
    } else if let Some(session) = of("end") {
        let backend = backend(&session);
        tokio::spawn(async move {
            backend.end().await;
            say(&json!({"ended": session}));
        });
    } else if let Some(session) = of("drop") {
        backends.remove(&session);
        say(&json!({"dropped": session}));
    } else {
        let released = service.clone().release().await;
        say(&json!({"released": released.is_ok()}));
    }
}

fn program(command: &Value) -> Command {
    let words = command["command"]
        .as_array()
        .expect("words")
        .iter()
        .map(|word| word.as_str().expect("text"));
    let mut words = words.map(Into::into);
    let name = words.next().expect("a program");
    let program = Program {
        name,
        arguments: words.collect(),
        title: None,
        has_sources: true,
    };
    Command {
        program,
        environment: Vec::new(),
        home: None,
    }
}

/// Reports the backend's lines, as long as `main` holds it.
async fn tell(session: String, backend: std::sync::Weak<Backend>) {
    loop {
        let Some(strong) = backend.upgrade() else {
            return;
        };
        let next = tokio::time::timeout(std::time::Duration::from_millis(50), strong.next()).await;
        drop(strong);
        match next {
            Ok(Some(message)) => {
                let line = String::from_utf8_lossy(&message.line).into_owned();
                say(&json!({"session": session, "number": message.number, "line": line}));
            }
            Ok(None) => return say(&json!({"gone": session})),
            Err(_) => {}
        }
    }
}
