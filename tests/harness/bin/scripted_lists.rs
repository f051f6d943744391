//! A server that says of itself what a file says: `scripted-lists DIRECTORY`.
//!
//! `told.json` has its result of `initialize` and its answers to what asks for lists:
//! `{"initialize": {…}, "tools/list": [page, …], …}`, where a page is the result, and a page that is
//! a number the code of an error. Each line that it gets is appended to `heard`, the first one being
//! its pid. Before anything else it waits until it can open `gate`, if that is there. A call is
//! answered with its pid.

mod stdio;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let directory = std::env::args().nth(1).map(PathBuf::from);
    let directory = directory.ok_or_else(|| io::Error::other("usage: scripted-lists DIRECTORY"))?;
    let heard = directory.join("heard");
    let mut heard = OpenOptions::new().create(true).append(true).open(heard)?;
    writeln!(heard, "{}", json!({"pid": std::process::id()}))?;
    if directory.join("gate").exists() {
        fs::read(directory.join("gate"))?;
    }
    let told: Value = serde_json::from_slice(&fs::read(directory.join("told.json"))?)?;
    for line in io::stdin().lines() {
        let line = line?;
        writeln!(heard, "{line}")?;
        let message: Value = serde_json::from_str(&line)?;
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            stdio::answer(id, answer(&told, method, &message["params"]));
        }
    }
    Ok(())
}

fn answer(told: &Value, method: &str, params: &Value) -> stdio::Answer {
    match method {
        "initialize" => {
            let Some(told) = told["initialize"].as_object() else {
                return Err((-32000, "not today".to_owned()));
            };
            let mut answer = json!({"protocolVersion": params["protocolVersion"]});
            for (name, value) in told {
                answer[name] = value.clone();
            }
            Ok(answer)
        }
        "tools/call" => Ok(stdio::text(&std::process::id())),
        "ping" | "logging/setLevel" | "resources/subscribe" => Ok(json!({})),
        _ if method.ends_with("/list") => page(&told[method], params),
        _ => stdio::not_found(),
    }
}

fn page(pages: &Value, params: &Value) -> stdio::Answer {
    let at = params["cursor"]
        .as_str()
        .and_then(|cursor| cursor.parse().ok());
    let at: usize = at.unwrap_or_default();
    let refused = |code| Err((code, "no such thing here".to_owned()));
    let Some(page) = pages.get(at) else {
        return refused(-32601);
    };
    if let Some(code) = page.as_i64() {
        return refused(code);
    }
    let mut page = page.clone();
    if pages.get(at + 1).is_some() {
        page["nextCursor"] = (at + 1).to_string().into();
    }
    Ok(page)
}
