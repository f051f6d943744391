//! Says how the servers of a list are: on standard error which can't be used, and why; to the daemon
//! how all of them are, for `status`, `doctor`, the log and the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mcp_sessiond_bundle::{BackendState, Backends, Bundle as _, BundleState, Failure};
use mcp_sessiond_client::{Connection, Control};
use mcp_sessiond_proto::sessions::{
    Lifetimes, Part, PartState, STATUS_MAX, SessionRef, Status, UpdateRequest,
};
use tokio::sync::watch;

/// How long several servers may take to change before they are told together.
const TELL_PAUSE: Duration = Duration::from_millis(100);

/// The pause after the daemon could not be told.
const RETRY: Duration = Duration::from_secs(5);

/// Letters of a failure that the daemon is told: it shows them in a line of their own.
const MESSAGE_MAX: usize = 200;

/// Prints a line on standard error.
type Print = dyn Fn(&dyn Display) + Send + Sync;

/// Whom the servers of one list are reported to.
pub struct Report {
    daemon: Option<(Control, SessionRef)>,
    /// Whether others use the connection to the daemon, too.
    is_shared: bool,
    print: Box<Print>,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Report(to the daemon: {})", self.daemon.is_some())
    }
}

impl Report {
    /// `daemon`: how to reach it, and the session whose parts the servers are, where there is one.
    pub fn new(
        daemon: Option<(Control, SessionRef)>,
        print: impl Fn(&dyn Display) + Send + Sync + 'static,
    ) -> Self {
        Self {
            daemon,
            is_shared: false,
            print: Box::new(print),
        }
    }

    /// The connection to the daemon is others', too, and stays.
    #[must_use]
    pub fn by_shared_connection(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    /// Goes on until the bundle has ended. The daemon shows parts as long as the connection is open
    /// by which it was told: it stays open while some of them can't be used.
    pub async fn follow(self, backends: Weak<Backends>) {
        let Some(states) = backends.upgrade().map(|backends| backends.states()) else {
            return;
        };
        self.follow_states(&backends, states).await;
        // Of a session that has ended nothing is shown, also where the connection stays.
        drop(self.tell(Status::ready()).await);
    }

    async fn follow_states(&self, backends: &Weak<Backends>, mut states: watch::Receiver<()>) {
        let mut servers = Servers::default();
        while let Some(status) = {
            states.borrow_and_update();
            backends.upgrade().map(|backends| backends.status())
        } {
            if status.status == BundleState::Closed {
                return;
            }
            let mut lines = servers.update(status.backends, now_ms());
            lines.extend(servers.update_lists(status.lists));
            lines.iter().for_each(|line| (self.print)(line));
            let parts = servers.parts();
            let all_are_ready = parts.iter().all(|part| part.is == PartState::Ready);
            let told = self.tell(Status::Ready { parts }).await;
            // Nothing is shown then, so the connection may end.
            let told = if all_are_ready { Told::Nobody } else { told };
            let has_changed = tokio::select! {
                changed = states.changed() => changed,
                () = until_to_tell_again(told), if !all_are_ready => Ok(()),
            };
            if has_changed.is_err() {
                return;
            }
            tokio::time::sleep(TELL_PAUSE).await;
        }
    }

    /// Tells the daemon. Returns the connection by which it was told; none where it could not be.
    async fn tell(&self, status: Status) -> Told {
        let Some((control, of)) = &self.daemon else {
            return Told::Nobody;
        };
        let all_are_ready = status
            .parts()
            .iter()
            .all(|part| part.is == PartState::Ready);
        let by: Arc<Mutex<Option<Connection>>> = Arc::default();
        let told = control.call(|connection, context| {
            let (by, request) = (
                by.clone(),
                UpdateRequest {
                    of: of.clone(),
                    status: Some(status.clone()),
                    metadata: None,
                    lifetimes: Lifetimes::default(),
                },
            );
            async move {
                let updated = connection.update_session(context, request).await;
                *by.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
                updated
            }
        });
        let is_told = told.await.is_ok();
        if all_are_ready && !self.is_shared {
            control.hang_up();
        }
        let by = by.lock().unwrap_or_else(PoisonError::into_inner).take();
        match by.filter(|_| is_told) {
            Some(connection) => Told::By(connection),
            None => Told::Not,
        }
    }
}

/// Whether the daemon was told.
enum Told {
    /// There is no session.
    Nobody,
    /// By this connection.
    By(Connection),
    /// It did not answer.
    Not,
}

/// Waits until the daemon has to be told again.
async fn until_to_tell_again(told: Told) {
    match told {
        Told::Nobody => std::future::pending().await,
        Told::By(connection) => connection.ended().await,
        Told::Not => tokio::time::sleep(RETRY).await,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The servers, as they were seen last.
#[derive(Debug, Default)]
struct Servers {
    /// In the order of the list: the name, the state, and since when it is so.
    seen: Vec<(String, BackendState, u64)>,
    /// What standard error says of those that can't be used.
    said: BTreeMap<String, String>,
    /// What it says is missing of the lists of others.
    lists: Vec<(String, String)>,
}

impl Servers {
    /// This is how they are now. Returns the lines that people have to be told.
    fn update(&mut self, now: Vec<(String, BackendState)>, now_ms: u64) -> Vec<String> {
        let former = std::mem::take(&mut self.seen);
        let names: BTreeSet<&String> = now.iter().map(|(name, _)| name).collect();
        self.said.retain(|name, _| names.contains(name));
        let mut lines = Vec::new();
        for (name, state) in now {
            let was = former.iter().find(|(former, ..)| *former == name);
            let since = match was {
                Some((_, was, since)) if is_same(was, &state) => *since,
                _ => now_ms,
            };
            match &state {
                // What was in use is told of as a loss.
                BackendState::Failed(_)
                    if was.is_some_and(|(_, was, _)| *was == BackendState::Ready) => {}
                BackendState::Failed(failure) => {
                    let why = failure.at_length();
                    if self.said.insert(name.clone(), why.to_owned()).as_deref() != Some(why) {
                        lines.push(format!("{name}: {why}; mcp-sessiond tries again"));
                    }
                }
                BackendState::Ready if self.said.remove(&name).is_some() => {
                    lines.push(format!("{name}: it can be used now"));
                }
                _ => {}
            }
            self.seen.push((name, state, since));
        }
        lines
    }

    /// This is missing of their lists now. Returns the lines that people have to be told.
    fn update_lists(&mut self, now: Vec<(String, String)>) -> Vec<String> {
        let former = std::mem::replace(&mut self.lists, now);
        let new = self.lists.iter().filter(|one| !former.contains(one));
        new.map(|(name, what)| format!("{name}: it {what}"))
            .collect()
    }

    /// Them as parts of a session; as many as a status may have, first those that can't be used.
    fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = self.seen.iter().map(part).collect();
        let size = |parts: &[Part]| {
            serde_json::to_vec(&Status::Ready {
                parts: parts.to_vec(),
            })
            .map_or(usize::MAX, |text| text.len())
        };
        if size(&parts) > STATUS_MAX {
            parts.retain(|part| part.is != PartState::Ready);
        }
        while size(&parts) > STATUS_MAX && parts.pop().is_some() {}
        parts
    }
}

/// Whether it is in the same state, whatever else is said of it.
fn is_same(one: &BackendState, other: &BackendState) -> bool {
    match (one, other) {
        (BackendState::Failed(one), BackendState::Failed(other)) => one.code == other.code,
        (one, other) => one == other,
    }
}

fn part((name, state, since_ms): &(String, BackendState, u64)) -> Part {
    let (is, failure) = match state {
        BackendState::NeverTried => (PartState::NotTried, None),
        BackendState::Initializing => (PartState::Initializing, None),
        BackendState::Ready => (PartState::Ready, None),
        BackendState::Failed(failure) => (PartState::Failed, Some(failure)),
    };
    let message = |failure: &Failure| failure.message.chars().take(MESSAGE_MAX).collect();
    Part {
        part: name.clone(),
        is,
        since_ms: Some(*since_ms),
        code: failure.map(|failure| failure.code.to_string()),
        message: failure.map(message),
    }
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_bundle::FailureCode;

    use super::*;

    fn failed(code: FailureCode, why: &str) -> BackendState {
        BackendState::Failed(Failure::new(code, why))
    }

    #[test]
    fn people_are_told_once_why_a_server_can_t_be_used_and_when_it_can() {
        let mut servers = Servers::default();
        let mut update = |state: BackendState, now_ms| {
            let lines = servers.update(vec![("mail".into(), state)], now_ms);
            (lines, servers.parts().remove(0))
        };
        let (lines, part) = update(BackendState::NeverTried, 1);
        assert_eq!((lines.len(), part.is), (0, PartState::NotTried));
        let (lines, part) = update(BackendState::Initializing, 2);
        assert_eq!((lines.len(), part.since_ms), (0, Some(2)));
        let late = || failed(FailureCode::TimedOut, "it was not ready within 3 s");
        let (lines, part) = update(late(), 3);
        assert_eq!(
            lines,
            ["mail: it was not ready within 3 s; mcp-sessiond tries again"]
        );
        assert_eq!(
            (part.is, part.code.as_deref(), part.since_ms),
            (PartState::Failed, Some("timed_out"), Some(3))
        );
        let (lines, part) = update(late(), 4);
        assert_eq!(
            (lines.len(), part.since_ms),
            (0, Some(3)),
            "it is so since then"
        );
        let (lines, part) = update(BackendState::Ready, 5);
        assert_eq!(lines, ["mail: it can be used now"]);
        assert_eq!(
            (part.is, part.code, part.since_ms),
            (PartState::Ready, None, Some(5))
        );
        let (lines, part) = update(failed(FailureCode::Exited, "it has ended"), 6);
        assert_eq!(
            (lines.len(), part.is),
            (0, PartState::Failed),
            "that is a loss, and told as one"
        );
    }

    #[test]
    fn of_a_missing_program_people_read_where_it_was_looked_for() {
        let mut servers = Servers::default();
        let failure = Failure::not_found("it was not found in PATH=/bin".into());
        let lines = servers.update(vec![("mail".into(), BackendState::Failed(failure))], 1);
        assert_eq!(
            lines,
            ["mail: it was not found in PATH=/bin; mcp-sessiond tries again"]
        );
        let message = servers.parts().remove(0).message;
        assert_eq!(message.as_deref(), Some("it was not found in PATH"));
    }

    #[test]
    fn of_too_many_servers_those_are_told_that_can_t_be_used() {
        let mut servers = Servers::default();
        let name = |number: usize| format!("{number}-{}", "x".repeat(100));
        let mut now: Vec<_> = (0..200)
            .map(|number| (name(number), BackendState::Ready))
            .collect();
        now.push((
            "mail".into(),
            failed(FailureCode::Refused, &"y".repeat(5_000)),
        ));
        servers.update(now, 1);
        let parts = servers.parts();
        assert_eq!((parts.len(), &*parts[0].part), (1, "mail"));
        assert_eq!(
            parts[0].message.as_ref().map(String::len),
            Some(MESSAGE_MAX)
        );
    }
}
