//! Losses of backends: what fronts and the host's log have to tell of them, and the call that is
//! refused so that a model reads of one.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::Kind;
use mcp_sessiond_proto::backends::ENDED_MAX;
use mcp_sessiond_proto::begins_afresh;

use super::{Effect, Purpose, Relay};
use crate::Millis;

/// How long the refusal of a call waits, in ms: what the host calls meanwhile is refused with it, so that
/// the rest of a pipeline does not run on a fresh backend.
const REFUSES_MS: Millis = 250;

/// How long after a refusal the next one comes at the earliest, in ms.
const REFUSAL_PAUSE_MS: Millis = 60_000;

/// The request that a model makes. Others are the host's own, and nobody reads their errors.
pub(super) const CALL: &str = "tools/call";

/// What became of a backend, so that another one is started. Each variant has the reason, for
/// people.
pub(super) enum Before {
    /// It has ended by itself: a loss.
    Ended(String),
    /// It has ended on a probe, as servers do that know no such request. Nothing is lost.
    OnProbe(String),
    /// It does not take our `initialize`, and is replaced: a loss.
    Refuses(String),
    /// It does not answer any more, and is replaced: a loss.
    Hangs(String),
    /// The user or a host wants another one. Whoever comes is told why.
    Wanted(String),
    /// A host wants another one, and none has used this one: nobody has to be told.
    Unused(String),
}

/// The same, once it is on record: no backend is taken for lost, or replaced, without it.
pub(super) struct Noted(Before);

impl Noted {
    pub(super) fn before(&self) -> &Before {
        &self.0
    }

    /// The reason.
    pub(super) fn why(&self) -> &str {
        match &self.0 {
            Before::Ended(why)
            | Before::OnProbe(why)
            | Before::Refuses(why)
            | Before::Hangs(why)
            | Before::Wanted(why)
            | Before::Unused(why) => why,
        }
    }
}

/// What was lost.
#[derive(Default)]
pub(super) struct Losses {
    /// Why backends have ended, as far as no front has told its host; the latest last.
    ended: VecDeque<String>,
    /// Why the latest backend is gone, until its host's log was told.
    unannounced: Option<String>,
    /// Whether the backend has been used since it was started.
    used: bool,
    /// Why a used backend is gone that the attached front's host had, until a call was made since.
    unread: Option<String>,
    /// Such reasons for which no call was refused, since one had been just before.
    passed_over: Vec<String>,
    /// Whether that call is refused with it.
    refuses: bool,
    /// The calls that are being refused.
    refusing: Option<Refusing>,
    /// When the attached front's last call was refused.
    refused_at: Option<Millis>,
    /// Whether a front was attached since the backend was started.
    pub(super) seen: bool,
    /// Why a used backend was ended on purpose while no front was attached, until a host was told.
    pub(super) renewed: Option<&'static str>,
}

/// Calls that are refused together.
struct Refusing {
    at: Millis,
    /// The reasons.
    why: String,
    /// The ids of the calls, as raw JSON.
    calls: Vec<Box<str>>,
}

impl Losses {
    /// What the next front has to tell.
    pub(super) fn untold(&self) -> Vec<String> {
        self.ended.iter().cloned().collect()
    }

    /// Whether something is lost with the backend.
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// A front has attached, or has left: what its predecessor's host had lost is told in other ways.
    pub(super) fn forget_unread(&mut self) {
        (self.unread, self.refusing, self.refused_at) = (None, None, None);
        self.passed_over.clear();
    }

    /// When the calls that are being refused get their answers.
    pub(super) fn refusal_due(&self) -> Option<Millis> {
        self.refusing.as_ref().map(|refusing| refusing.at)
    }

    /// What of the host's is not made, since it is refused with others: a call with this id.
    pub(super) fn cancel_refused(&mut self, id: &str) {
        if let Some(refusing) = &mut self.refusing {
            refusing.calls.retain(|call| **call != *id);
        }
    }
}

impl Relay {
    /// Whether the attached front wants the first call after the loss of a used backend refused.
    pub fn refuse_after_loss(&mut self, refuses: bool) {
        self.losses.refuses = refuses;
    }

    /// The front that has just attached knows of a server that was lost before this relay was there,
    /// and why: a sentence. `is_told`: a call that was open has failed with it.
    pub fn note_former_loss(&mut self, why: String, is_told: bool) {
        // A host that begins anew knows no former server.
        if self.front.as_ref().is_none_or(|front| !front.called) {
            return;
        }
        self.losses.unannounced = Some(why.clone());
        if !is_told {
            self.losses.unread = Some(why);
        }
    }

    /// A used backend is gone: `why`, in words that follow "the previous server". A direct run would
    /// have failed with it if the attached front's host has begun to speak with it. A call that is open
    /// fails with it, and that is told then.
    fn note_unread(&mut self, why: String) {
        let mut calls = self.calls.open.values();
        let is_told = calls.any(|call| {
            let is_waited_for = call.cancelled.is_none() && self.is_current(call.asker);
            call.kind.sent && !call.kind.ours() && is_waited_for
        });
        if self.losses.used && self.has_conversed() && !is_told {
            self.losses.unread = Some(why);
        }
    }

    /// The backend is used.
    pub(super) fn note_use(&mut self) {
        self.used = true;
        self.losses.used = true;
    }

    /// Records what became of the backend.
    pub(super) fn note(&mut self, before: Before) -> Noted {
        match &before {
            Before::Ended(why) => self.note_end(why),
            Before::Refuses(why) | Before::Hangs(why) => {
                self.note_unread(format!("the previous server was replaced ({why})"));
            }
            Before::OnProbe(_) | Before::Wanted(_) | Before::Unused(_) => {}
        }
        self.forget_use();
        Noted(before)
    }

    /// The backend has ended by itself, and what it had in memory is lost. A host learns by the
    /// answer to its `initialize` of one that ends at its start.
    fn note_end(&mut self, why: &str) {
        let is_awaited = self.front.is_some() && self.handshake.pending.is_some();
        if self.connections == 0 || is_awaited || self.died_silent.is_some() {
            return;
        }
        let gone = format!("the previous server has ended ({why})");
        self.losses.unannounced = Some(gone.clone());
        self.note_unread(gone);
        self.push_end(why.to_owned());
        if self.front.is_some() {
            self.effects.push(Effect::Ended(why.to_owned()));
        }
    }

    /// Another backend takes the place of this one. What has yet to be handed out is a use of that.
    fn forget_use(&mut self) {
        let mut calls = self.calls.open.values();
        self.losses.used = calls.any(|call| call.kind.purpose == Purpose::Plain && !call.kind.sent);
    }

    /// What a front has to tell its host.
    pub(super) fn push_end(&mut self, why: String) {
        let ended = &mut self.losses.ended;
        if ended.len() == ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(why);
    }

    /// A front has told its host of so many ends of backends, the oldest first. Nobody reads what
    /// was told to a host that only probes.
    pub fn ends_told(&mut self, told: usize) {
        if self.numbered.is_none() && self.front.as_ref().is_some_and(|front| !front.tried) {
            return;
        }
        let ended = &mut self.losses.ended;
        ended.drain(..told.min(ended.len()));
    }

    /// Whether a message of the host's is not made, as it is the first call after a loss, or comes while
    /// that is refused.
    pub(super) fn is_refused_after_loss(&mut self, kind: &Kind<'_>, now: Millis) -> bool {
        let Kind::Request { id, method } = kind else {
            return false;
        };
        if &**method != CALL {
            return false;
        }
        let losses = &mut self.losses;
        if let Some(refusing) = &mut losses.refusing {
            refusing.calls.push((*id).into());
            return true;
        }
        let Some(why) = losses.unread.take().filter(|_| losses.refuses) else {
            return false;
        };
        let is_soon = |at: Millis| now < at.saturating_add(REFUSAL_PAUSE_MS);
        losses.passed_over.push(why);
        if losses.refused_at.is_some_and(is_soon) {
            if losses.passed_over.len() > ENDED_MAX {
                losses.passed_over.remove(0);
            }
            return false;
        }
        losses.refused_at = Some(now);
        losses.refusing = Some(Refusing {
            at: now.saturating_add(REFUSES_MS),
            why: core::mem::take(&mut losses.passed_over).join("; "),
            calls: Vec::from([(*id).into()]),
        });
        true
    }

    /// Answers the calls that are refused, if it is time.
    pub(super) fn refuse_after_losses(&mut self, now: Millis) {
        let is_due = |refusing: &mut Refusing| refusing.at <= now;
        let Some(Refusing { why, calls, .. }) = self.losses.refusing.take_if(is_due) else {
            return;
        };
        let message = format!(
            "not sent: {}; repeat the call if it needs nothing of that",
            begins_afresh(&why)
        );
        for id in calls {
            self.tell_front(answers::not_sent(&id, &message));
        }
    }

    /// The host's log is told why this is another backend, once, where backends write to it. A front that
    /// continues another one tells its clients itself.
    pub(super) fn announce_loss(&mut self) {
        let Some(why) = self.losses.unannounced.take() else {
            return;
        };
        if self.numbered.is_none()
            && self.handshake.told.logs
            && self.front.as_ref().is_some_and(|front| front.ready)
        {
            self.tell_front(answers::log("warning", &begins_afresh(&why)).into());
        }
    }
}
