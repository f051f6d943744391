//! A server that counts, and takes `server/discover` as it is told to: `tempers TEMPER DIRECTORY`.
//!
//! | temper | what it does |
//! | --- | --- |
//! | `answers` | answers it until it is initialised |
//! | `sticks` | the same, and then refuses `initialize` |
//! | `refuses` | refuses it with -32602 |
//! | `late` | refuses it when the next message has come |
//! | `exits` | exits with what a Rust server of 2025 writes to its standard error |
//! | `mute` | does not answer it |
//!
//! Its start, and each line that it reads, is appended to DIRECTORY/ledger. The tool `increment`
//! counts.

mod stdio;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::exit;

use serde_json::{Value, json};

const EXPECTED: &str = "Error: ExpectedInitializeRequest(Some(Request(\"server/discover\")))\n";

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [temper, directory] = &words[..] else {
        return Err(io::Error::other("usage: tempers TEMPER DIRECTORY"));
    };
    let ledger = Path::new(directory).join("ledger");
    let mut ledger = OpenOptions::new().create(true).append(true).open(ledger)?;
    writeln!(ledger, "start {}", std::process::id())?;
    let (mut count, mut is_initialized, mut is_discovered) = (0, false, false);
    let mut owed: Option<Value> = None;
    for message in stdio::messages() {
        let (id, params) = (&message["id"], &message["params"]);
        let method = message["method"].as_str().unwrap_or("None");
        writeln!(ledger, "{method}")?;
        if let Some(owed) = owed.take() {
            stdio::answer(&owed, refused(-32602));
        }
        match (method, temper.as_str()) {
            ("server/discover", _) if is_initialized => stdio::answer(id, stdio::not_found()),
            ("server/discover", "answers" | "sticks") => {
                is_discovered = true;
                let information = json!({"name": "tempers", "version": "1.0.0"});
                stdio::answer(
                    id,
                    Ok(json!({
                        "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": information,
                    })),
                );
            }
            ("server/discover", "refuses") => stdio::answer(id, refused(-32602)),
            ("server/discover", "late") => owed = Some(id.clone()),
            ("server/discover", "exits") => {
                io::stderr().write_all(EXPECTED.as_bytes())?;
                exit(1);
            }
            ("initialize", "sticks") if is_discovered => stdio::answer(id, refused(-32600)),
            ("initialize", _) => {
                is_initialized = true;
                let capabilities = json!({"tools": {}});
                stdio::answer(id, Ok(stdio::initialized(params, "tempers", &capabilities)));
            }
            ("tools/call", _) => {
                count += 1;
                stdio::answer(id, Ok(stdio::text(&count)));
            }
            ("tools/list", _) => stdio::answer(id, Ok(stdio::tools(&["increment"]))),
            ("server/discover" | "None", _) => {}
            _ if !id.is_null() => stdio::answer(id, Ok(json!({}))),
            _ => {}
        }
    }
    Ok(())
}

fn refused(code: i64) -> stdio::Answer {
    Err((code, "Invalid request parameters".to_owned()))
}
