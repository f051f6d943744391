//! `debug sessions`, `debug session ID`, `debug streams` and `debug tasks`: what sessions hold,
//! never what is in it.

use std::fmt::Write as _;

use mcp_sessiond_client::{Connection, Error, SessionId};
use mcp_sessiond_proto::debug::{
    ContentInfo, ContentPage, InspectRequest, Inspected, PAGE_MAX, SessionInfo, StreamInfo,
    TaskInfo,
};
use mcp_sessiond_proto::sessions::{self, PartState, Status};
use serde::Serialize;

use crate::calls::{ANSWER_TIMEOUT, Failure};
use crate::ui::output::warn;
use crate::ui::table::{BAD, DOUBTFUL, GOOD, HEADING, duration, listing_or, paint, printable};

/// A session, and what it holds. One that only just was claimed holds nothing yet; a service's was
/// never claimed.
#[derive(Debug, Serialize)]
pub(super) struct SessionReport {
    #[serde(flatten)]
    session: Option<SessionInfo>,
    #[serde(flatten)]
    content: Option<ContentInfo>,
}

/// A part of a session's, and whose it is.
#[derive(Debug, Serialize)]
pub(super) struct Part<T> {
    owner: String,
    session: SessionId,
    #[serde(flatten)]
    part: T,
}

/// Every session: those that hosts own, in order of their ids, and those of services.
pub(super) async fn all(connection: &Connection) -> Result<Vec<SessionReport>, Failure> {
    let sessions = super::all_sessions(connection).await?;
    let mut contents = match all_contents(connection).await {
        // Who holds which session is known without.
        Err(Failure::Refused(error @ Error::Unavailable { .. })) => {
            warn(error);
            Vec::new()
        }
        contents => contents?,
    };
    let mut seen: Vec<SessionReport> = sessions
        .into_iter()
        .map(|session| {
            let its = |content: &ContentInfo| {
                let told = session.name.as_ref().unwrap_or(&session.session);
                content.session == *told
                    && owner(&content.owner) == format!("host {}", session.host)
            };
            let content = contents
                .iter()
                .position(its)
                .map(|at| contents.swap_remove(at));
            SessionReport {
                session: Some(session),
                content,
            }
        })
        .collect();
    contents.sort_by(|one, other| (&one.owner, &one.session).cmp(&(&other.owner, &other.session)));
    seen.extend(contents.into_iter().map(|content| SessionReport {
        session: None,
        content: Some(content),
    }));
    Ok(seen)
}

async fn all_contents(connection: &Connection) -> Result<Vec<ContentInfo>, Failure> {
    let mut all: Vec<ContentInfo> = Vec::new();
    loop {
        let after = all
            .last()
            .map(|last| (last.owner.clone(), last.session.clone()));
        let page = connection
            .list_contents(ANSWER_TIMEOUT, ContentPage { after })
            .await??;
        let more = page.len() == PAGE_MAX;
        all.extend(page);
        if !more {
            return Ok(all);
        }
    }
}

/// The sessions of one id.
pub(super) async fn inspect(
    connection: &Connection,
    session: &SessionId,
) -> Result<Vec<Inspected>, Failure> {
    let request = InspectRequest {
        session: session.clone(),
        owner: None,
    };
    Ok(connection
        .inspect_session(ANSWER_TIMEOUT, request)
        .await??)
}

/// The streams of all sessions.
pub(super) async fn streams(connection: &Connection) -> Result<Vec<Part<StreamInfo>>, Failure> {
    parts(
        connection,
        |content| content.streams,
        |inspected| inspected.streams,
    )
    .await
}

/// The tasks of all sessions.
pub(super) async fn tasks(connection: &Connection) -> Result<Vec<Part<TaskInfo>>, Failure> {
    parts(
        connection,
        |content| content.tasks,
        |inspected| inspected.tasks,
    )
    .await
}

/// The parts that sessions have of a kind.
async fn parts<T>(
    connection: &Connection,
    count: fn(&ContentInfo) -> u32,
    take: fn(Inspected) -> Vec<T>,
) -> Result<Vec<Part<T>>, Failure> {
    let mut seen = Vec::new();
    for content in all_contents(connection)
        .await?
        .into_iter()
        .filter(|content| count(content) > 0)
    {
        let ContentInfo { owner, session, .. } = content;
        let request = InspectRequest {
            session: session.clone(),
            owner: Some(owner.clone()),
        };
        let inspected = connection.inspect_session(ANSWER_TIMEOUT, request).await?;
        // It may have ended since.
        let found = inspected.into_iter().flatten().flat_map(take);
        seen.extend(found.map(|part| Part {
            owner: owner.clone(),
            session: session.clone(),
            part,
        }));
    }
    Ok(seen)
}

/// `service NAME` as it is, `host BOOT PID …` as `host PID`.
fn owner(owner: &str) -> String {
    match owner
        .strip_prefix("host ")
        .and_then(|host| host.split(' ').nth(1))
    {
        Some(pid) => format!("host {pid}"),
        None => owner.into(),
    }
}

fn status(status: &Status) -> &'static str {
    match status {
        Status::Initializing => "initializing",
        Status::Ready { .. } => "ready",
        Status::Failed { .. } => "failed",
        Status::Terminated => "terminated",
    }
}

pub(super) fn sessions_text(seen: &[SessionReport]) -> String {
    let dash = || "-".to_owned();
    let row = |SessionReport { session, content }: &SessionReport| {
        let told = |one: &'_ SessionInfo| one.name.clone().unwrap_or_else(|| one.session.clone());
        let id = session
            .as_ref()
            .map(told)
            .or(content.as_ref().map(|one| one.session.clone()));
        let of_host = |text: fn(&SessionInfo) -> Option<String>| {
            session.as_ref().and_then(text).unwrap_or_else(dash)
        };
        let held = |text: fn(&ContentInfo) -> String| content.as_ref().map_or_else(dash, text);
        let whose = session.as_ref().map_or_else(
            || {
                content
                    .as_ref()
                    .map_or_else(dash, |content| owner(&content.owner))
            },
            |session| format!("host {}", session.host),
        );
        vec![
            id.map_or_else(dash, |id| id.to_string()),
            whose,
            of_host(|one| Some(printable(&one.program))),
            of_host(|one| one.label.as_ref().map(|label| label.as_str().to_owned())),
            of_host(|one| Some(one.key.clone().unwrap_or_else(|| "none".into()))),
            of_host(|one| Some(one.epoch.to_string())),
            of_host(|one| one.holder.map(|pid| pid.to_string())),
            of_host(|one| one.token_file.clone()),
            held(|one| status(&one.status).to_owned()),
            held(|one| one.state_keys.to_string()),
            held(|one| one.streams.to_string()),
            held(|one| one.events.to_string()),
            held(|one| one.tasks.to_string()),
            held(|one| (one.state_bytes + one.event_bytes).to_string()),
        ]
    };
    let heading = [
        "session",
        "owner",
        "program",
        "label",
        "key",
        "epoch",
        "holder",
        "token file",
        "status",
        "state",
        "streams",
        "events",
        "tasks",
        "bytes",
    ];
    listing_or(&heading, seen.iter().map(row), "No sessions.")
}

pub(super) fn session_text(inspected: &[Inspected]) -> String {
    let mut text = String::new();
    for Inspected {
        session,
        content,
        streams,
        tasks,
    } in inspected
    {
        let mut line = |name: &str, value: &str| {
            // Into memory: it can't fail.
            let _ = writeln!(text, "  {name:<12} {value}");
        };
        if let Some(session) = session {
            line("session", session.session.as_str());
            line("name", session.name.as_ref().map_or("-", SessionId::as_str));
            line("host", &session.host.to_string());
            line("program", &printable(&session.program));
            line(
                "label",
                session.label.as_ref().map_or("-", |label| label.as_str()),
            );
            line("key", session.key.as_deref().unwrap_or("none"));
            line("epoch", &session.epoch.to_string());
            line(
                "holder",
                &session
                    .holder
                    .map_or_else(|| "nobody".into(), |pid| pid.to_string()),
            );
            line(
                "token file",
                session.token_file.as_deref().unwrap_or("none"),
            );
        }
        match content {
            None => line("contents", "nothing yet"),
            Some(content) => {
                if session.is_none() {
                    line("session", content.session.as_str());
                    line("owner", &owner(&content.owner));
                }
                content_lines(content, &mut line);
            }
        }
        if !streams.is_empty() {
            text.push('\n');
            text.push_str(&listing_or(
                &STREAM_HEADING[2..],
                streams.iter().map(stream_cells),
                "",
            ));
        }
        if !tasks.is_empty() {
            text.push('\n');
            text.push_str(&listing_or(
                &TASK_HEADING[2..],
                tasks.iter().map(task_cells),
                "",
            ));
        }
        text.push('\n');
    }
    paint(HEADING, "Session") + "\n" + &text
}

fn content_lines(content: &ContentInfo, line: &mut impl FnMut(&str, &str)) {
    let style = match content.status {
        Status::Failed { .. } => BAD,
        _ => GOOD,
    };
    line("status", &paint(style, status(&content.status)));
    for part in content.status.parts() {
        line(&format!("  {}", printable(&part.part)), &part_text(part));
    }
    line("bound", if content.bound { "to a caller" } else { "no" });
    line("made", &ago(content.created_ms));
    line("active", &ago(content.active_ms));
    let ends = |at_ms: u64| {
        format!(
            "in {}, if nothing happens",
            duration(at_ms.saturating_sub(now_ms()))
        )
    };
    line(
        "ends",
        &content
            .expires_ms
            .map_or_else(|| "with its owner".into(), ends),
    );
    line("attached", &content.attached.to_string());
    let expires = |at_ms: u64| {
        format!(
            ", the first expires in {}",
            duration(at_ms.saturating_sub(now_ms()))
        )
    };
    let expires = content.state_expires_ms.map_or_else(String::new, expires);
    line(
        "state",
        &format!(
            "{} values, {} bytes{expires}",
            content.state_keys, content.state_bytes
        ),
    );
    line(
        "events",
        &format!(
            "{} of {}, {} bytes",
            content.events, content.last_number, content.event_bytes
        ),
    );
    line("handles", &content.handles.to_string());
}

/// How a part is, since when, and why.
fn part_text(part: &sessions::Part) -> String {
    let since = part.since_ms.map(ago);
    match (part.is, since) {
        (PartState::Initializing, _) => paint(DOUBTFUL, "initializing"),
        (PartState::NotTried, _) => paint(DOUBTFUL, "not tried"),
        (PartState::Ready, None) => paint(GOOD, "ready"),
        (PartState::Ready, Some(since)) => format!("{}, initialized {since}", paint(GOOD, "ready")),
        (PartState::Failed, since) => {
            let since = since.map(|since| format!(" {since}")).unwrap_or_default();
            let code = part.code.as_deref().map(|code| format!(" ({code})"));
            let why = part.message.as_deref().unwrap_or("it did not say why");
            format!(
                "{}{since}{}: {}",
                paint(BAD, "failed"),
                printable(&code.unwrap_or_default()),
                printable(why)
            )
        }
    }
}

fn ago(at_ms: u64) -> String {
    duration(now_ms().saturating_sub(at_ms)) + " ago"
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

const STREAM_HEADING: [&str; 7] = [
    "owner",
    "session",
    "stream",
    "state",
    "last position",
    "events",
    "bytes",
];

fn stream_cells(stream: &StreamInfo) -> Vec<String> {
    let state = match (stream.closed, stream.orphaned) {
        (true, true) => "closed, orphan",
        (true, false) => "closed",
        (false, true) => "orphan",
        (false, false) => "open",
    };
    vec![
        stream.stream.to_string(),
        state.into(),
        stream.last_position.to_string(),
        stream.events.to_string(),
        stream.bytes.to_string(),
    ]
}

pub(super) fn streams_text(streams: &[Part<StreamInfo>]) -> String {
    listing_or(
        &STREAM_HEADING,
        streams.iter().map(|seen| seen.cells(stream_cells)),
        "No streams.",
    )
}

const TASK_HEADING: [&str; 7] = [
    "owner", "session", "task", "status", "created", "changed", "kept for",
];

fn task_cells(task: &TaskInfo) -> Vec<String> {
    vec![
        task.task.to_string(),
        task.status.name().into(),
        ago(task.created_ms),
        ago(task.updated_ms),
        duration(task.until_ms.saturating_sub(now_ms())),
    ]
}

pub(super) fn tasks_text(tasks: &[Part<TaskInfo>]) -> String {
    listing_or(
        &TASK_HEADING,
        tasks.iter().map(|seen| seen.cells(task_cells)),
        "No tasks.",
    )
}

impl<T> Part<T> {
    /// Whose it is, and what these cells say of it.
    fn cells(&self, of: fn(&T) -> Vec<String>) -> Vec<String> {
        [owner(&self.owner), self.session.to_string()]
            .into_iter()
            .chain(of(&self.part))
            .collect()
    }
}
