//! What the daemon stores of a session's server, in the state of the session: the server's own
//! session id, and how far each open stream is.
//!
//! `serve` stores it before it passes on a message that depends on it. Only how far a stream has
//! come is written later, once the daemon has stored the messages up to there: a message that the
//! server repeats because of that has the same number, and is stored once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use mcp_sessiond_client::{Error, Json, Session, SessionError, StateKey, StateWrite};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::numbers::base;

/// The key of what is known of the server. Those of its streams begin with it.
const KEY: &str = "upstream";
/// Values that one call may write.
const WRITES_MAX: usize = 50;
/// The pause before the daemon is asked again that was away.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of a session's server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Where the server is. At another address there is another server.
    #[serde(default)]
    pub(super) url: String,
    /// What tells this server's lines from those of another.
    pub(super) incarnation: String,
    /// Processes that have served the session, this one among them.
    pub(super) process: u16,
    /// The id that the server has given the session, if it has.
    pub(super) session: Option<String>,
    /// The version of MCP that was agreed on.
    pub(super) version: Option<String>,
    /// Whether the server numbers its events.
    #[serde(default)]
    pub(super) numbers: bool,
    /// Whether the server has got `notifications/initialized`.
    #[serde(default)]
    pub(super) ready: bool,
}

/// Where an open stream of the server is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamCursor {
    /// The ids of its calls. None: it is the standalone stream.
    pub(super) calls: Vec<Box<str>>,
    /// The last event that is kept, by which the rest can be had.
    pub(super) event: Option<String>,
    /// The tag of the server's session in which the event has come: in another one it may be
    /// another stream's event.
    #[serde(default)]
    pub(super) within: Option<String>,
    /// Its number.
    pub(super) number: u64,
    /// What that event has said, where it may not be kept yet.
    pub(super) line: Option<String>,
}

#[derive(Debug)]
enum Input {
    /// The stream is such from now on.
    Opened(u64, StreamCursor),
    /// What has this number has come with this event id.
    Reached(u64, String),
    /// Nothing follows on this number.
    Last(u64),
    /// What has this number is kept.
    Confirmed(u64),
    /// The stream is over.
    Over(u64),
}

/// The record of one session.
#[derive(Debug)]
pub(super) struct Ledger {
    session: Session,
    inputs: mpsc::UnboundedSender<Input>,
}

/// What was found on record.
#[derive(Debug)]
pub(super) struct Found {
    /// What is known of the server.
    pub(super) known: Known,
    /// Its streams, by the numbers that stand for them.
    pub(super) places: Vec<(u64, StreamCursor)>,
}

impl Ledger {
    /// The record of this session.
    pub(super) fn of(session: Session) -> Self {
        let (inputs, receiver) = mpsc::unbounded_channel();
        tokio::spawn(follow(session.clone(), receiver));
        Self { session, inputs }
    }

    /// What is on record. None: nothing is.
    ///
    /// # Errors
    /// Those of reading state.
    pub(super) async fn find(&self) -> Result<Option<Found>, SessionError> {
        let mut found = Vec::new();
        let mut known = None;
        for info in self.session.keys().await? {
            match info.key.as_str().strip_prefix(KEY) {
                Some("") => known = self.session.get_as::<Known>(&info.key).await?,
                Some(stream) => {
                    let number = stream
                        .strip_prefix('.')
                        .and_then(|hex| u64::from_str_radix(hex, 16).ok());
                    if let (Some(number), Some(place)) =
                        (number, self.session.get_as(&info.key).await?)
                    {
                        found.push((number, place));
                    }
                }
                None => {}
            }
        }
        Ok(known.map(|known| Found {
            known,
            places: found,
        }))
    }

    /// Stores what is known of the server. False: the daemon refuses it.
    pub(super) async fn know(&self, known: &Known) -> bool {
        keep(
            &self.session,
            vec![(KEY.to_owned(), serde_json::to_string(known).ok())],
        )
        .await
    }

    /// Keeps where a stream begins, or from where on it can be had. Nothing that it has said since
    /// may have been passed on. False: the daemon refuses it.
    pub(super) async fn place(&self, stream: u64, place: StreamCursor) -> bool {
        let _ = self.inputs.send(Input::Opened(stream, place.clone()));
        keep(
            &self.session,
            vec![(key(stream), serde_json::to_string(&place).ok())],
        )
        .await
    }

    /// This stream was found on record.
    pub(super) fn found(&self, stream: u64, place: StreamCursor) {
        let _ = self.inputs.send(Input::Opened(stream, place));
    }

    /// What has this number has come with this event id, and is about to be passed on.
    pub(super) fn reached(&self, number: u64, event: String) {
        let _ = self.inputs.send(Input::Reached(number, event));
    }

    /// What has this number is the last of its stream, and is about to be passed on.
    pub(super) fn last(&self, number: u64) {
        let _ = self.inputs.send(Input::Last(number));
    }

    /// What has this number is kept.
    pub(super) fn confirmed(&self, number: u64) {
        let _ = self.inputs.send(Input::Confirmed(number));
    }

    /// Nobody waits for what the stream would say.
    pub(super) fn over(&self, stream: u64) {
        let _ = self.inputs.send(Input::Over(stream));
    }
}

/// A stream, and what of it is not kept yet.
#[derive(Debug)]
struct Open {
    place: StreamCursor,
    coming: VecDeque<(u64, String)>,
    last: Option<u64>,
}

/// Writes down how far streams have come, several steps at once where the daemon is slow.
async fn follow(session: Session, mut receiver: mpsc::UnboundedReceiver<Input>) {
    let mut streams = HashMap::new();
    while let Some(first) = receiver.recv().await {
        let mut writes = BTreeMap::new();
        let mut next = Some(first);
        while let Some(step) = next {
            take(&mut streams, step, &mut writes);
            next = receiver.try_recv().ok();
        }
        let text = |place: Option<StreamCursor>| {
            place.and_then(|place| serde_json::to_string(&place).ok())
        };
        keep(
            &session,
            writes
                .into_iter()
                .map(|(stream, place)| (key(stream), text(place)))
                .collect(),
        )
        .await;
    }
}

/// Takes a step. What has to be written by it is in `writes`; none of a place: it goes.
fn take(
    streams: &mut HashMap<u64, Open>,
    step: Input,
    writes: &mut BTreeMap<u64, Option<StreamCursor>>,
) {
    match step {
        Input::Opened(stream, place) => {
            streams.insert(
                stream,
                Open {
                    place,
                    coming: VecDeque::new(),
                    last: None,
                },
            );
        }
        Input::Reached(number, event) => {
            if let Some(open) = streams.get_mut(&base(number)) {
                open.coming.push_back((number, event));
            }
        }
        Input::Last(number) => {
            if let Some(open) = streams.get_mut(&base(number)) {
                open.last = Some(number);
            }
        }
        Input::Confirmed(number) => {
            let stream = base(number);
            let Some(open) = streams.get_mut(&stream) else {
                return;
            };
            if open.last == Some(number) {
                streams.remove(&stream);
                writes.insert(stream, None);
                return;
            }
            let kept = open
                .coming
                .iter()
                .take_while(|(coming, _)| *coming <= number)
                .count();
            if let Some((number, event)) = open.coming.drain(..kept).next_back() {
                open.place = StreamCursor {
                    event: Some(event),
                    number,
                    line: None,
                    ..open.place.clone()
                };
                writes.insert(stream, Some(open.place.clone()));
            }
        }
        Input::Over(stream) => {
            if streams.remove(&stream).is_some() {
                writes.insert(stream, None);
            }
        }
    }
}

fn key(stream: u64) -> String {
    format!("{KEY}.{stream:016x}")
}

/// Writes values, for as long as it takes. None of a value: it goes.
async fn keep(session: &Session, values: Vec<(String, Option<String>)>) -> bool {
    let write = |(key, value): (String, Option<String>)| {
        let key: StateKey = key.parse().ok()?;
        Some(StateWrite {
            key,
            value: value.map(Json::trusted),
            expected: None,
            expires_ms: None,
        })
    };
    let writes: Vec<StateWrite> = values.into_iter().filter_map(write).collect();
    for part in writes.chunks(WRITES_MAX) {
        while let Err(error) = session.write(part.to_vec()).await {
            if error.passes() || matches!(error.refusal(), Some(Error::WriteFailed { .. })) {
                sleep(PAUSE).await;
                continue;
            }
            if !error.is_over() {
                let of = session.id();
                crate::stderr::warn(format_args!(
                    "the state of the server of session {of} is not stored, so a kill of `serve` would lose its open calls: {error}"
                ));
            }
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::numbers::Numbers;

    fn place() -> StreamCursor {
        StreamCursor {
            calls: vec!["1".into()],
            ..StreamCursor::default()
        }
    }

    #[test]
    fn a_stream_is_where_all_before_is_kept_and_goes_with_its_last_message() {
        let mut numbers = Numbers::of(1, 1);
        let (stream, first, second, last) = (
            numbers.base(),
            numbers.next(),
            numbers.next(),
            numbers.ours(),
        );
        let mut streams = HashMap::new();
        let mut step = |step| {
            let mut writes = BTreeMap::new();
            take(&mut streams, step, &mut writes);
            writes
                .remove(&stream)
                .map(|place| place.map(|place| (place.number, place.event)))
        };
        assert_eq!(step(Input::Opened(stream, place())), None);
        for number in [first, second] {
            assert_eq!(step(Input::Reached(number, number.to_string())), None);
        }
        assert_eq!(
            step(Input::Confirmed(first)),
            Some(Some((first, Some(first.to_string()))))
        );
        assert_eq!(step(Input::Last(last)), None);
        assert_eq!(
            step(Input::Confirmed(second)),
            Some(Some((second, Some(second.to_string()))))
        );
        assert_eq!(step(Input::Confirmed(last)), Some(None));
        assert_eq!(
            step(Input::Confirmed(last)),
            None,
            "it is not there any more"
        );
    }
}
