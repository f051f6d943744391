//! The handshake with a server, and how it is said again to one that has forgotten it.

use std::cell::OnceCell;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_client::Json;
use mcp_sessiond_jsonrpc::id::normal;
use mcp_sessiond_jsonrpc::message::Line;
use mcp_sessiond_relay::verdict::Verdict;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::link::{Link, NewSession};
use super::wire::{Replied, Reply, Stamp};
use crate::messages::{
    Id, answered_ids, not_started, outcome_unknown, refused_upstream, unknown_because,
};

/// How long the handshake may take that is said again.
const WAIT: Duration = Duration::from_secs(30);

/// The id of `initialize` where it is said again.
const ID: &str = r#""mcp-sessiond-serve-initialize""#;

/// What tells clients that a server has other things than before.
const LISTS: [&str; 3] = ["tools", "resources", "prompts"];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chosen {
    protocol_version: Option<String>,
    #[serde(default)]
    capabilities: Value,
}

/// What came of `initialize`.
#[derive(Debug)]
struct Initialized {
    /// All that the server has said up to its answer, and that.
    lines: Vec<Bytes>,
    /// None: the server has refused.
    session: Option<NewSession>,
}

impl Link {
    /// Says the client's `initialize`, and passes on what comes back.
    pub(super) async fn begin(&self, id: Id, line: Bytes) {
        let mut numbers = self.numbers();
        match self.initialize_at(&id, line).await {
            Ok(Initialized { lines, session }) => {
                if let Some(session) = session {
                    self.has_session(session, false).await;
                }
                for line in lines {
                    self.emit(numbers.next(), line).await;
                }
            }
            Err(error) => self.emit(numbers.ours(), error.as_str().to_owned()).await,
        }
    }

    /// The server has forgotten the session of this generation: says the handshake again that is on
    /// record.
    ///
    /// # Errors
    /// One sentence, where the server does not take it.
    pub(super) async fn renew(&self, generation: u64) -> Result<(), String> {
        let _one = self.initializing.lock().await;
        if self.stamp().1 != generation {
            return Ok(());
        }
        let renewed = async {
            let params = self.initialize().ok_or("no handshake is on record")?;
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"initialize","params":{params}}}"#);
            let answer = self
                .initialize_at(ID, line.into())
                .await
                .map_err(|error| error.as_str().to_owned())?;
            let session = answer
                .session
                .ok_or("it has refused the handshake that is on record")?;
            let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            let connected = self.connect().await.map_err(|error| error.to_string())?;
            connected
                .post(initialized.into(), &session.stamp())
                .await
                .map_err(|_| "it has hung up")?;
            let capabilities = session.capabilities.clone();
            // Only now: a server may refuse what comes before `notifications/initialized`.
            self.has_session(session, true).await;
            Ok::<_, String>(capabilities)
        };
        let capabilities = match timeout(WAIT, renewed).await {
            Ok(Ok(capabilities)) => capabilities,
            Ok(Err(why)) => {
                return Err(format!(
                    "the server at {} has forgotten a session: {why}",
                    self.url
                ));
            }
            Err(_) => {
                return Err(format!(
                    "the server at {} does not answer `initialize`",
                    self.url
                ));
            }
        };
        let mut numbers = self.numbers();
        for list in LISTS
            .into_iter()
            .filter(|list| capabilities[list]["listChanged"] == true)
        {
            let line =
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#);
            self.emit(numbers.ours(), line).await;
        }
        Ok(())
    }

    /// Says `initialize`.
    async fn initialize_at(&self, id: &str, line: Bytes) -> Result<Initialized, Json> {
        let connected = self.connect().await.map_err(|_| not_started(id))?;
        let replied = connected.post(line, &Stamp::default()).await;
        let Replied { reply, session } = replied.map_err(|_| outcome_unknown(id))?;
        let (mut lines, mut numbers) = (Vec::new(), false);
        match reply {
            Reply::Message(text) => lines.push(text),
            Reply::Events(mut events) => {
                while let Some(event) = events.next().await {
                    numbers |= event.id.is_some();
                    if event.data.is_empty() || !event.is_message {
                        continue;
                    }
                    let line = Bytes::from(event.data.replace(['\n', '\r'], " "));
                    let is_it = is_answer(&line, id);
                    lines.push(line);
                    if is_it {
                        break;
                    }
                }
            }
            // The server's own error.
            Reply::Refused(why) if why.refusal().verdict(Some(id), false) == Verdict::Answer => {
                lines.push(why.body);
            }
            Reply::Refused(why) => return Err(refused_upstream(id, why.status, &why.sentence())),
            Reply::Taken(taken) => return Err(unknown_because(id, &taken.sentence())),
        }
        let answer = lines
            .last()
            .filter(|line| is_answer(line, id))
            .ok_or_else(|| outcome_unknown(id))?;
        let copy = OnceCell::new();
        let chosen = Line::of(answer, &copy)
            .message()
            .and_then(|answer| answer.result()?.object());
        let session = chosen.map(
            |Chosen {
                 protocol_version,
                 capabilities,
             }| NewSession {
                id: session.and_then(|session| Some(session.to_str().ok()?.to_owned())),
                version: protocol_version,
                numbers,
                capabilities,
            },
        );
        Ok(Initialized { lines, session })
    }
}

fn is_answer(line: &Bytes, to: &str) -> bool {
    answered_ids(line).iter().any(|id| normal(id) == normal(to))
}
