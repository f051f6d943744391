//! Losses of backends: what fronts and the host's log have to tell of them, and the call that is
//! refused so that a model reads of one.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::Kind;
use mcp_sessiond_proto::backends::ENDED_MAX;

use super::{Effect, Purpose, Relay};

/// The request that a model makes. Others are the host's own, and nobody reads their errors.
const CALL: &str = "tools/call";

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
    /// Why a used backend is gone, until a call was made since.
    unread: Option<String>,
    /// Whether that call is refused with it.
    refuses: bool,
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

    /// A backend is gone: `why`, in words that follow "the previous server".
    fn note_unread(&mut self, why: String) {
        if self.used {
            self.unread = Some(why);
        }
    }
}

impl Relay {
    /// Whether the attached front wants the first call after the loss of a used backend refused.
    pub fn refuse_after_loss(&mut self, refuses: bool) {
        self.losses.refuses = refuses;
    }

    /// The front that has just attached knows of a server that was lost before this relay was there,
    /// and why: a sentence.
    pub fn note_former_loss(&mut self, why: String) {
        // The log of a host that begins anew says nothing: it knows no former server.
        if self.front.as_ref().is_some_and(|front| front.called) {
            self.losses.unannounced = Some(why.clone());
        }
        self.losses.unread = Some(why);
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
            Before::Refuses(why) | Before::Hangs(why) => self
                .losses
                .note_unread(format!("the previous server was replaced ({why})")),
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
        self.losses.note_unread(gone);
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
        if self.front.as_ref().is_some_and(|front| !front.tried) {
            return;
        }
        let ended = &mut self.losses.ended;
        ended.drain(..told.min(ended.len()));
    }

    /// The error for a message of the host's that is not made, as it is the first call after a loss.
    pub(super) fn refused_after_loss(&mut self, kind: &Kind<'_>) -> Option<String> {
        if !matches!(kind, Kind::Request { method, .. } if &**method == CALL) {
            return None;
        }
        let why = self.losses.unread.take()?;
        let refuses = self.losses.refuses;
        refuses.then(|| format!("not sent: {}; repeat the call", begins_afresh(&why)))
    }

    /// The host's log is told why this is another backend, once, where backends write to it.
    pub(super) fn announce_loss(&mut self) {
        let Some(why) = self.losses.unannounced.take() else {
            return;
        };
        if self.handshake.told.logs && self.front.as_ref().is_some_and(|front| front.ready) {
            self.tell_front(answers::log("warning", &begins_afresh(&why)).into());
        }
    }
}

/// A server takes the place of one that was lost, and why that was.
fn begins_afresh(why: &str) -> String {
    format!("this server begins afresh, and what the previous one had in memory is lost: {why}")
}
