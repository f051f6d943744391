//! A client that uses ids again, servers that answer, ask and are killed, processes that are killed
//! before they have stored what they got, and a storage into which not everything fits. What the
//! client must find there is in a book.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mcp_sessiond_jsonrpc::id_prefix::prefixed;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::keep::{Failure, Keep, Next};
use crate::messages::{answered_id, to_server};
use crate::origin::{calls_of, origin, stream_name};
use crate::policy::Policy;
use crate::posted::read_post;

/// What happens next. Numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// The client posts a call by this id, or two calls as a batch.
    Call(u8),
    /// The stream of a call is stored.
    Opened(u8),
    /// The server gets the calls of a stream.
    Sent(u8),
    Cancel(u8),
    /// The server answers; is it small enough to be stored?
    Answer(u8, bool),
    Progress(u8),
    Ask,
    /// The client answers a question.
    AnswerAsk(u8),
    /// What was said first is stored.
    Store,
    Read(u8),
    ReaderGone(u8),
    ServerGone,
    /// The process is killed; does its server go on?
    Killed(bool),
}

impl Step {
    pub(super) fn of(what: u8, which: u8) -> Self {
        match what % 40 {
            0..7 => Self::Call(which),
            7..13 => Self::Opened(which),
            13..18 => Self::Sent(which),
            18..20 => Self::Cancel(which),
            20..25 => Self::Answer(which, !what.is_multiple_of(3)),
            25..27 => Self::Progress(which),
            27 => Self::Ask,
            28 => Self::AnswerAsk(which),
            29..35 => Self::Store,
            35 => Self::Read(which),
            36 => Self::ReaderGone(which),
            37 => Self::ServerGone,
            _ => Self::Killed(!which.is_multiple_of(4)),
        }
    }
}

/// How far the stream of a POST is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Open,
    /// Its server has got its calls.
    Sent,
    /// The client was refused, and nothing was sent.
    Refused,
}

/// A POST of the client, and what is stored for it.
#[derive(Debug)]
struct Post {
    stream: StreamId,
    /// The server for which it was begun.
    incarnation: String,
    ids: Vec<Id>,
    is_batch: bool,
    state: State,
    cancelled: BTreeSet<Id>,
    /// Those that were cancelled before a kill: no process knows that any more.
    forgotten: BTreeSet<Id>,
    /// What was stored: of each event the id that it answers, and the message.
    events: Vec<(Option<Id>, Value)>,
    is_closed: bool,
}

impl Post {
    fn answers(&self, id: &Id) -> Vec<&Value> {
        let of = self
            .events
            .iter()
            .filter(|event| event.0.as_ref() == Some(id));
        of.map(|(_, message)| message).collect()
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Sent) && !self.is_closed
    }
}

#[derive(Debug)]
struct Server {
    incarnation: String,
    /// The calls that it has got and not answered, by the ids that it knows.
    calls: Vec<Id>,
    /// What it has said that is not confirmed, each with its number.
    unconfirmed: VecDeque<(u32, Bytes)>,
    /// Its own questions that are open.
    asked: BTreeSet<u32>,
    said: u32,
}

#[derive(Debug)]
pub(super) struct World {
    session: HttpSession,
    was_killed: bool,
    posts: Vec<Post>,
    server: Option<Server>,
    servers: u32,
    names: u32,
    /// What was said and is not stored yet, each with the number of its line.
    pending: VecDeque<(u32, Effect, bool)>,
    /// What was stored, by incarnation, line and message: it is stored once.
    stored: BTreeSet<(String, u32, u32)>,
    /// Questions that the client has seen, by its id: which server asked, and by which id.
    questions: BTreeMap<String, (String, u32)>,
}

const NOW: Time = Duration::ZERO;
const POLICY: Policy = Policy {
    redirect: false,
    attributes: false,
};

impl Default for World {
    fn default() -> Self {
        let mut world = Self {
            session: HttpSession::new(POLICY, NOW),
            was_killed: false,
            posts: Vec::new(),
            server: None,
            servers: 0,
            names: 0,
            pending: VecDeque::new(),
            stored: BTreeSet::new(),
            questions: BTreeMap::new(),
        };
        world.start();
        world
    }
}

fn pick<T>(of: &[T], which: u8) -> Option<usize> {
    (!of.is_empty()).then(|| usize::from(which) % of.len())
}

fn read(message: &Bytes) -> Value {
    serde_json::from_slice(message).expect("JSON")
}

impl World {
    /// A fresh server.
    fn start(&mut self) {
        self.servers += 1;
        let incarnation = format!("i{}", self.servers);
        self.session.runs(&incarnation);
        self.server = Some(Server {
            incarnation,
            calls: Vec::new(),
            unconfirmed: VecDeque::new(),
            asked: BTreeSet::new(),
            said: 0,
        });
    }

    fn incarnation(&self) -> String {
        let server = self.server.as_ref();
        server.map_or_else(|| "none".into(), |server| server.incarnation.clone())
    }

    fn choose(&self, state: State, which: u8) -> Option<usize> {
        let of = |at: &usize| self.posts[*at].state == state && !self.posts[*at].is_closed;
        let found: Vec<usize> = (0..self.posts.len()).filter(of).collect();
        pick(&found, which).map(|at| found[at])
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Call(which) => self.call(which),
            Step::Opened(which) => self.opened(which),
            Step::Sent(which) => self.send(which),
            Step::Cancel(which) => self.cancel(which),
            Step::Answer(which, fits) => self.answer(which, fits),
            Step::Progress(which) => self.progress(which),
            Step::Ask => self.ask(),
            Step::AnswerAsk(which) => self.answer_ask(which),
            Step::Store => self.store(),
            Step::Read(which) => self.read(which, true),
            Step::ReaderGone(which) => self.read(which, false),
            Step::ServerGone => self.server_gone(),
            Step::Killed(outlives) => self.killed(outlives),
        }
    }

    fn call(&mut self, which: u8) {
        self.names += 1;
        let unique = format!("n{}", self.names).parse().expect("an id");
        let is_batch = which.is_multiple_of(5);
        // Few ids, so that they are used again.
        let first = which % 3;
        let mut ids = vec![Id::from(first.to_string())];
        ids.extend(is_batch.then(|| Id::from(format!("\"{first}\""))));
        let incarnation = self.incarnation();
        let stream = stream_name(&incarnation, is_batch, &unique).expect("a name");
        self.session.begin(stream.clone(), ids.clone(), NOW);
        self.posts.push(Post {
            stream,
            incarnation,
            ids,
            is_batch,
            state: State::Opening,
            cancelled: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            events: Vec::new(),
            is_closed: false,
        });
    }

    fn opened(&mut self, which: u8) {
        let running = self.incarnation();
        let Some(at) = self.choose(State::Opening, which) else {
            return;
        };
        let post = &mut self.posts[at];
        match self.session.opened(&post.stream, &post.incarnation, true) {
            Opened::Open => {
                post.state = State::Open;
                self.session.reads(&post.stream, NOW);
            }
            Opened::ServerGone => {
                assert_ne!(post.incarnation, running, "it runs");
                post.state = State::Refused;
                post.is_closed = true;
            }
            Opened::Ended => panic!("nobody has ended it"),
        }
    }

    fn send(&mut self, which: u8) {
        let Some(at) = self.choose(State::Open, which) else {
            return;
        };
        let post = &mut self.posts[at];
        let stream = post.stream.clone();
        let Some(server) = &mut self.server else {
            panic!("it was answered when its server went");
        };
        assert!(is_for(&stream, &server.incarnation));
        post.state = State::Sent;
        for id in &post.ids {
            if post.cancelled.contains(id) {
                continue;
            }
            let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#);
            let sent = to_server(&call.into(), stream.as_str());
            server.calls.push(read(&sent)["id"].to_string().into());
        }
    }

    fn cancel(&mut self, which: u8) {
        let id = Id::from((which % 3).to_string());
        let Some(cancelled) = self.session.cancelled(&id) else {
            return;
        };
        let is_meant = |post: &Post| post.state != State::Refused && post.ids.contains(&id);
        let newest = self.posts.iter().rposition(is_meant);
        let at = self
            .posts
            .iter()
            .position(|post| post.stream == cancelled.stream);
        // After a kill nobody knows which stream is newer.
        assert!(
            at == newest || self.was_killed,
            "the newest of its id is meant"
        );
        let post = &mut self.posts[at.expect("it was made")];
        assert!(post.cancelled.insert(id), "it was cancelled before");
        // A server may answer all the same.
        if let Some(server) = self.server.as_mut().filter(|_| which.is_multiple_of(2)) {
            server.calls.retain(|call| *call != cancelled.id);
        }
        if cancelled.ends {
            self.pending
                .push_back((0, Effect::Close(cancelled.stream), true));
        }
    }

    /// The server says something.
    fn say(&mut self, message: &Value, fits: bool) {
        let Some(server) = &mut self.server else {
            return;
        };
        server.said += 1;
        let (number, line) = (server.said, Bytes::from(message.to_string()));
        server.unconfirmed.push_back((number, line.clone()));
        self.hear(number, &line, fits);
    }

    fn hear(&mut self, number: u32, line: &Bytes, fits: bool) {
        let incarnation = self.incarnation();
        let effects = self.session.said(line, None, &incarnation);
        for effect in effects {
            self.pending.push_back((number, effect, fits));
        }
    }

    fn answer(&mut self, which: u8, fits: bool) {
        let Some(server) = &mut self.server else {
            return;
        };
        let Some(at) = pick(&server.calls, which) else {
            return;
        };
        let id = server.calls.remove(at);
        let id: Value = serde_json::from_str(&id).expect("JSON");
        let text = "x".repeat(if fits { 1 } else { 500 });
        self.say(
            &json!({"jsonrpc": "2.0", "id": id, "result": {"of": id, "text": text}}),
            fits,
        );
    }

    fn progress(&mut self, which: u8) {
        let Some(server) = &self.server else {
            return;
        };
        let Some(at) = pick(&server.calls, which) else {
            return;
        };
        let token: Value = serde_json::from_str(&server.calls[at]).expect("JSON");
        let params = json!({"progressToken": token, "progress": 1, "of": token});
        let progress =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        self.say(&progress, true);
    }

    fn ask(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        // Each server counts from the beginning.
        let id = u32::try_from(server.asked.len()).expect("few");
        if server.asked.insert(id) {
            self.say(
                &json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}),
                true,
            );
        }
    }

    fn answer_ask(&mut self, which: u8) {
        let ids: Vec<String> = self.questions.keys().cloned().collect();
        let Some(at) = pick(&ids, which) else { return };
        let (asked_by, own) = self.questions.remove(&ids[at]).expect("it was seen");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, ids[at]);
        let (posted, _) = read_post(&answer.into()).expect("JSON-RPC");
        let incarnation = self.incarnation();
        let effects = self.session.posted(&posted[0], &incarnation);
        let Some(server) = self.server.as_mut().filter(|_| incarnation == asked_by) else {
            assert_eq!(effects, [], "another server has asked that");
            return;
        };
        let [Effect::ToServer(line)] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(read(line)["id"], own);
        server.asked.remove(&own);
    }

    fn store(&mut self) {
        let Some((number, effect, fits)) = self.pending.pop_front() else {
            return;
        };
        match effect {
            Effect::Keep(message) => self.keep(number, message, fits),
            Effect::Close(stream) => self.close(&stream),
            Effect::ToServer(_) | Effect::Lost(_) => panic!("it was JSON"),
        }
        let is_last = self.pending.iter().all(|(other, ..)| *other != number);
        if let Some(server) = self.server.as_mut().filter(|_| number > 0 && is_last) {
            server.unconfirmed.retain(|(line, _)| *line != number);
        }
    }

    fn keep(&mut self, number: u32, message: Message, fits: bool) {
        let incarnation = self.incarnation();
        let key = (incarnation.clone(), number, message.nth);
        let stream = message.stream.clone();
        let whole = message.message.clone();
        let mut keep = Keep::new(message.message, message.what.clone(), false);
        if !fits {
            let next = keep.failed(Failure::TooLarge, "too large", true);
            assert_eq!(next, Next::Store, "an answer has something in its place");
        }
        let (stored, ends) = (keep.message().clone(), keep.ends());
        assert_eq!(
            keep.stored().message,
            Some(whole),
            "who waits gets all of it"
        );
        // The daemon stores it once, also if the line comes again.
        if number == 0 || self.stored.insert(key) {
            let value: Value = serde_json::from_str(stored.as_str()).expect("JSON");
            if let Use::Question(own) = &message.what {
                let own = own.parse().expect("a number");
                let asked = (incarnation, own);
                self.questions.insert(value["id"].to_string(), asked);
            }
            let of = self.posts.iter_mut().find(|post| post.stream == stream);
            match of {
                Some(post) => {
                    assert!(!post.is_closed, "{stream} was closed before {value}");
                    check(post, &value);
                    post.events.push((answered_id(&stored), value));
                }
                None => assert_eq!(stream, StreamId::standalone(), "no such stream"),
            }
        }
        if ends {
            self.close(&stream);
        }
    }

    fn close(&mut self, stream: &StreamId) {
        self.session.finished(stream, NOW);
        let mut posts = self.posts.iter_mut();
        let post = posts.find(|post| post.stream == *stream).expect("opened");
        post.is_closed = true;
    }

    fn read(&mut self, which: u8, comes: bool) {
        let Some(at) = pick(&self.posts, which) else {
            return;
        };
        let post = &self.posts[at];
        if !comes {
            self.session.reader_gone(&post.stream, NOW);
        } else if post.state != State::Opening {
            assert_eq!(self.session.reads(&post.stream, NOW), post.is_open());
        }
    }

    fn server_gone(&mut self) {
        let Some(server) = &self.server else { return };
        let effects = self.session.gone(&server.incarnation.clone());
        // What it has said is stored before it counts as gone.
        while !self.pending.is_empty() {
            self.store();
        }
        self.server = None;
        self.pending
            .extend(effects.into_iter().map(|effect| (0, effect, true)));
        while !self.pending.is_empty() {
            self.store();
        }
        self.start();
    }

    /// Another process goes on with what is stored.
    fn killed(&mut self, outlives: bool) {
        self.pending.clear();
        self.was_killed = true;
        self.session = HttpSession::new(POLICY, NOW);
        let mut left = Vec::new();
        for post in self.posts.iter_mut().filter(|post| !post.is_closed) {
            // The client was not answered, and gets no stream.
            if post.state == State::Opening {
                (post.state, post.is_closed) = (State::Refused, true);
                continue;
            }
            post.forgotten.append(&mut post.cancelled);
            let origin = origin(&post.ids, post.is_batch).expect("short");
            let calls = calls_of(&post.stream, &origin).into_iter();
            left.push(Inherited {
                stream: post.stream.clone(),
                calls: calls.filter(|id| post.answers(id).is_empty()).collect(),
                is_whole: true,
            });
        }
        self.session.inherit(left);
        if !outlives {
            self.server = None;
        }
        let open = self.server.as_ref().map(|server| {
            let lines = server.unconfirmed.iter();
            let answered = lines.filter_map(|(_, line)| {
                let message = read(line);
                message.get("result")?;
                Some(Id::from(message["id"].to_string()))
            });
            server.calls.iter().cloned().chain(answered).collect()
        });
        let open: Option<Vec<Id>> = open;
        let incarnation = self.incarnation();
        let (first, rest) = self.session.settle(open.as_deref(), &incarnation, true);
        for effect in first.into_iter().chain(rest) {
            self.pending.push_back((0, effect, true));
        }
        while !self.pending.is_empty() {
            self.store();
        }
        for post in &mut self.posts {
            // What the process had not sent the server never gets.
            if post.state == State::Open {
                assert!(post.is_closed, "nobody would answer it");
            }
        }
        match &self.server {
            None => self.start(),
            Some(server) => {
                self.session.runs(&incarnation);
                let lines: Vec<(u32, Bytes)> = server.unconfirmed.iter().cloned().collect();
                for (number, line) in lines {
                    self.hear(number, &line, true);
                }
            }
        }
    }

    /// Everything that can still come comes.
    pub(super) fn settle(&mut self) {
        for which in 0..=u8::MAX {
            self.opened(which);
            self.send(which);
            self.answer(which, true);
            self.store();
        }
        while let Some(at) = self.choose(State::Opening, 0) {
            self.opened(u8::try_from(at).unwrap_or(0));
        }
        while self.choose(State::Open, 0).is_some() {
            self.send(0);
        }
        while self
            .server
            .as_ref()
            .is_some_and(|server| !server.calls.is_empty())
        {
            self.answer(0, true);
        }
        while !self.pending.is_empty() {
            self.store();
        }
        for post in &self.posts {
            assert!(post.is_closed, "{post:?}");
            for id in &post.ids {
                let answers = post.answers(id).len();
                let wanted = match post.state {
                    State::Refused => 0,
                    _ => usize::from(!post.cancelled.contains(id)),
                };
                assert_eq!(answers, wanted, "{id} of {post:?}");
            }
        }
        assert!(!self.session.has_calls());
    }
}

/// What is stored on a stream belongs there.
fn check(post: &Post, value: &Value) {
    let is_own = |of: &Value| {
        let ids = post.ids.iter();
        let mut named = ids.map(|id| prefixed(post.stream.as_str(), id));
        named.any(|id| *id == *of.to_string())
    };
    if let Some(of) = value.pointer("/result/of").or(value.pointer("/params/of")) {
        assert!(is_own(of), "{value} on {}", post.stream);
    }
    if let Some(id) = value.get("id").filter(|_| value.get("method").is_none()) {
        let id = Id::from(id.to_string());
        assert!(
            post.ids.contains(&id) && post.answers(&id).is_empty(),
            "{value}"
        );
        assert!(!post.cancelled.contains(&id), "nobody wants it: {value}");
    }
    let outcome = value.pointer("/error/data/outcome");
    if outcome.is_some_and(|outcome| outcome == "not_sent") && post.forgotten.is_empty() {
        assert_eq!(post.state, State::Open, "its server has got it: {value}");
    }
}

proptest! {
    #[test]
    fn each_call_gets_one_answer_on_its_own_stream(
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 0..300),
    ) {
        let mut world = World::default();
        for (what, which) in steps {
            world.take(Step::of(what, which));
        }
        world.settle();
    }
}
