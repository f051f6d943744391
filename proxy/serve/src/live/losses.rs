//! What was lost with the servers of the session, until its client was told: before the answer to a
//! call of a tool, since a model reads what comes with that. It is confirmed once the client has read
//! that stream to its end.

use std::collections::HashSet;

use mcp_sessiond_client::{RequestId, StreamId};
use mcp_sessiond_http_session::keep::{Keep, Use};
use mcp_sessiond_http_session::substitute::log_message;

use super::Live;
use crate::backend::ServerLoss;
use crate::stderr::warn;

/// Losses of one session.
#[derive(Debug, Default)]
pub(super) struct Telling {
    untold: Vec<ServerLoss>,
    /// Told on these streams, which nobody has read to their ends so far.
    told: Vec<(StreamId, Vec<ServerLoss>)>,
    /// The streams of calls of tools.
    calls: HashSet<StreamId>,
}

impl Telling {
    fn note(&mut self, loss: ServerLoss) -> bool {
        let mut known = self.told.iter().flat_map(|(_, told)| told);
        let is_known = loss.id.is_some()
            && (known.any(|told| told.id == loss.id)
                || self.untold.iter().any(|untold| untold.id == loss.id));
        if !is_known {
            self.untold.push(loss);
        }
        !is_known
    }

    /// A tool is called on this stream.
    pub(super) fn called(&mut self, stream: StreamId) {
        self.calls.insert(stream);
    }

    /// The stream has ended.
    pub(super) fn finished(&mut self, stream: &StreamId) {
        self.calls.remove(stream);
    }

    /// What is to be told on a stream of which the last message comes now.
    fn take(&mut self, stream: &StreamId) -> Vec<String> {
        if self.untold.is_empty() || !self.calls.contains(stream) {
            return Vec::new();
        }
        let losses = std::mem::take(&mut self.untold);
        let what = losses.iter().map(|loss| loss.what.clone()).collect();
        self.told.push((stream.clone(), losses));
        what
    }

    /// The reader of a stream has gone: before its end it may have read nothing of it.
    pub(super) fn left(&mut self, stream: &StreamId) {
        let told = self.told.extract_if(.., |(of, _)| of == stream);
        let untold: Vec<ServerLoss> = told.flat_map(|(_, losses)| losses).collect();
        self.untold.splice(0..0, untold);
    }

    /// A stream was read to its end. Returns what its reader was told of.
    fn heard(&mut self, stream: &StreamId) -> Vec<ServerLoss> {
        let told = self.told.extract_if(.., |(of, _)| of == stream);
        told.flat_map(|(_, losses)| losses).collect()
    }
}

impl Live {
    /// Takes up what was lost with a server.
    pub(super) fn note_losses(&self, losses: Vec<ServerLoss>) {
        for loss in losses {
            let what = loss.what.clone();
            if self.state().telling.note(loss) {
                warn(format_args!("session {}: {what}", self.id()));
            }
        }
    }

    /// The last message of a stream comes: what its reader is to know goes before it.
    pub(super) async fn tell_losses(&self, stream: &StreamId) {
        let losses = {
            let mut state = self.state();
            match state.session.is_read(stream) {
                true => state.telling.take(stream),
                false => Vec::new(),
            }
        };
        for what in losses.iter().filter(|_| self.handshake.logs()) {
            let message = Keep::new(log_message(what), Use::Plain, false);
            let to = self.session.stream(stream.clone());
            self.append(&to, RequestId::mint(), message).await;
        }
    }

    /// The client has read a stream to its end.
    pub(super) fn heard(&self, stream: &StreamId) {
        let losses = self.state().telling.heard(stream);
        losses.iter().for_each(|loss| (loss.heard)());
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

    #[test]
    fn a_loss_is_told_with_a_call_of_a_tool_until_its_stream_was_read_to_the_end() {
        let mut telling = Telling::default();
        let [list, one, two] = ["list", "one", "two"].map(|name| name.parse().expect("a stream"));
        assert!(telling.note(loss(Some(7), "a")));
        assert!(telling.note(loss(None, "b")));
        assert!(!telling.note(loss(Some(7), "a")), "it is known");
        assert_eq!(telling.take(&list), [""; 0], "no call of a tool");
        telling.called(one.clone());
        assert_eq!(telling.take(&one), ["a", "b"]);
        assert!(!telling.note(loss(Some(7), "a")), "it was told");
        telling.finished(&one);
        telling.left(&one);
        telling.called(two.clone());
        assert_eq!(telling.take(&two), ["a", "b"], "it was read by nobody");
        let heard = telling.heard(&two).into_iter();
        assert_eq!(heard.map(|loss| loss.what).collect::<Vec<_>>(), ["a", "b"]);
        telling.left(&two);
        assert_eq!(telling.take(&two), [""; 0]);
    }
}
