//! MCP's two eras: `initialize`, and `server/discover` of 2026-07-28. Some servers speak both,
//! but stay with the one that they got first for as long as they run. A host that comes with
//! the other one gets a fresh server then.

use alloc::borrow::ToOwned;

use bytes::Bytes;

use super::Relay;
use super::life::{FirstRequest, Life};
use crate::Millis;
use crate::message::Message;

/// What was seen of both.
#[derive(Default)]
pub(super) struct Eras {
    /// The connection for which the running backend has first answered something without having
    /// been initialised.
    discovered_by: Option<u64>,
    /// The attached host's last `server/discover`, by its number, where the running backend was
    /// initialised before.
    discover: Option<(u64, Bytes)>,
    /// A fresh backend has refused `server/discover`.
    never_discovers: bool,
    /// A fresh backend has refused `initialize`.
    never_initializes: bool,
}

impl Relay {
    /// The backend is gone.
    pub(super) fn forget_era(&mut self) {
        self.eras.discovered_by = None;
        self.eras.discover = None;
    }

    /// The host sends `server/discover`, under this number.
    pub(super) fn note_discover(&mut self, message: &Message<'_>, number: u64) {
        let former = self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| host.connection != self.connections);
        if former && self.handshake.answer.is_some() && !self.eras.never_discovers {
            self.eras.discover = Some((number, Bytes::copy_from_slice(message.raw)));
        }
    }

    /// The backend has answered a call of the host's that is neither `initialize` nor `ping`. True
    /// if that is a refusal that is not handed on, since a fresh backend is asked.
    pub(super) fn is_other_era(
        &mut self,
        number: u64,
        method: &str,
        failed: bool,
        asker: u64,
        now: Millis,
    ) -> bool {
        let is_fresh = self.handshake.answer.is_none() && self.handshake.pending.is_none();
        if !failed {
            if is_fresh {
                self.eras.discovered_by.get_or_insert(asker);
            }
            return false;
        }
        if method != "server/discover" {
            return false;
        }
        if is_fresh && self.eras.discovered_by.is_none() {
            self.eras.never_discovers = true;
        }
        let Some((_, line)) = self.eras.discover.take_if(|(asked, _)| *asked == number) else {
            return false;
        };
        let former = self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| !self.is_current(host.connection));
        if !former || !self.is_current(asker) || !matches!(self.life, Life::Running { .. }) {
            return false;
        }
        let why =
            "the running server was initialised by a former host, and refuses `server/discover`";
        self.replace(why.to_owned(), FirstRequest::Discover(line), false, now);
        true
    }

    /// The backend has refused `initialize`. True if a fresh one is asked instead.
    pub(super) fn is_former_era(&mut self, now: Millis) -> bool {
        let Some(by) = self.eras.discovered_by else {
            self.eras.never_initializes = true;
            return false;
        };
        let comes_back = self
            .handshake
            .host
            .as_ref()
            .is_some_and(|host| self.is_current(host.connection) && host.connection != by);
        if !comes_back || self.eras.never_initializes || !matches!(self.life, Life::Running { .. })
        {
            return false;
        }
        let why =
            "the running server speaks MCP 2026-07-28 with a former host, and refuses `initialize`";
        self.replace(why.to_owned(), FirstRequest::Initialize, false, now);
        true
    }
}
