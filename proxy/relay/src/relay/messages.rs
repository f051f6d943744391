//! What becomes of each message: those of the host, those of the backend, and the backend's
//! requests.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::Edits;
use mcp_sessiond_jsonrpc::Unreadable;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::id::number;
use mcp_sessiond_jsonrpc::message::{Kind, LISTEN, Line, Message, Part};

use super::era::PROBE;
use super::life::Life;
use super::losses::CALL;
use super::queue::{Requires, ToBackend, ToFront};
use super::{Ask, Call, Purpose, Relay, count};
use crate::Millis;
use crate::entry::{Entry, Verdict, translate};
use crate::numbers::{AnswerInfo, Numbers, Open, display_method};
use crate::version::Capability;

/// The request of a backend for its host's folders.
pub(super) const ROOTS: &str = "roots/list";

/// How long a call or an ask that was cancelled is remembered, in ms: the answer may come all the
/// same.
const CANCELLED_MS: u64 = 10 * 60 * 1000;

/// What the host sends.
impl Relay {
    /// The front has sent a line.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller is done with the line, which is kept"
    )]
    pub fn from_front(&mut self, line: Bytes, now: Millis) {
        if self.front.is_none() {
            return;
        }
        let copy = OnceCell::new();
        let read = Line::of(&line, &copy);
        let entry = translate(
            &line,
            &read,
            || ToBackend::Other,
            |message| self.front_message(message, now),
        );
        read.unreadable()
            .for_each(|unreadable| self.unreadable_from_front(unreadable));
        let Some(entry) = entry else { return };
        if matches!(self.life, Life::Stopping) {
            self.counts.dropped += 1;
            return;
        }
        if entry
            .parts
            .iter()
            .any(|(_, part)| matches!(part, ToBackend::Other))
        {
            self.note_use();
            if let Some(front) = &mut self.front {
                front.unparsed += 1;
            }
        }
        self.to_backend.push(entry);
        self.wake(now);
    }

    fn front_message(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToBackend> {
        let is_refused = self.is_refused_after_loss(&message.kind, now);
        if !is_refused && is_use(&message.kind) {
            self.note_use();
        }
        if let Some(front) = &mut self.front {
            front.tried |=
                !matches!(&message.kind, Kind::Request { method, .. } if only_asks(method));
            front.called |= matches!(
                &message.kind,
                Kind::Request { method, .. } if !only_asks(method) && method != "initialize"
            );
        }
        if is_refused {
            if let Some(front) = &mut self.front {
                front.ready = true;
            }
            return None;
        }
        match &message.kind {
            Kind::Request { id, method } => self.front_request(message, id, method, now),
            Kind::Notification { method } => match &**method {
                "notifications/initialized" => self.host_initialized(now),
                "notifications/cancelled" => self.host_cancels(message, now),
                "notifications/progress" => self.host_progress(message),
                _ => Some((Edits::default(), ToBackend::Notice)),
            },
            Kind::Answer { id, .. } => self.host_answers(message, id, now),
        }
    }

    fn front_request(
        &mut self,
        message: &Message<'_>,
        id: &str,
        method: &str,
        now: Millis,
    ) -> Verdict<ToBackend> {
        if !message.has_clear_token() {
            self.counts.dropped += 1;
            self.tell_front(answers::unclear_token(id));
            return None;
        }
        if method == "initialize" {
            self.host_initialize(message, id, now);
            return None;
        }
        if !only_asks(method)
            && let Some(front) = &mut self.front
        {
            front.ready = true;
        }
        self.ask_for_roots(now);
        // A server that has ended is started again for whoever wants more of it.
        if method == "ping" && self.rests() {
            self.tell_front(answers::empty_result(id));
            return None;
        }
        if let Some(why) = self.refusal(now) {
            self.tell_front(answers::not_sent(id, &why));
            return None;
        }
        if method == PROBE && !self.host_probes(message, id, now) {
            return None;
        }
        let (edits, number) = self.take_call(message, id, method, Purpose::Plain, now);
        self.note_habit(method, message, &edits);
        if !only_looks(method) {
            self.note_waiting_call(now);
        }
        Some((edits, ToBackend::Call(number)))
    }

    /// Gives a call of the host its number.
    pub(super) fn take_call(
        &mut self,
        message: &Message<'_>,
        id: &str,
        method: &str,
        purpose: Purpose,
        now: Millis,
    ) -> (Edits, u64) {
        let number = self.calls.numbers.take(id);
        let text = number.to_string();
        let mut edits = Edits::default();
        if let Some(token) = message.asked_progress() {
            let open = &self.calls.open;
            self.calls
                .tokens
                .insert(number, token, |of| open.contains_key(&of));
            edits.replace(message, token, text.clone());
        }
        edits.replace(message, id, text);
        let call = Open {
            id: id.into(),
            method: display_method(method),
            asker: self.connections,
            made: now,
            cancelled: None,
            kind: Call {
                purpose,
                sent: false,
            },
        };
        self.calls.open.insert(number, call);
        (edits, number)
    }

    fn host_cancels(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToBackend> {
        let connection = self.connections;
        if let Some(id) = message.cancelled() {
            self.losses.cancel_refused(id);
        }
        let found = message.cancelled().and_then(|id| {
            let mut calls = self.calls.open.iter_mut().rev();
            let (number, call) = calls.find(|(_, call)| {
                call.asker == connection && !call.kind.ours() && *call.id == *id
            })?;
            call.cancelled = Some(now);
            Some((id, *number))
        });
        let Some((id, number)) = found else {
            self.counts.dropped += 1;
            return None;
        };
        let mut edits = Edits::default();
        edits.replace(message, id, number.to_string());
        Some((edits, ToBackend::Cancel(number)))
    }

    fn host_progress(&mut self, message: &Message<'_>) -> Verdict<ToBackend> {
        let token = message.progress();
        let mut edits = Edits::default();
        match token
            .and_then(number)
            .and_then(|number| self.asks.tokens.get(number))
        {
            Some(original) => edits.replace(message, token?, original),
            None => {
                self.counts.dropped += 1;
                return None;
            }
        }
        Some((edits, ToBackend::Answer))
    }

    fn host_answers(&mut self, message: &Message<'_>, id: &str, now: Millis) -> Verdict<ToBackend> {
        let mut edits = Edits::default();
        // An error without an id is about what was not JSON-RPC.
        if id != "null" {
            if number(id).is_some_and(|number| self.takes_roots(number, message, now)) {
                return None;
            }
            let connection = Some(self.connections);
            let asked = number(id).filter(|number| {
                self.asks
                    .open
                    .get(number)
                    .is_some_and(|ask| ask.kind.handed == connection)
            });
            let Some(ask) = asked.and_then(|number| self.asks.open.remove(&number)) else {
                self.counts.dropped += 1;
                return None;
            };
            if &*ask.method == ROOTS && self.host_gives_roots(message, now) {
                return None;
            }
            edits.replace(message, id, ask.id);
        }
        Some((edits, ToBackend::Answer))
    }

    /// The host has sent what can't be read, though it has an id.
    pub(super) fn unreadable_from_front(&mut self, unreadable: &Unreadable) {
        self.counts.dropped += 1;
        let Unreadable {
            id,
            request,
            answer,
            ..
        } = unreadable;
        let connection = self.connections;
        let asked = id.as_deref().and_then(number).filter(|number| {
            self.asks
                .open
                .get(number)
                .is_some_and(|ask| ask.kind.handed == Some(connection))
        });
        match asked {
            Some(asked) if !request => self.fail_ask(asked, answers::UNREADABLE_ANSWER),
            _ if *answer && !request => {}
            _ => {
                // A call that was made under this id has not failed.
                let id = id.as_deref().filter(|id| {
                    let mut calls = self.calls.open.values();
                    !calls.any(|call| call.asker == connection && *call.id == **id)
                });
                self.tell_front(answers::unreadable(id.unwrap_or("null")));
            }
        }
    }

    /// The front has sent a line that is too large, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_front(&mut self, head: &[u8], tail: &[u8], now: Millis) {
        self.counts.dropped += 1;
        let Unreadable {
            id,
            request,
            answer,
            ..
        } = Unreadable::of_ends(head, tail);
        if answer && !request {
            let connection = Some(self.connections);
            let asked = id.as_deref().and_then(number).filter(|number| {
                self.asks
                    .open
                    .get(number)
                    .is_some_and(|ask| ask.kind.handed == connection)
            });
            if let Some(asked) = asked {
                self.fail_ask(asked, answers::OVERSIZED_ANSWER);
            }
            return;
        }
        self.tell_front(answers::too_large(id.as_deref().unwrap_or("null")));
        self.wake(now);
    }
}

/// What the backend sends.
impl Relay {
    /// The backend has sent a line.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller is done with the line, which is kept"
    )]
    pub fn from_backend(&mut self, line: Bytes, now: Millis) {
        count(&mut self.counts.from_backend, line.len());
        if !matches!(self.life, Life::Running { .. } | Life::Stopping) {
            self.counts.dropped += 1;
            return;
        }
        self.heard = true;
        self.era_hears();
        self.on_backend_output(now);
        self.receive(&line, now);
        self.drain(now);
    }

    /// What the backend has written before it ended, without a newline behind it. It counts if it
    /// is whole: of half an answer nobody can tell what it was going to say.
    pub fn last_from_backend(&mut self, line: Bytes, now: Millis) {
        let copy = OnceCell::new();
        let is_whole = match Line::of(&line, &copy) {
            Line::Blank => return,
            Line::One(part) => matches!(part, Part::Message(_)),
            Line::Batch(parts) => parts
                .iter()
                .all(|(_, part)| matches!(part, Part::Message(_))),
        };
        if is_whole {
            self.from_backend(line, now);
        } else {
            count(&mut self.counts.from_backend, line.len());
            self.counts.dropped += 1;
        }
    }

    /// Takes a line as the backend's, or in its place.
    pub(super) fn receive(&mut self, line: &Bytes, now: Millis) {
        let copy = OnceCell::new();
        let read = Line::of(line, &copy);
        let entry = translate(
            line,
            &read,
            || ToFront::Notice,
            |message| self.backend_message(message, now),
        );
        if let Some(entry) = entry {
            self.queue_for_front(entry);
        }
        read.unreadable()
            .for_each(|unreadable| self.unreadable_from_backend(unreadable, now));
    }

    fn queue_for_front(&mut self, entry: Entry<ToFront>) {
        let front = self.front.as_ref();
        if entry.parts.len() == 1
            || front.is_some_and(|front| entry.requires() & !front.meets() == 0)
        {
            self.to_front.push(entry);
            return;
        }
        // Parts of a batch that wait for different things wait on their own.
        let (answers, rest) =
            entry.split(|part| matches!(part, ToFront::Answer(_) | ToFront::Ours));
        let (mut asks, notices) = rest.map_or((None, None), |rest| {
            rest.split(|part| matches!(part, ToFront::Ask(..)))
        });
        for entry in [answers, notices].into_iter().flatten() {
            self.to_front.push(entry);
        }
        while let Some(entry) = asks {
            let mut first = true;
            let (one, more) = entry.split(|_| core::mem::take(&mut first));
            one.into_iter().for_each(|one| self.to_front.push(one));
            asks = more;
        }
    }

    fn backend_message(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToFront> {
        match &message.kind {
            Kind::Request { id, method } => self.backend_asks(message, id, method, now),
            Kind::Notification { method } => match &**method {
                "notifications/cancelled" => self.backend_cancels(message, now),
                "notifications/progress" => self.backend_progress(message),
                _ => self.backend_notifies(message),
            },
            Kind::Answer { id, failed } => self.backend_answers(message, id, *failed, now),
        }
    }

    fn backend_answers(
        &mut self,
        message: &Message<'_>,
        id: &str,
        failed: bool,
        now: Millis,
    ) -> Verdict<ToFront> {
        if id == "null" {
            return self.backend_could_not_read();
        }
        if number(id).is_some_and(Numbers::is_ping) {
            self.on_own_pong();
            return None;
        }
        let sent = number(id)
            .filter(|number| {
                self.calls
                    .open
                    .get(number)
                    .is_some_and(|call| call.kind.sent)
            })
            .and_then(|number| self.calls.open.remove(&number));
        let Some(call) = sent else {
            self.counts.dropped += 1;
            return None;
        };
        match call.kind.purpose {
            Purpose::Plain if &*call.method == "ping" => self.on_pong(),
            Purpose::Plain => {
                if !failed && &*call.method == CALL {
                    self.note_answered_call(message);
                }
                let asked = number(id).unwrap_or_default();
                self.era_answers(asked, &call.method, message, failed, call.asker);
            }
            Purpose::Initialize => {
                if self.initialize_answered(message, failed, now) {
                    return None;
                }
            }
            Purpose::Revive => {
                self.revival_answered(message, failed, now);
                return None;
            }
            Purpose::Replay => return None,
        }
        self.deliver_answer(&call, message, id, failed, now)
    }

    /// Hands an answer to whoever asked, if that is still there.
    fn deliver_answer(
        &mut self,
        call: &Open<Call>,
        message: &Message<'_>,
        id: &str,
        failed: bool,
        now: Millis,
    ) -> Verdict<ToFront> {
        let answer = AnswerInfo {
            method: call.method.clone(),
            came: now,
            took: now.saturating_sub(call.made),
            bytes: message.raw.len(),
            failed,
        };
        if !self.is_current(call.asker) {
            self.park(answer);
            return None;
        }
        let mut edits = Edits::default();
        edits.replace(message, id, call.id.clone());
        if call.kind.purpose == Purpose::Initialize {
            self.declare_lists(message, &mut edits);
        }
        if let Some(listen) = (&*call.method == LISTEN)
            .then(|| message.answered_subscription())
            .flatten()
        {
            edits.replace(message, listen, call.id.clone());
        }
        Some((edits, ToFront::Answer(answer)))
    }

    /// The backend could not read something. That goes to the front that may have sent it.
    fn backend_could_not_read(&mut self) -> Verdict<ToFront> {
        match &mut self.front {
            Some(front) if front.unparsed > 0 => {
                front.unparsed -= 1;
                Some((Edits::default(), ToFront::Ours))
            }
            _ => {
                self.counts.dropped += 1;
                None
            }
        }
    }

    fn backend_progress(&mut self, message: &Message<'_>) -> Verdict<ToFront> {
        let token = message.progress();
        let mut edits = Edits::default();
        match token
            .and_then(number)
            .and_then(|number| self.calls.tokens.get(number))
        {
            Some(original) => edits.replace(message, token?, original),
            None => {
                self.counts.dropped += 1;
                return None;
            }
        }
        Some((edits, ToFront::Bound))
    }

    fn backend_notifies(&mut self, message: &Message<'_>) -> Verdict<ToFront> {
        let listen = message.subscription();
        let Some((id, number)) = listen.and_then(|id| Some((id, number(id)?))) else {
            return Some((Edits::default(), ToFront::Notice));
        };
        let Some(call) = self
            .calls
            .open
            .get(&number)
            .filter(|call| self.is_current(call.asker))
        else {
            self.counts.dropped += 1;
            return None;
        };
        let mut edits = Edits::default();
        edits.replace(message, id, call.id.clone());
        Some((edits, ToFront::Bound))
    }

    /// The backend has sent what can't be read, though it has an id: if that is a call's, the call
    /// has failed.
    pub(super) fn unreadable_from_backend(&mut self, unreadable: &Unreadable, now: Millis) {
        self.counts.dropped += 1;
        let Unreadable {
            id: Some(id),
            request,
            answer,
            ..
        } = unreadable
        else {
            return;
        };
        if *request && !answer {
            self.lane.push_back(answers::unreadable(id));
        } else if number(id).is_some_and(|number| {
            self.calls
                .open
                .get(&number)
                .is_some_and(|call| call.kind.sent)
        }) {
            // It is treated like an error that the backend itself has sent.
            self.receive(
                &answers::not_kept(id, answers::UNREADABLE_SERVER_ANSWER),
                now,
            );
        }
    }

    /// The backend has sent a line that is too large, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_backend(&mut self, head: &[u8], tail: &[u8], now: Millis) {
        self.counts.dropped += 1;
        self.on_backend_output(now);
        self.say("a message of the server is larger than `wrap.message_max_mib` allows and was not relayed");
        let Unreadable {
            id: Some(id),
            request,
            ..
        } = Unreadable::of_ends(head, tail)
        else {
            return;
        };
        if request {
            self.lane.push_back(answers::too_large(&id));
            return;
        }
        if number(&id).is_some_and(|number| {
            self.calls
                .open
                .get(&number)
                .is_some_and(|call| call.kind.sent)
        }) {
            // It goes the way that an error of the backend's own would go.
            self.receive(
                &answers::not_kept(&id, answers::OVERSIZED_SERVER_ANSWER),
                now,
            );
        }
    }
}

/// Requests of the backend.
impl Relay {
    pub(super) fn backend_asks(
        &mut self,
        message: &Message<'_>,
        id: &str,
        method: &str,
        now: Millis,
    ) -> Verdict<ToFront> {
        // While we initialise it, we are its client.
        if method == "ping" && self.handshake.revive {
            self.lane.push_back(answers::empty_result(id));
            return None;
        }
        if method == ROOTS {
            self.roots.note_question();
        }
        let number = self.asks.numbers.take(id);
        let text = number.to_string();
        let mut edits = Edits::default();
        if let Some(token) = message.asked_progress() {
            let open = &self.asks.open;
            self.asks
                .tokens
                .insert(number, token, |of| open.contains_key(&of));
            edits.replace(message, token, text.clone());
        }
        edits.replace(message, id, text);
        let ask = Open {
            id: id.into(),
            method: display_method(method),
            asker: self.incarnation,
            made: now,
            cancelled: None,
            kind: Ask { handed: None },
        };
        self.asks.open.insert(number, ask);
        let need = match method {
            "sampling/createMessage" => Some(Capability::Sampling),
            "elicitation/create" => Some(Capability::Elicitation),
            ROOTS => Some(Capability::Roots),
            _ => None,
        };
        Some((edits, ToFront::Ask(number, need)))
    }

    pub(super) fn backend_cancels(
        &mut self,
        message: &Message<'_>,
        now: Millis,
    ) -> Verdict<ToFront> {
        let found = message.cancelled().and_then(|id| {
            let (number, ask) = self
                .asks
                .open
                .iter_mut()
                .rev()
                .find(|(_, ask)| *ask.id == *id)?;
            ask.cancelled = Some(now);
            Some((id, *number, ask.kind.handed.is_some()))
        });
        match found {
            None => self.backend_ends_listen(message, now),
            Some((_, number, false)) => {
                self.asks.open.remove(&number);
                self.to_front
                    .retain(|part| !matches!(part, ToFront::Ask(ask, _) if *ask == number));
                self.question_ended(now);
                None
            }
            Some((id, number, true)) => {
                self.question_ended(now);
                let mut edits = Edits::default();
                edits.replace(message, id, number.to_string());
                Some((edits, ToFront::Bound))
            }
        }
    }

    /// A server ends a subscription by this, too (MCP 2026-07-28, Cancellation, "Behavior
    /// Requirements").
    fn backend_ends_listen(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToFront> {
        let listen = message.cancelled().and_then(|id| Some((id, number(id)?)));
        let current = self.front.is_some().then_some(self.connections);
        let open = listen.and_then(|(id, number)| {
            let call = self.calls.open.get_mut(&number)?;
            let is_theirs =
                Some(call.asker) == current && &*call.method == LISTEN && call.cancelled.is_none();
            is_theirs.then_some((id, call))
        });
        let Some((id, call)) = open else {
            self.counts.dropped += 1;
            return None;
        };
        call.cancelled = Some(now);
        let mut edits = Edits::default();
        for id in [Some(id), message.subscription()].into_iter().flatten() {
            edits.replace(message, id, call.id.clone());
        }
        Some((edits, ToFront::Bound))
    }

    /// Fails the asks that the attached host can't answer, as it would itself: nobody waits for
    /// another host while one is there.
    pub(super) fn refuse_asks(&mut self) {
        let Some(front) = self
            .front
            .as_ref()
            .filter(|front| front.ready && !front.takes_every_ask)
        else {
            return;
        };
        if !self.to_front.requires_more(front.meets()) {
            return;
        }
        let can = front.capabilities;
        let met =
            |part: &ToFront| !matches!(part, ToFront::Ask(_, Some(need)) if !can.include(*need));
        for part in self.to_front.retain(met) {
            if let ToFront::Ask(number, _) = part
                && let Some(ask) = self.asks.open.remove(&number)
            {
                if &*ask.method == ROOTS {
                    self.roots.note_refusal();
                }
                self.to_backend
                    .push(Entry::one(answers::not_able(&ask.id), ToBackend::Answer));
            }
        }
    }

    /// When the next ask has waited long enough for a front.
    pub(super) fn asks_due(&self) -> Option<Millis> {
        let waiting = self
            .asks
            .open
            .values()
            .filter(|ask| ask.kind.handed.is_none());
        waiting
            .map(|ask| ask.made.saturating_add(self.limits.ask_wait_ms))
            .min()
    }

    /// Fails the asks that have waited long enough for a front.
    pub(super) fn give_up_asks(&mut self, now: Millis) {
        let wait = self.limits.ask_wait_ms;
        let due =
            |ask: &Open<Ask>| ask.kind.handed.is_none() && ask.made.saturating_add(wait) <= now;
        let given_up: Vec<u64> = self
            .asks
            .open
            .iter()
            .filter(|(_, ask)| due(ask))
            .map(|(number, _)| *number)
            .collect();
        if given_up.is_empty() {
            return;
        }
        self.to_front
            .retain(|part| !matches!(part, ToFront::Ask(ask, _) if given_up.contains(ask)));
        for number in given_up {
            self.fail_ask(
                number,
                &format!("no host that can answer was attached within {wait} ms"),
            );
        }
        self.question_ended(now);
    }

    /// When the next cancelled request may be forgotten.
    pub(super) fn forget_due(&self) -> Option<Millis> {
        let calls = self.calls.open.values().filter_map(|call| call.cancelled);
        let asks = self.asks.open.values().filter_map(|ask| ask.cancelled);
        calls.chain(asks).min().map(|at| at + CANCELLED_MS)
    }

    /// Forgets what was cancelled long ago.
    pub(super) fn forget(&mut self, now: Millis) {
        let kept = |cancelled: Option<Millis>| cancelled.is_none_or(|at| at + CANCELLED_MS > now);
        self.calls.open.retain(|_, call| kept(call.cancelled));
        self.asks.open.retain(|_, ask| kept(ask.cancelled));
    }
}

/// Whether a request only asks whether the server runs, or for its protocol version.
pub(super) fn only_asks(method: &str) -> bool {
    matches!(method, PROBE | "ping")
}

/// Whether a request asks no more than that and what there is.
pub(super) fn only_looks(method: &str) -> bool {
    let lists = matches!(
        method,
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list"
    );
    lists || only_asks(method)
}

/// Whether a message of the host makes the backend do more than initialise, answer pings and
/// list: then the backend may keep state because of it.
fn is_use(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::Request { method, .. } => method != "initialize" && !only_looks(method),
        Kind::Notification { method } => !matches!(
            &**method,
            "notifications/initialized" | "notifications/cancelled" | "notifications/progress"
        ),
        // The request that it answers was a use already.
        Kind::Answer { .. } => false,
    }
}
