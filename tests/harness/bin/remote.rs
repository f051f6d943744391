//! A process that is connected to a remote server, and obeys a test: `remote NAME URL FILE`.
//!
//! Each line of its input is a message to the server. Each message of the server is
//! `{"number", "line"}` on its output, and is confirmed once that is written, unless `UNCONFIRMED`
//! is set. What has to outlive the process is in the file. It first says `{"handshake": …}`: the
//! server's answer to `initialize`, or null. When the server is gone for good it says
//! `{"gone": true}`. When its input ends, it exits, and the session with the server stays.
//!
//! `remote token NAME URL [REFUSED]` says the access token, `{"token": …}`, or `{"error": …}`, and
//! exits. It does so each time it reads a line.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_upstream::{Ids, Remote, SaveState, SavedState, connect};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// A file that is replaced as a whole.
#[derive(Debug)]
struct InFile {
    path: PathBuf,
    kept: Mutex<SavedState>,
}

impl SaveState for InFile {
    fn keep(&self, values: BTreeMap<String, Option<String>>) -> BoxFuture<'_, bool> {
        async move {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, value) in values {
                match value {
                    Some(value) => kept.insert(key, value),
                    None => kept.remove(&key),
                };
            }
            let new = self.path.with_extension("new");
            let text = serde_json::to_vec(&*kept).expect("JSON");
            std::fs::write(&new, text)
                .and_then(|()| std::fs::rename(&new, &self.path))
                .is_ok()
        }
        .boxed()
    }
}

fn say(line: &Value) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

fn remote(name: &str, url: &str) -> Remote {
    Remote::new(name, url, []).expect("an entry")
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["token", name, url] => tokens(name, url, None).await,
        ["token", name, url, refused] => tokens(name, url, Some(refused)).await,
        [name, url, file] => pipe(name, url, file.into()).await,
        _ => panic!("usage: remote NAME URL FILE"),
    }
    // Standard input may still be read from by a thread.
    std::process::exit(0);
}

async fn tokens(name: &str, url: &str, refused: Option<&str>) {
    let remote = remote(name, url);
    let login = remote.login().expect("a login");
    say(&json!("ready"));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        let token = match refused {
            None => login.token().await,
            Some(refused) => login.token_after(refused).await.map(Some),
        };
        say(&token.map_or_else(
            |error| json!({"error": error.to_string()}),
            |token| json!({"token": token}),
        ));
    }
}

async fn pipe(name: &str, url: &str, path: PathBuf) {
    let text = std::fs::read(&path).ok();
    let kept: Option<SavedState> = text.map(|text| serde_json::from_slice(&text).expect("JSON"));
    let keep = InFile {
        path,
        kept: Mutex::new(kept.clone().unwrap_or_default()),
    };
    let connected = connect(remote(name, url), kept.as_ref(), Arc::new(keep), Ids::Same).await;
    let (connection, mut from) = connected.expect("connected");
    say(&json!({"handshake": connection.handshake()}));
    let to = connection.channel();
    let confirms = std::env::var_os("UNCONFIRMED").is_none();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            said = from.recv() => {
                let Some(said) = said else { break say(&json!({"gone": true})) };
                let line: Value = serde_json::from_slice(&said.line).expect("JSON");
                say(&json!({"number": said.number, "line": line}));
                if confirms {
                    connection.confirm(said.number);
                }
            }
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { break };
                if to.send(line.into()).await.is_err() {
                    break;
                }
            }
        }
    }
}
