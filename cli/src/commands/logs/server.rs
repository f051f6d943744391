//! What a server writes to its standard error, by its keeper.

use std::path::{Path, PathBuf};

use mcp_sessiond_client::Directory;
use mcp_sessiond_proto::backends::{KeeperReply, KeeperRequest, Written};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proxy::keeper::dial::{DialError, dial};

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::line::{Line, last_of, whole_lines};
use super::{NoLog, PAUSE};
use crate::inventory::Server;

/// What its keeper has of it.
pub(super) struct ServerStderr {
    socket: PathBuf,
    /// Whether more is wanted than what there is.
    goes_on: bool,
    /// How far it was read; none: the keeper can't say what comes next.
    next: Option<u64>,
    /// What has no newline yet.
    rest: String,
    /// The keeper is asked just now. What is waited for may be given up meanwhile, and the answer
    /// is there the next time.
    asking: Option<JoinHandle<Result<Written, DialError>>>,
    /// It is asked again from then on.
    pause: Instant,
}

impl ServerStderr {
    pub(super) fn of(server: &Server, directory: &Directory, goes_on: bool) -> Self {
        let socket = paths::keeper_socket(directory.path(), server.keeper);
        Self {
            socket,
            goes_on,
            next: None,
            rest: String::new(),
            asking: None,
            pause: Instant::now(),
        }
    }

    /// The last lines.
    pub(super) fn last(&mut self, most: usize) -> Result<Vec<Line>, NoLog> {
        let written = match ask_after(&self.socket, 0) {
            Ok(Written { text, next, .. }) => {
                self.next = Some(next);
                text
            }
            Err(error) => return Err(NoLog(error.to_string())),
        };
        self.rest = written;
        let mut lines = whole_lines(&mut self.rest);
        // It may have died of what it has not ended.
        if !self.goes_on && !self.rest.is_empty() {
            lines.push(std::mem::take(&mut self.rest));
        }
        let lines = lines.iter().map(|line| Line::written(line)).collect();
        Ok(last_of(lines, most))
    }

    /// The lines that it writes next.
    pub(super) async fn next(&mut self) -> Option<Vec<Line>> {
        loop {
            let after = self.next?;
            if self.asking.is_none() {
                // Also where this is given up and begun again before the time is over.
                tokio::time::sleep_until(self.pause).await;
                let socket = self.socket.clone();
                self.asking = Some(tokio::task::spawn_blocking(move || {
                    ask_after(&socket, after)
                }));
            }
            let asked = self.asking.as_mut()?.await;
            self.asking = None;
            self.pause = Instant::now() + PAUSE;
            match asked.ok()? {
                Ok(Written { text, next, missed }) => {
                    self.next = Some(next);
                    let mut text = &*text;
                    if missed > 0 {
                        // Two halves would make a line that nobody has written.
                        self.rest = format!(
                            "({missed} bytes are missing here: they came too fast to be kept)\n"
                        );
                        text = text.split_once('\n').map_or("", |(_, whole)| whole);
                    }
                    self.rest += text;
                }
                // It is looked at again: it may be stopped, and go on.
                Err(DialError::Silent) => {}
                Err(_) => {
                    let rest = std::mem::take(&mut self.rest);
                    self.next = None;
                    return (!rest.is_empty()).then(|| vec![Line::written(&rest)]);
                }
            }
            let lines = whole_lines(&mut self.rest);
            if !lines.is_empty() {
                return Some(lines.iter().map(|line| Line::written(line)).collect());
            }
        }
    }
}

fn ask_after(socket: &Path, after: u64) -> Result<Written, DialError> {
    match dial(socket, &KeeperRequest::Errors { after })?.reply {
        KeeperReply::Errors(written) => Ok(written),
        _ => Err(DialError::Answer),
    }
}
