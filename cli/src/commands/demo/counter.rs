//! A server for `demo`: its one tool counts its calls, in memory alone.

use std::io;

use serde_json::json;

use super::steps::answer_all;

pub(super) fn play() -> io::Result<()> {
    let mut calls = 0;
    answer_all("counter", |_| {
        calls += 1;
        Ok(json!({"structuredContent": {"calls": calls, "pid": std::process::id()}, "content": []}))
    })
}
