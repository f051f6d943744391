//! What the backend sends.

use core::cell::OnceCell;

use bytes::Bytes;

use super::entry::{Edits, Entry, Verdict, translate};
use super::life::Life;
use super::message::{Kind, LISTEN, Line, Message, Part};
use super::numbers::{Answered, Numbers, Open};
use super::queue::{ToFront, Wanting};
use super::raw::number;
use super::{Call, Millis, Relay, What, count};

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
        self.heard_from(now);
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
        if entry.parts.len() == 1 || front.is_some_and(|front| entry.wants() & !front.meets() == 0)
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
            return self.backend_complains();
        }
        if number(id).is_some_and(Numbers::is_ping) {
            self.ponged_us();
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
        match call.kind.what {
            What::Plain if &*call.method == "ping" => self.ponged(),
            What::Plain => {
                let asked = number(id).unwrap_or_default();
                if self.is_other_era(asked, &call.method, failed, call.asker, now) {
                    return None;
                }
            }
            What::Initialize => {
                if self.initialize_answered(message, failed, now) {
                    return None;
                }
            }
            What::Revive => {
                self.revival_answered(message, failed, now);
                return None;
            }
            What::Habit => return None,
        }
        self.hand_back(&call, message, id, failed, now)
    }

    /// Hands an answer to whoever asked, if that is still there.
    fn hand_back(
        &mut self,
        call: &Open<Call>,
        message: &Message<'_>,
        id: &str,
        failed: bool,
        now: Millis,
    ) -> Verdict<ToFront> {
        let answer = Answered {
            method: call.method.clone(),
            came: now,
            took: now.saturating_sub(call.made),
            bytes: message.text.len(),
            failed,
        };
        if !self.is_current(call.asker) {
            self.park(answer);
            return None;
        }
        let mut edits = Edits::default();
        edits.replace(message, id, call.id.clone());
        if let Some(listen) = (&*call.method == LISTEN)
            .then(|| message.answered_subscription())
            .flatten()
        {
            edits.replace(message, listen, call.id.clone());
        }
        Some((edits, ToFront::Answer(answer)))
    }

    /// The backend could not read something. That goes to the front that may have sent it.
    fn backend_complains(&mut self) -> Verdict<ToFront> {
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
}
