//! The subscriptions to what a server of 2026-07-28 says has changed: one to its lists, which also shows
//! that the server behind it is another one, and one to each resource.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use tokio::time::Instant;

use super::between::Out;
use super::{answer, empty, meta};
use crate::call::List;

/// What opens a subscription.
pub(super) const LISTEN: &str = "subscriptions/listen";

/// How long to wait before a subscription that has ended is opened again: at first, and at most. Each
/// pause is twice the one before, unless the subscription has lasted longer.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The subscriptions.
pub(super) struct Subscriptions {
    /// What ids of theirs begin with.
    prefix: String,
    /// The lists whose changes the server tells.
    lists: Vec<List>,
    /// By URI; that to the lists by none.
    all: BTreeMap<Option<String>, Subscription>,
    /// How many were opened.
    opened: u64,
}

struct Subscription {
    state: State,
    /// How long it is not opened again once it has ended.
    pause: Duration,
    /// The host's request for it that is not answered yet.
    asked: Option<Id>,
}

enum State {
    Open {
        id: Id,
        since: Instant,
    },
    /// It is opened again then.
    Paused(Instant),
    /// The server refuses it.
    Refused,
}

/// What the end of a subscription means.
pub(super) struct Ended {
    pub(super) out: Vec<Out>,
    /// The server is another one than that which it was opened at.
    pub(super) is_other: bool,
}

impl Subscriptions {
    /// For a server with these capabilities.
    pub(super) fn new(prefix: String, capabilities: &Object) -> Self {
        let tells = |list: &List| {
            let capability = capabilities.object(list.capability());
            let tells = capability.and_then(|declared| {
                serde_json::from_str::<bool>(declared.get("listChanged")?.get()).ok()
            });
            tells == Some(true)
        };
        Self {
            prefix,
            lists: List::ALL.into_iter().filter(tells).collect(),
            all: BTreeMap::new(),
            opened: 0,
        }
    }

    /// Opens one to a resource, or to the lists, for this request of the host's. Returns its id and its
    /// parameters; none where it is open.
    pub(super) fn open(
        &mut self,
        uri: Option<String>,
        asked: Option<Id>,
        now: Instant,
    ) -> Option<(Id, Object)> {
        let former = self.all.get(&uri);
        let is_open = |former: &Subscription| !matches!(former.state, State::Refused);
        if former.is_some_and(is_open) && asked.is_some() {
            return None;
        }
        let pause = former.map_or(PAUSE, |former| former.pause);
        let mut wanted = Object::default();
        match &uri {
            Some(uri) => wanted.set("resourceSubscriptions", raw(&[uri])),
            None => {
                for list in &self.lists {
                    wanted.set(list.filter_key(), raw(&true));
                }
            }
        }
        let mut params = Object::default();
        params.set("notifications", wanted.write());
        self.opened += 1;
        let id = Id::text(&format!("{}{}", self.prefix, self.opened));
        let state = State::Open {
            id: id.clone(),
            since: now,
        };
        let subscription = Subscription {
            state,
            pause,
            asked,
        };
        self.all.insert(uri, subscription);
        Some((id, params))
    }

    /// The host does not want one to this resource any more. Returns the request that is to be cancelled.
    pub(super) fn close(&mut self, uri: String) -> Option<Id> {
        match self.all.remove(&Some(uri))?.state {
            State::Open { id, .. } => Some(id),
            State::Paused(_) | State::Refused => None,
        }
    }

    /// When one is opened again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pauses = self.all.values().filter_map(|one| match one.state {
            State::Paused(until) => Some(until),
            State::Open { .. } | State::Refused => None,
        });
        pauses.min()
    }

    /// Those whose pause is over.
    pub(super) fn due(&self, now: Instant) -> Vec<Option<String>> {
        let is_due = |one: &Subscription| matches!(one.state, State::Paused(until) if until <= now);
        let due = self.all.iter().filter(|(_, one)| is_due(one));
        due.map(|(uri, _)| uri.clone()).collect()
    }

    /// The server has acknowledged one: what the host is answered.
    pub(super) fn acknowledged(&mut self, params: &Object) -> Option<Out> {
        let of = params.object("_meta")?;
        let of = Id::read(of.get(meta::SUBSCRIPTION)?)?;
        let is_it =
            |one: &&mut Subscription| matches!(&one.state, State::Open { id, .. } if *id == of);
        let asked = self.all.values_mut().find(is_it)?.asked.take()?;
        Some(answer(&asked, Ok(empty())))
    }

    /// The server ends one. What has changed until it is open again was not told, so it may have changed.
    /// None: the answer is another request's.
    pub(super) fn ended(&mut self, of: &Id, outcome: &Outcome, now: Instant) -> Option<Ended> {
        if !of.begins_with(&self.prefix) {
            return None;
        }
        let is_it = |one: &Subscription| matches!(&one.state, State::Open { id, .. } if id == of);
        let mut ended = Ended {
            out: Vec::new(),
            is_other: false,
        };
        let Some((uri, one)) = self.all.iter_mut().find(|(_, one)| is_it(one)) else {
            return Some(ended);
        };
        let uri = uri.clone();
        let is_refused = outcome
            .as_ref()
            .is_err_and(|error| !error.is_not_the_servers());
        if let Some(asked) = one.asked.take() {
            let outcome = outcome.clone().map(|_| empty());
            ended.out.push(answer(&asked, outcome));
        }
        if is_refused {
            one.state = State::Refused;
            return Some(ended);
        }
        ended.is_other = outcome.is_err();
        let State::Open { since, .. } = one.state else {
            return Some(ended);
        };
        if now.duration_since(since) > one.pause {
            one.pause = PAUSE;
        }
        one.state = State::Paused(now + one.pause);
        one.pause = (one.pause * 2).min(PAUSE_MAX);
        let note = |method: &str, params| {
            let method = method.to_owned();
            Out::Host(Message::Notification { method, params }.write())
        };
        match uri {
            Some(uri) => {
                let mut params = Object::default();
                params.set_text("uri", &uri);
                let updated = note("notifications/resources/updated", Some(params.write()));
                ended.out.push(updated);
            }
            None => {
                let lists = self.lists.iter().map(|list| list.changed());
                let lists: BTreeSet<&str> = lists.collect();
                let changed = lists.into_iter().map(|method| note(method, None));
                ended.out.extend(changed);
            }
        }
        Some(ended)
    }
}
