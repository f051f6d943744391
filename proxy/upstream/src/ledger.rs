//! What is kept of the session with a server: the server's own id of it, the handshake, and how far
//! each open stream is.
//!
//! It is kept before a message is passed on that depends on it. Only how far a stream has come is
//! written later, once the messages up to there are confirmed: a message that the server repeats
//! because of that has the same number.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::cookies::Cookies;
use crate::messages::StreamHint;
use crate::news::News;
use crate::numbers::base;
use crate::session_headers::SessionHeaders;

/// The key of what is known of the server. Those of its streams begin with it.
const KEY: &str = "remote";

/// Bytes of one value that are kept. The storage of a session takes 1 MiB
/// (`limits.state_value_bytes`), and what is larger would keep everything else from being written.
const VALUE_MAX: usize = 768 * 1024;

/// The pause before what could not be kept is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What has outlived a process: values by their keys, as a [`SaveState`] got them.
pub type SavedState = BTreeMap<String, String>;

/// Where all of it is kept that has to outlive the process.
pub trait SaveState: fmt::Debug + Send + Sync + 'static {
    /// Keeps these values, by their keys; where there is none, the key goes. Returns once a next
    /// process would find them. Calls come one after the other. False: they can't be kept for now.
    /// They come again then, with what is to be kept next, or after a second.
    fn keep(&self, values: BTreeMap<String, Option<String>>) -> BoxFuture<'_, bool>;

    /// Something that the user should know of. Of a loss this returns once a next process would tell
    /// it, if this one does not: what takes the place of the lost session is kept after that.
    fn tell(&self, news: News) -> BoxFuture<'_, ()> {
        let _ = news;
        Box::pin(std::future::ready(()))
    }
}

/// What is known of the server.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    /// A digest of where it is, and of the headers that say who we are: elsewhere there is another
    /// server, and with other headers perhaps another account.
    pub(super) whose: String,
    /// The user's login that the session was begun with, if it was.
    #[serde(default)]
    pub(super) login: Option<String>,
    /// Tells the numbers of messages from those of another connection.
    #[serde(default)]
    pub(super) incarnation: String,
    /// Processes that have had the session, this one among them.
    pub(super) process: u16,
    /// Sessions that the server has had for ours: tells requests of one from those of another.
    pub(super) sessions: u32,
    /// The id that the server has given the session, if it has.
    pub(super) session: Option<String>,
    /// Its cookies. They may name a login.
    #[serde(default, skip_serializing_if = "Cookies::is_empty")]
    pub(super) cookies: Cookies,
    /// The version of MCP that was agreed on.
    pub(super) version: Option<String>,
    /// Whether the server numbers its events.
    #[serde(default)]
    pub(super) numbers: bool,
    /// Whether the server has got `notifications/initialized`.
    pub(super) ready: bool,
    /// The parameters of the host's `initialize`.
    pub(super) initialize: Option<Box<RawValue>>,
    /// What the server has answered to it last.
    pub(super) result: Option<Box<RawValue>>,
}

impl SessionRecord {
    /// What a request in its session says of that.
    pub(super) fn stamp(&self) -> SessionHeaders {
        SessionHeaders::of(
            self.session.as_deref(),
            self.version.as_deref(),
            self.login.as_deref(),
            &self.cookies,
        )
    }

    /// The same before any session was begun.
    pub(super) fn without_session(self) -> Self {
        Self {
            whose: self.whose,
            incarnation: self.incarnation,
            process: self.process,
            ..Self::default()
        }
    }
}

/// Shows neither the server's id of the session nor what was said.
impl fmt::Debug for SessionRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &Option<Box<RawValue>>| text.as_ref().map(|text| text.get().len());
        formatter
            .debug_struct("SessionRecord")
            .field("process", &self.process)
            .field("sessions", &self.sessions)
            .field("has_session", &self.session.is_some())
            .field("version", &self.version)
            .field("ready", &self.ready)
            .field("initialize_bytes", &length(&self.initialize))
            .field("result_bytes", &length(&self.result))
            .finish_non_exhaustive()
    }
}

/// Where an open stream of the server is.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamCursor {
    /// The ids of its calls. None: it is the standalone stream.
    pub(super) calls: Vec<Box<str>>,
    /// The last event that was confirmed, by which the rest can be had.
    pub(super) event: Option<String>,
    /// The server's session in which it has come: in another one it may be another stream's event.
    #[serde(default)]
    pub(super) within: u32,
    /// Its number.
    pub(super) number: u64,
    /// What that event has said, where it may not be confirmed yet.
    pub(super) line: Option<String>,
}

impl StreamCursor {
    /// Which stream it is, for the host.
    pub(super) fn hint(&self) -> StreamHint {
        self.calls.first().map_or(StreamHint::Standalone, |call| {
            StreamHint::Call(call.clone())
        })
    }
}

/// Shows how long the message is, and not what it says.
impl fmt::Debug for StreamCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StreamCursor")
            .field("calls", &self.calls.len())
            .field("has_event", &self.event.is_some())
            .field("within", &self.within)
            .field("number", &self.number)
            .field("bytes", &self.line.as_ref().map(String::len))
            .finish()
    }
}

#[derive(Debug)]
enum Input {
    /// This is known of the server.
    Session(Box<SessionRecord>),
    /// The stream is such from now on.
    Opened(u64, StreamCursor),
    /// What has this number has come with this event id.
    Reached(u64, String),
    /// Nothing follows on this number.
    Last(u64),
    /// What has this number was passed on for good.
    Confirmed(u64),
    /// The stream is over.
    Over(u64),
    /// Streams of a former process, which nobody follows, are over.
    Forgotten(Vec<u64>),
    /// The session is over, and nothing of it stays.
    Ended,
}

/// A step, and who waits until it is kept.
type QueuedInput = (Input, Option<oneshot::Sender<bool>>);

/// The record of one session.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    steps: mpsc::UnboundedSender<QueuedInput>,
    /// Whether nothing may be done that is not on record.
    must: bool,
}

/// What was found on record.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// What is known of the server.
    pub(super) known: SessionRecord,
    /// Its streams, by the numbers that stand for them.
    pub(super) places: Vec<(u64, StreamCursor)>,
}

/// What a former process has kept. None: nothing that can be read.
pub(super) fn found(kept: &SavedState) -> Option<Record> {
    let known = serde_json::from_str(kept.get(KEY)?).ok()?;
    let place = |(key, value): (&String, &String)| {
        let stream = key.strip_prefix(KEY)?.strip_prefix('.')?;
        Some((
            u64::from_str_radix(stream, 16).ok()?,
            serde_json::from_str(value).ok()?,
        ))
    };
    Some(Record {
        known,
        places: kept.iter().filter_map(place).collect(),
    })
}

impl Ledger {
    /// A record that is kept there. Unless it `must` be, all goes on where it can't be kept, and a
    /// next process finds what was kept last.
    pub(super) fn new(keep: Arc<dyn SaveState>, must: bool) -> Self {
        let (steps, taken) = mpsc::unbounded_channel();
        tokio::spawn(follow(keep, taken));
        Self { steps, must }
    }

    fn say(&self, step: Input) {
        // Whoever does not listen any more has ended with the runtime.
        let _ = self.steps.send((step, None));
    }

    async fn wait_for(&self, step: Input) -> bool {
        let (told, kept) = oneshot::channel();
        let is_kept = self.steps.send((step, Some(told))).is_ok() && kept.await.unwrap_or(false);
        is_kept || !self.must
    }

    /// Keeps what is known of the server. False: it can't be kept.
    pub(super) async fn know(&self, known: SessionRecord) -> bool {
        self.wait_for(Input::Session(Box::new(known))).await
    }

    /// Keeps where a stream begins, or from where on it can be had. Nothing that it has said since
    /// may have been passed on. False: it can't be kept.
    pub(super) async fn place(&self, stream: u64, place: StreamCursor) -> bool {
        self.wait_for(Input::Opened(stream, place)).await
    }

    /// What has this number has come with this event id, and is about to be passed on.
    pub(super) fn reached(&self, number: u64, event: String) {
        self.say(Input::Reached(number, event));
    }

    /// What has this number is the last of its stream, and is about to be passed on.
    pub(super) fn last(&self, number: u64) {
        self.say(Input::Last(number));
    }

    /// What has this number was passed on for good.
    pub(super) fn confirmed(&self, number: u64) {
        self.say(Input::Confirmed(number));
    }

    /// Nobody waits for what the stream would say.
    pub(super) fn over(&self, stream: u64) {
        self.say(Input::Over(stream));
    }

    /// Nobody follows these streams of a former process.
    pub(super) fn forgotten(&self, streams: Vec<u64>) {
        self.say(Input::Forgotten(streams));
    }

    /// The session is over, and its streams with it. Nothing is kept after this.
    pub(super) async fn ended(&self) {
        self.wait_for(Input::Ended).await;
    }
}

/// A stream, and what of it is not confirmed yet.
#[derive(Debug)]
struct Open {
    place: StreamCursor,
    coming: VecDeque<(u64, String)>,
    last: Option<u64>,
}

/// What is to be written: none of a value goes.
type Writes = BTreeMap<String, Option<String>>;

/// Writes down all steps in their order, several at once where that is slow. What could not be kept
/// is written with what follows, so that the record is never older in one part than in another.
async fn follow(keep: Arc<dyn SaveState>, mut taken: mpsc::UnboundedReceiver<QueuedInput>) {
    let mut streams = HashMap::new();
    let mut writes = Writes::new();
    loop {
        let mut next = tokio::select! {
            step = taken.recv() => match step {
                Some(step) => Some(step),
                None => return,
            },
            () = sleep(AGAIN), if !writes.is_empty() => None,
        };
        let (mut waiting, mut is_over) = (Vec::new(), false);
        while let Some((step, told)) = next {
            is_over |= matches!(step, Input::Ended);
            take(&mut streams, step, &mut writes);
            waiting.extend(told);
            next = if is_over { None } else { taken.try_recv().ok() };
        }
        let is_kept = writes.is_empty() || keep.keep(writes.clone()).await;
        if is_kept {
            writes.clear();
        }
        for told in waiting {
            let _ = told.send(is_kept);
        }
        if is_over {
            return;
        }
    }
}

fn take(streams: &mut HashMap<u64, Open>, step: Input, writes: &mut Writes) {
    let mut write = |stream: u64, place: Option<&StreamCursor>| {
        writes.insert(format!("{KEY}.{stream:016x}"), place.and_then(written));
    };
    match step {
        Input::Session(known) => {
            writes.insert(KEY.to_owned(), written(&known));
        }
        Input::Opened(stream, place) => {
            write(stream, Some(&place));
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
                return write(stream, None);
            }
            let kept = open
                .coming
                .iter()
                .take_while(|(coming, _)| *coming <= number)
                .count();
            if let Some((number, event)) = open.coming.drain(..kept).next_back() {
                (open.place.event, open.place.number, open.place.line) =
                    (Some(event), number, None);
                write(stream, Some(&open.place));
            }
        }
        Input::Over(stream) => {
            if streams.remove(&stream).is_some() {
                write(stream, None);
            }
        }
        Input::Forgotten(former) => former.into_iter().for_each(|stream| write(stream, None)),
        Input::Ended => {
            streams.drain().for_each(|(stream, _)| write(stream, None));
            writes.insert(KEY.to_owned(), None);
        }
    }
}

/// As it is kept. None: it is too large.
fn written(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value)
        .ok()
        .filter(|text| text.len() <= VALUE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;

    #[test]
    fn a_stream_is_where_all_before_is_confirmed_and_goes_with_its_last_message() {
        let mut numbers = Numbers::of(1, 1);
        let (stream, first, second, last) = (
            numbers.base(),
            numbers.next(),
            numbers.next(),
            numbers.ours(),
        );
        let mut streams = HashMap::new();
        let mut step = |step| {
            let mut writes = Writes::new();
            take(&mut streams, step, &mut writes);
            writes.into_values().next().map(|value| {
                let place: Option<StreamCursor> =
                    value.map(|text| serde_json::from_str(&text).expect("a place"));
                place.map(|place| (place.number, place.event))
            })
        };
        let place = StreamCursor {
            calls: vec!["1".into()],
            number: stream,
            ..StreamCursor::default()
        };
        assert_eq!(
            step(Input::Opened(stream, place)),
            Some(Some((stream, None)))
        );
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

    /// Keeps nothing the first time.
    #[derive(Debug, Default)]
    struct Failing(std::sync::Mutex<Vec<Writes>>);

    impl SaveState for Failing {
        fn keep(&self, values: Writes) -> BoxFuture<'_, bool> {
            let mut all = self.0.lock().expect("sound");
            all.push(values);
            Box::pin(std::future::ready(all.len() > 1))
        }
    }

    #[tokio::test]
    async fn what_could_not_be_kept_is_kept_with_what_follows() {
        let keep = Arc::new(Failing::default());
        let ledger = Ledger::new(keep.clone(), true);
        assert!(
            !ledger.know(SessionRecord::default()).await,
            "it is not kept"
        );
        assert!(ledger.place(5, StreamCursor::default()).await);
        let all = keep.0.lock().expect("sound");
        assert_eq!(
            all[1].keys().collect::<Vec<_>>(),
            ["remote", "remote.0000000000000005"]
        );
    }

    #[tokio::test]
    async fn a_session_that_has_ended_leaves_nothing_and_keeps_nothing() {
        let keep = Arc::new(Failing::default());
        let ledger = Ledger::new(keep.clone(), false);
        assert!(ledger.know(SessionRecord::default()).await, "all goes on");
        ledger.place(5, StreamCursor::default()).await;
        ledger.forgotten(vec![4]);
        ledger.ended().await;
        ledger.know(SessionRecord::default()).await;
        let all = keep.0.lock().expect("sound");
        let last = all.last().expect("some");
        assert!(
            last.len() >= 2 && last.values().all(Option::is_none),
            "{last:?}"
        );
    }

    #[test]
    fn what_was_kept_is_found() {
        let mut writes = Writes::new();
        let known = SessionRecord {
            whose: "w".into(),
            process: 3,
            session: Some("s".into()),
            ..SessionRecord::default()
        };
        take(
            &mut HashMap::new(),
            Input::Session(Box::new(known)),
            &mut writes,
        );
        let place = StreamCursor {
            event: Some("e".into()),
            number: 7,
            ..StreamCursor::default()
        };
        take(
            &mut HashMap::new(),
            Input::Opened(5, place.clone()),
            &mut writes,
        );
        let mut kept: SavedState = writes
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        kept.insert("other".into(), "{}".into());
        let found = found(&kept).expect("it is there");
        assert_eq!(
            (found.known.process, found.known.session.as_deref()),
            (3, Some("s"))
        );
        assert_eq!(found.places, [(5, place)]);
        assert!(super::found(&SavedState::new()).is_none());
    }
}
