//! Streams and events against a naive account of the same rules, over random steps.
//!
//! The account keeps every event that was ever appended. What a replay answers must be a part of
//! it, in order, with everything else told as missing; what is missing must have had a reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcp_sessiond_proto::sessions::{CreateRequest, Lifetimes, SessionRef};
use mcp_sessiond_proto::streams::{
    AppendRequest, Cursor, Event, EventId, Gap, OpenStreamRequest, ReplayRequest, StreamRef,
    WaitRequest,
};
use mcp_sessiond_proto::{Error, Json, SessionId, StreamId};
use proptest::prelude::*;

use super::{Access, Bounds, Clock, Contents};
use crate::config::{Limits, Sessions};
use crate::counters::Meters;
use crate::storage::{Memory, Store};

const STREAMS: usize = 5;

fn limits() -> Limits {
    Limits {
        message_bytes: 400,
        streams: 4,
        events: 40,
        event_bytes: 1_000,
        stream_events: 18,
        stream_event_bytes: 500,
        owner_bytes: usize::MAX,
        total_bytes: usize::MAX,
        ..Limits::default()
    }
}

/// Nothing ends by itself.
fn sessions() -> Sessions {
    Sessions {
        event_age_ms: 0,
        idle_ms: 0,
        absolute_ms: 0,
        grace_ms: 0,
        ..Sessions::default()
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Messages of so many bytes each; 0: a priming event.
    Append {
        stream: usize,
        sizes: Vec<usize>,
        close: bool,
    },
    Open(usize),
    Close(usize),
    Reset,
    /// After the nth event that there ever was, counted from the last.
    ReplayEvent {
        nth: usize,
        most: u32,
    },
    ReplayStream {
        stream: usize,
        most: u32,
    },
    /// After the number that is this part of the last one, in percent.
    ReplayNumber {
        percent: u64,
        most: u32,
    },
    /// In all streams that are there, each after one of its events or from its start.
    Wait {
        seed: usize,
        most: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let most = prop_oneof![1..4_u32, 1..60_u32];
    let size = prop_oneof![2 => Just(0_usize), 6 => 2..20_usize, 2 => 2..300_usize];
    prop_oneof![
        8 => (0..STREAMS, prop::collection::vec(size, 1..6), prop::bool::weighted(0.1))
            .prop_map(|(stream, sizes, close)| Step::Append { stream, sizes, close }),
        1 => (0..STREAMS, 6..18_usize, prop::bool::ANY)
            .prop_map(|(stream, count, close)| Step::Append { stream, sizes: vec![2; count], close }),
        3 => (1..STREAMS).prop_map(Step::Open),
        1 => (1..STREAMS).prop_map(Step::Close),
        1 => prop::bool::weighted(0.3).prop_map(|reset| if reset { Step::Reset } else { Step::Open(1) }),
        3 => (0..60_usize, most.clone()).prop_map(|(nth, most)| Step::ReplayEvent { nth, most }),
        2 => (0..STREAMS, most.clone()).prop_map(|(stream, most)| Step::ReplayStream { stream, most }),
        2 => (0..=100_u64, most.clone()).prop_map(|(percent, most)| Step::ReplayNumber { percent, most }),
        2 => (any::<usize>(), most).prop_map(|(seed, most)| Step::Wait { seed, most }),
    ]
}

/// An event that was appended, as the account has it.
#[derive(Debug, Clone)]
struct AppendedEvent {
    id: EventId,
    stream: StreamId,
    position: u64,
    number: u64,
    /// None: a priming event.
    message: Option<Json>,
    /// Of which stream of that name, of all that there were.
    life: u64,
}

struct World {
    contents: Contents,
    access: Access,
    said: Vec<AppendedEvent>,
    /// The streams that there are: which of that name, and whether it is closed.
    streams: BTreeMap<StreamId, (u64, bool)>,
    lives: u64,
}

/// The first of them is the standalone one.
fn name(stream: usize) -> StreamId {
    if stream == 0 {
        StreamId::standalone()
    } else {
        format!("s{stream}").parse().expect("an id")
    }
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(Clock::manual(1));
        let bounds = Bounds {
            limits: limits(),
            sessions: sessions(),
        };
        let meters = Arc::<Meters>::default();
        let store = Store::over(Arc::new(Memory::default()), meters.clone());
        let contents = Contents::new(store, clock, bounds, meters);
        let access = Access::service(
            &"x".parse().expect("a name"),
            &"s".parse().expect("an id"),
            None,
        );
        let lifetimes = Lifetimes::default();
        let created = contents
            .create(
                &access,
                &CreateRequest {
                    lifetimes,
                    ..CreateRequest::default()
                },
            )
            .await;
        created.expect("created");
        Self {
            contents,
            access,
            said: Vec::new(),
            streams: BTreeMap::new(),
            lives: 0,
        }
    }

    fn of() -> SessionRef {
        let session: SessionId = "s".parse().expect("an id");
        SessionRef {
            session,
            service: None,
            epoch: None,
            caller: None,
        }
    }

    /// The stream of that name is another one from now on.
    fn born(&mut self, stream: StreamId) -> u64 {
        self.lives += 1;
        self.streams.insert(stream, (self.lives, false));
        self.lives
    }

    fn last_number(&self) -> u64 {
        self.said.last().map_or(0, |said| said.number)
    }

    /// What there ever was of a stream that is there.
    fn of_stream(&self, stream: &StreamId) -> Vec<AppendedEvent> {
        let life = self.streams.get(stream).map(|(life, _)| *life);
        self.said
            .iter()
            .filter(|said| Some(said.life) == life)
            .cloned()
            .collect()
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Append {
                stream,
                sizes,
                close,
            } => self.append(name(*stream), sizes, *close).await,
            Step::Open(stream) => self.open(name(*stream)).await,
            Step::Close(stream) => self.close(name(*stream)).await,
            Step::Reset => {
                self.contents
                    .reset(&self.access, None)
                    .await
                    .expect("reset");
                self.streams.clear();
            }
            Step::ReplayEvent { nth, most } => {
                let Some(at) = self.said.len().checked_sub(nth + 1) else {
                    return;
                };
                let said = self.said[at].clone();
                let known = self
                    .streams
                    .get(&said.stream)
                    .is_some_and(|(life, _)| *life == said.life);
                let rest = self.of_stream(&said.stream);
                let rest: Vec<_> = rest
                    .into_iter()
                    .filter(|other| other.position > said.position)
                    .collect();
                let expected = if known {
                    Ok(rest)
                } else {
                    Err(Error::UnknownCursor)
                };
                self.replay(Cursor::Event(said.id), *most, Some(&said.stream), expected)
                    .await;
            }
            Step::ReplayStream { stream, most } => {
                let stream = name(*stream);
                let known = self.streams.contains_key(&stream) || stream == StreamId::standalone();
                let expected = if known {
                    Ok(self.of_stream(&stream))
                } else {
                    Err(Error::UnknownStream)
                };
                self.replay(
                    Cursor::Stream(stream.clone()),
                    *most,
                    Some(&stream),
                    expected,
                )
                .await;
            }
            Step::ReplayNumber { percent, most } => {
                let from = self.last_number() * percent / 100;
                let rest = self
                    .said
                    .iter()
                    .filter(|said| said.number > from)
                    .cloned()
                    .collect();
                self.replay(Cursor::Number(from), *most, None, Ok(rest))
                    .await;
            }
            Step::Wait { seed, most } => self.wait(*seed, *most).await,
        }
        self.count().await;
    }

    async fn open(&mut self, stream: StreamId) {
        let request = OpenStreamRequest {
            of: Self::of(),
            stream: stream.clone(),
            opened_by: None,
            will: None,
        };
        let opened = self
            .contents
            .open_stream(&self.access, &request, None)
            .await;
        match self.streams.get(&stream) {
            Some((_, true)) => assert_eq!(opened, Err(Error::StreamClosed)),
            Some((_, false)) => assert!(opened.is_ok()),
            None => {
                if self.streams.len() >= limits().streams {
                    // The closed one that has been silent for the longest; of several that never
                    // spoke, the first.
                    let closed = self.streams.iter().filter(|(_, (_, closed))| *closed);
                    let silent = closed.min_by_key(|(_, (life, _))| {
                        self.said
                            .iter()
                            .rev()
                            .find(|said| said.life == *life)
                            .map_or(0, |said| said.number)
                    });
                    let Some(retired) = silent.map(|(stream, _)| stream.clone()) else {
                        assert!(matches!(opened, Err(Error::QuotaExceeded { .. })));
                        return;
                    };
                    self.streams.remove(&retired);
                }
                let opened = opened.expect("opened");
                assert_eq!(
                    (opened.last_position, opened.events, opened.cursor),
                    (0, 0, None)
                );
                self.born(stream);
            }
        }
    }

    async fn close(&mut self, stream: StreamId) {
        let request = StreamRef {
            of: Self::of(),
            stream: stream.clone(),
        };
        let closed = self.contents.close_stream(&self.access, &request).await;
        match self.streams.get_mut(&stream) {
            None => assert_eq!(closed, Err(Error::UnknownStream)),
            Some((_, is_closed)) => {
                *is_closed = true;
                assert!(closed.is_ok_and(|stream| stream.closed));
            }
        }
    }

    async fn append(&mut self, stream: StreamId, sizes: &[usize], close: bool) {
        let message = |size: &usize| {
            (*size > 0).then(|| Json::new(format!("\"{}\"", "x".repeat(size - 2))).expect("JSON"))
        };
        let messages: Vec<_> = sizes.iter().map(message).collect();
        let request = AppendRequest {
            of: Self::of(),
            stream: stream.clone(),
            request: None,
            messages: messages.clone(),
            close,
        };
        let appended = self.contents.append(&self.access, &request).await;
        if sizes.iter().any(|size| *size > limits().message_bytes)
            || sizes.iter().sum::<usize>() > limits().stream_event_bytes
        {
            assert!(matches!(appended, Err(Error::QuotaExceeded { .. })));
            return;
        }
        if close && stream == StreamId::standalone() {
            return assert!(matches!(appended, Err(Error::InvalidArgument { .. })));
        }
        let life = match self.streams.get_mut(&stream) {
            Some((_, true)) => return assert_eq!(appended, Err(Error::StreamClosed)),
            Some((life, closed)) => {
                *closed = close;
                *life
            }
            None if stream == StreamId::standalone() => self.born(stream.clone()),
            None => return assert_eq!(appended, Err(Error::UnknownStream)),
        };
        let last = self
            .of_stream(&stream)
            .last()
            .map_or(0, |said| said.position);
        let first = self.last_number() + 1;
        for ((appended, message), at) in appended
            .expect("appended")
            .into_iter()
            .zip(messages)
            .zip(0..)
        {
            assert_eq!(
                (appended.position, appended.number),
                (last + 1 + at, first + at)
            );
            let (position, number) = (appended.position, appended.number);
            self.said.push(AppendedEvent {
                id: appended.id,
                stream: stream.clone(),
                position,
                number,
                message,
                life,
            });
        }
    }

    /// Replays page by page, and compares with what there ever was after the cursor.
    async fn replay(
        &self,
        from: Cursor,
        most: u32,
        stream: Option<&StreamId>,
        expected: Result<Vec<AppendedEvent>, Error>,
    ) {
        let (mut cursor, mut events, mut gaps) = (from, Vec::new(), Vec::new());
        loop {
            let request = ReplayRequest {
                of: Self::of(),
                after: cursor.clone(),
                most: Some(most),
            };
            let page = match self.contents.replay(&self.access, &request).await {
                Ok(page) => page,
                Err(error) => return assert_eq!(Some(error), expected.err()),
            };
            assert!(page.events.len() <= most as usize);
            events.extend(page.events);
            gaps.extend(page.gaps);
            let next = page.next.into_iter().next().expect("a cursor");
            if !page.more {
                break;
            }
            assert_ne!(cursor, next, "there is more, and it does not come to it");
            cursor = next;
        }
        compare(
            &events,
            &gaps,
            stream,
            &expected.expect("a cursor that is unknown"),
        );
    }

    async fn wait(&self, seed: usize, most: u32) {
        let mut after = Vec::new();
        let mut expected = BTreeMap::new();
        for (at, stream) in self.streams.keys().enumerate() {
            let all = self.of_stream(stream);
            let from = seed.rotate_left(7 * at as u32) % (all.len() + 1);
            after.push(match from.checked_sub(1) {
                None => Cursor::Stream(stream.clone()),
                Some(last) => Cursor::Event(all[last].id.clone()),
            });
            expected.insert(stream.clone(), all[from..].to_vec());
        }
        if after.is_empty() {
            return;
        }
        let (mut events, mut gaps) = (Vec::new(), Vec::new());
        loop {
            let request = WaitRequest {
                of: Self::of(),
                after,
                most: Some(most),
                timeout_ms: Some(0),
            };
            let page = self
                .contents
                .wait(&self.access, &request)
                .await
                .expect("waited");
            assert!(
                page.events
                    .windows(2)
                    .all(|two| two[0].number < two[1].number)
            );
            let (done, next) = (!page.more, page.next);
            assert!(
                done || next != request.after,
                "there is more, and it does not come to it"
            );
            events.extend(page.events);
            gaps.extend(page.gaps);
            if done {
                break;
            }
            after = next;
        }
        for (stream, expected) in expected {
            let of: Vec<_> = events
                .iter()
                .filter(|event| event.stream == stream)
                .cloned()
                .collect();
            let gaps: Vec<_> = gaps
                .iter()
                .filter(|gap| gap.stream.as_ref() == Some(&stream))
                .cloned()
                .collect();
            compare(&of, &gaps, Some(&stream), &expected);
        }
    }

    /// The view counts what can be replayed, and it is within the caps.
    async fn count(&self) {
        let seen = self.contents.get(&self.access).await.expect("a session");
        assert!(
            seen.events as usize <= limits().events
                && seen.event_bytes <= limits().event_bytes as u64
        );
        assert_eq!(
            (seen.last_number, seen.streams as usize),
            (self.last_number(), self.streams.len())
        );
        let request = ReplayRequest {
            of: Self::of(),
            after: Cursor::Number(0),
            most: None,
        };
        let all = self
            .contents
            .replay(&self.access, &request)
            .await
            .expect("replayed");
        let bytes: usize = all.events.iter().map(|event| event.message.len()).sum();
        assert_eq!(seen.event_bytes, bytes as u64);
        let missing: u64 = all.gaps.iter().map(|gap| gap.last - gap.first + 1).sum();
        assert_eq!(u64::from(seen.events) + missing, seen.last_number);
        // The last append always stays, unless a reset took it or its stream retired.
        if let Some(last) = self.said.last()
            && self
                .streams
                .get(&last.stream)
                .is_some_and(|(life, _)| *life == last.life)
        {
            assert!(all.gaps.iter().all(|gap| gap.last < last.number));
        }
    }
}

/// What was replayed and what is told as missing are together what there was, each once and in
/// order.
fn compare(events: &[Event], gaps: &[Gap], stream: Option<&StreamId>, expected: &[AppendedEvent]) {
    let mut events = events.iter();
    let mut missing = gaps.iter().flat_map(|gap| {
        assert_eq!(gap.stream.as_ref(), stream);
        gap.first..=gap.last
    });
    let mut next_missing = missing.next();
    for said in expected {
        let here = if stream.is_some() {
            said.position
        } else {
            said.number
        };
        if next_missing == Some(here) {
            next_missing = missing.next();
        } else if let Some(message) = &said.message {
            let event = events
                .next()
                .expect("an event that is neither there nor missing");
            let AppendedEvent {
                id,
                stream,
                position,
                number,
                ..
            } = said.clone();
            assert_eq!(
                *event,
                Event {
                    id,
                    stream,
                    position,
                    number,
                    message: message.clone()
                }
            );
        }
    }
    assert!(
        next_missing.is_none() && events.next().is_none(),
        "more than there was"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_replayed_is_what_was_said(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in &steps {
                world.take(step).await;
            }
        });
    }
}
