//! `debug backends [SESSION]`: what keepers hold. The daemon knows which there are; how each is, it
//! says itself.

use std::fmt::Write as _;

use mcp_sessiond_proto::backends::{
    Backend, BackendState, BackendStatus, CallInfo, ParkedInfo, Traffic,
};

use crate::inventory::BackendReport;
use crate::ui::table::{
    self, BAD, DOUBTFUL, GOOD, HEADING, bytes, duration, listing_or, paint, printable,
};

pub(super) fn table(seen: &[BackendReport]) -> String {
    let row = |BackendReport {
                   backend,
                   status,
                   failure,
                   ..
               }: &BackendReport| {
        let mut row = vec![backend.session.to_string(), printable(&backend.program)];
        match status {
            Some(status) => row.extend(cells(status)),
            None => row.extend([
                "-".into(),
                "-".into(),
                paint(BAD, &printable(failure.as_deref().unwrap_or("?"))),
            ]),
        }
        row
    };
    let heading = [
        "session",
        "program",
        "pid",
        "age",
        "state",
        "front",
        "calls",
        "waiting",
        "in",
        "out",
        "restarts",
        "memory",
        "last error",
    ];
    listing_or(&heading, seen.iter().map(row), "No backends.")
}

fn cells(status: &BackendStatus) -> Vec<String> {
    vec![
        status
            .pid
            .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        duration(status.age_ms),
        state(status.state),
        front(status),
        status.calls.len().to_string(),
        status.waiting.to_string(),
        bytes(status.to_backend.bytes),
        bytes(status.from_backend.bytes),
        status.restarts.to_string(),
        format!(
            "{} + {}",
            bytes(status.backend_bytes),
            bytes(status.keeper_bytes)
        ),
        printable(status.last_error.as_deref().unwrap_or("-")),
    ]
}

fn state(state: BackendState) -> String {
    match state {
        BackendState::Started => paint(DOUBTFUL, "started"),
        BackendState::Initializing => paint(DOUBTFUL, "initializing"),
        BackendState::Ready => paint(GOOD, "ready"),
        BackendState::Restarting => paint(BAD, "restarting"),
        BackendState::Stopping => paint(BAD, "stopping"),
    }
}

fn front(status: &BackendStatus) -> String {
    let since = duration(status.since_ms);
    let hosts = status.shared.map_or(0, |shared| shared.hosts);
    match status.front {
        None if hosts > 0 => format!("{hosts} hosts that share it, for {since}"),
        Some(pid) => format!("{pid}, for {since}"),
        None => paint(DOUBTFUL, &format!("none for {since}")),
    }
}

/// One backend at length.
pub(super) fn text(seen: &[BackendReport]) -> String {
    if seen.is_empty() {
        return "There is no backend of that session.\n".into();
    }
    let mut text = String::new();
    for BackendReport {
        backend,
        status,
        failure,
        ..
    } in seen
    {
        let Backend {
            session,
            keeper,
            keeper_pid,
            host,
            program,
            ..
        } = backend;
        let title = paint(HEADING, &format!("{program} of session {session}"));
        let _ = writeln!(
            text,
            "{title}\n  host {host}, keeper {keeper} with pid {keeper_pid}"
        );
        match status {
            Some(status) => at_length(&mut text, status),
            None => {
                let failure = failure.as_deref().unwrap_or("it gave no status");
                let _ = writeln!(text, "  {}", paint(BAD, failure));
            }
        }
    }
    text
}

fn at_length(text: &mut String, status: &BackendStatus) {
    let pid = status
        .pid
        .map_or_else(|| "no process".to_owned(), |pid| format!("pid {pid}"));
    let (state, age) = (state(status.state), duration(status.age_ms));
    let error = printable(status.last_error.as_deref().unwrap_or("none"));
    let waiting = bytes(status.waiting_bytes as u64);
    let (server, keeper) = (bytes(status.backend_bytes), bytes(status.keeper_bytes));
    let BackendStatus {
        restarts,
        lost,
        dropped,
        ..
    } = status;
    let lines = [
        format!("{state}, {pid}, for {age}; started again {restarts} times; last error: {error}"),
        format!("front: {}", front(status)),
        format!(
            "to the server {}; from it {}",
            traffic(status.to_backend),
            traffic(status.from_backend)
        ),
        format!(
            "waiting for a wrapper: {} messages, {waiting}",
            status.waiting
        ),
        format!("lost with a wrapper: {lost} messages; not passed on: {dropped}"),
        format!("memory: server {server}, keeper {keeper}"),
    ];
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    let call = |call: &CallInfo| {
        let whose = if call.former {
            "a previous wrapper"
        } else {
            "this wrapper"
        };
        vec![
            printable(&call.method),
            duration(call.age_ms),
            whose.to_owned(),
        ]
    };
    section(
        text,
        "Calls under way",
        &["method", "for", "of"],
        status.calls.iter().map(call),
    );
    section(
        text,
        "Requests of the server",
        &["method", "for", "of"],
        status.asks.iter().map(call),
    );
    let parked = |parked: &ParkedInfo| {
        let ParkedInfo {
            method,
            age_ms,
            took_ms,
            bytes: size,
            failed,
        } = parked;
        let kind = if *failed { "error" } else { "result" };
        let came = format!("{} ago", duration(*age_ms));
        vec![
            printable(method),
            kind.into(),
            bytes(*size as u64),
            duration(*took_ms),
            came,
        ]
    };
    let heading = ["method", "answer", "size", "took", "came"];
    section(
        text,
        "Answers to calls of previous wrappers, which were dropped",
        &heading,
        status.parked.iter().map(parked),
    );
    if !status.stderr.is_empty() {
        let _ = writeln!(text, "{}", paint(HEADING, "Standard error"));
        for line in status.stderr.lines() {
            let _ = writeln!(text, "  {}", printable(line));
        }
    }
}

fn section(
    text: &mut String,
    title: &str,
    heading: &[&str],
    rows: impl ExactSizeIterator<Item = Vec<String>>,
) {
    if rows.len() > 0 {
        let _ = writeln!(text, "{}", paint(HEADING, title));
        for line in table::render(heading, rows).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn traffic(traffic: Traffic) -> String {
    format!("{} messages, {}", traffic.messages, bytes(traffic.bytes))
}
