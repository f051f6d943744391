//! What was lost with the servers of the session, until its client was told: on the stream of a call of
//! a tool, since a model reads what comes with that, before the first message that comes there. It is
//! confirmed once the client has read that stream to its end.

use std::collections::HashSet;

use mcp_sessiond_client::{RequestId, StreamId};
use mcp_sessiond_http_session::keep::{Keep, Use};
use mcp_sessiond_http_session::substitute::log_message;

use super::Live;
use super::delivery::Stored;
use crate::backend::ServerLoss;
use crate::stderr::warn;

/// Losses of a session that its client was not told of: as many as a keeper remembers. The oldest go.
const NOTICES_MAX: usize = 8;

/// What the client of one session has to be told.
#[derive(Debug, Default)]
pub(super) struct LossNotices {
    notices: Vec<Notice>,
    /// The streams of calls of tools.
    tool_calls: HashSet<StreamId>,
}

#[derive(Debug)]
struct Notice {
    loss: ServerLoss,
    /// The stream that has it.
    on: Option<StreamId>,
    /// Whether a client reads that.
    is_read: bool,
}

impl LossNotices {
    /// False: it is known.
    fn note(&mut self, loss: ServerLoss) -> bool {
        let mut known = self.notices.iter().filter_map(|notice| notice.loss.id);
        if loss.id.is_some_and(|id| known.any(|known| known == id)) {
            return false;
        }
        // The daemon has one of each server on record, of which the number is that of the latest.
        self.notices.retain(|notice| {
            let is_same = notice.loss.what == loss.what && notice.loss.id.is_some();
            notice.is_read || !is_same || loss.id.is_none()
        });
        if self.notices.len() >= NOTICES_MAX {
            self.notices.remove(0);
        }
        self.notices.push(Notice {
            loss,
            on: None,
            is_read: false,
        });
        true
    }

    /// A tool is called on this stream.
    pub(super) fn call_begins(&mut self, stream: StreamId) {
        self.tool_calls.insert(stream);
    }

    /// The stream has ended.
    pub(super) fn call_ends(&mut self, stream: &StreamId) {
        self.tool_calls.remove(stream);
    }

    /// What is to be said on a stream of which a message comes now.
    fn send_on(&mut self, stream: &StreamId) -> Vec<String> {
        if !self.tool_calls.contains(stream) {
            return Vec::new();
        }
        let unread = self.notices.iter_mut().filter(|notice| !notice.is_read);
        unread
            .map(|notice| {
                (notice.on, notice.is_read) = (Some(stream.clone()), true);
                notice.loss.what.clone()
            })
            .collect()
    }

    /// The reader of a stream has gone. It may come back, and else the next one is told.
    pub(super) fn reader_gone(&mut self, stream: &StreamId) {
        let sent = self.notices.iter_mut();
        sent.filter(|notice| notice.on.as_ref() == Some(stream))
            .for_each(|notice| notice.is_read = false);
    }

    /// A stream was read to its end. Returns what its reader was told of.
    fn confirm(&mut self, stream: &StreamId) -> Vec<ServerLoss> {
        let told = self
            .notices
            .extract_if(.., |notice| notice.on.as_ref() == Some(stream));
        told.map(|notice| notice.loss).collect()
    }
}

impl Live {
    /// Takes up what was lost with a server.
    pub(super) fn note_losses(&self, losses: Vec<ServerLoss>) {
        for loss in losses {
            let what = loss.what.clone();
            if self.state().losses.note(loss) {
                warn(format_args!("session {}: {what}", self.id()));
            }
        }
    }

    /// A message of a stream comes: what its reader is to know goes before it, where the server writes to
    /// the client's log. Else `serve`'s own log and `status` have it.
    pub(super) async fn send_losses(&self, stream: &StreamId) {
        let losses = {
            let mut state = self.state();
            match state.session.is_read(stream) {
                true => state.losses.send_on(stream),
                false => Vec::new(),
            }
        };
        for what in losses.iter().filter(|_| self.handshake.logs()) {
            let message = Keep::new(log_message(what), Use::Plain, false);
            let to = self.session.stream(stream.clone());
            if self.append(&to, RequestId::mint(), message).await == Stored::No {
                self.state().losses.reader_gone(stream);
            }
        }
    }

    /// The client has read a stream to its end.
    pub(super) fn confirm_losses(&self, stream: &StreamId) {
        let losses = self.state().losses.confirm(stream);
        losses.iter().for_each(|loss| (loss.confirm)());
    }
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_proto::LossId;

    use super::*;

    fn loss(id: Option<u64>, what: &str) -> ServerLoss {
        ServerLoss {
            id: id.map(LossId),
            ..ServerLoss::unrecorded(what)
        }
    }

    fn confirmed(notices: &mut LossNotices, stream: &StreamId) -> Vec<String> {
        let confirmed = notices.confirm(stream).into_iter();
        confirmed.map(|loss| loss.what).collect()
    }

    #[test]
    fn a_loss_is_told_with_a_call_of_a_tool_until_its_stream_was_read_to_the_end() {
        let mut notices = LossNotices::default();
        let [list, one, two] = ["list", "one", "two"].map(|name| name.parse().expect("a stream"));
        assert!(notices.note(loss(Some(7), "a")));
        assert!(notices.note(loss(None, "b")));
        assert!(!notices.note(loss(Some(7), "a")), "it is known");
        assert_eq!(notices.send_on(&list), [""; 0], "no call of a tool");
        notices.call_begins(one.clone());
        assert_eq!(notices.send_on(&one), ["a", "b"]);
        assert!(!notices.note(loss(Some(7), "a")), "it was told");
        notices.call_ends(&one);
        notices.reader_gone(&one);
        notices.call_begins(two.clone());
        assert_eq!(notices.send_on(&two), ["a", "b"], "it was read by nobody");
        assert_eq!(confirmed(&mut notices, &one), [""; 0]);
        assert_eq!(confirmed(&mut notices, &two), ["a", "b"]);
        notices.reader_gone(&two);
        assert_eq!(notices.send_on(&two), [""; 0]);
    }

    #[test]
    fn what_is_found_lost_again_before_it_was_told_is_told_once() {
        let mut notices = LossNotices::default();
        let one: StreamId = "one".parse().expect("a stream");
        for (id, what) in [(Some(7), "a"), (None, "a"), (Some(8), "a"), (Some(9), "b")] {
            assert!(notices.note(loss(id, what)));
        }
        notices.call_begins(one.clone());
        assert_eq!(notices.send_on(&one), ["a", "a", "b"]);
        let told: Vec<_> = notices.confirm(&one).iter().map(|loss| loss.id).collect();
        assert_eq!(told, [None, Some(LossId(8)), Some(LossId(9))]);
    }

    #[test]
    fn a_reader_that_comes_back_is_told_once() {
        let mut notices = LossNotices::default();
        let one: StreamId = "one".parse().expect("a stream");
        notices.note(loss(None, "a"));
        notices.call_begins(one.clone());
        assert_eq!(notices.send_on(&one), ["a"]);
        notices.reader_gone(&one);
        assert_eq!(confirmed(&mut notices, &one), ["a"]);
    }

    #[test]
    fn a_client_that_calls_no_tool_is_told_of_the_latest_ones() {
        let mut notices = LossNotices::default();
        let one: StreamId = "one".parse().expect("a stream");
        for nth in 0..=NOTICES_MAX {
            notices.note(loss(None, &nth.to_string()));
        }
        notices.call_begins(one.clone());
        let sent = notices.send_on(&one);
        assert_eq!((sent.len(), &*sent[0]), (NOTICES_MAX, "1"));
    }
}
