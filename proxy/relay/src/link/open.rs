//! What the host waits for. A keeper knows it as well; but if the keeper is lost, nobody else could
//! tell the host.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::{Kind, Line};

/// The calls that the host has made and got no answer to.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The raw text of their ids.
    calls: BTreeSet<Box<str>>,
    /// The host's last `initialize`, and the raw text of its id while it was not answered.
    initialize: Option<Initialize>,
}

#[derive(Debug)]
struct Initialize {
    line: Bytes,
    /// None once it was answered.
    id: Option<Box<str>>,
}

impl Open {
    /// Takes down what the host says.
    pub(super) fn host_said(&mut self, line: &Bytes) {
        let copy = OnceCell::new();
        let read = Line::of(line, &copy);
        let is_one = matches!(read, Line::One(_));
        read.messages().for_each(|message| match &message.kind {
            Kind::Request { id, method } if method == "initialize" && is_one => {
                self.initialize = Some(Initialize {
                    // Copied, so that what it was read into is free.
                    line: Bytes::copy_from_slice(line),
                    id: Some((*id).into()),
                });
            }
            Kind::Request { id, .. } => drop(self.calls.insert((*id).into())),
            // It may be answered or not, and nobody waits for it.
            Kind::Notification { method } if method == "notifications/cancelled" => {
                if let Some(id) = message.cancelled() {
                    self.calls.remove(id);
                }
            }
            _ => {}
        });
    }

    /// Takes down what the host is told.
    pub(super) fn server_said(&mut self, line: &Bytes) {
        if self.is_settled() {
            return;
        }
        let copy = OnceCell::new();
        Line::of(line, &copy).messages().for_each(|message| {
            if let Kind::Answer { id, failed } = &message.kind {
                match &mut self.initialize {
                    Some(initialize) if initialize.id.as_deref() == Some(id) => {
                        initialize.id = None;
                        if *failed {
                            self.initialize = None;
                        }
                    }
                    _ => drop(self.calls.remove(*id)),
                }
            }
        });
    }

    /// Whether the host waits for nothing.
    pub(super) fn waiting(&self) -> usize {
        self.calls.len() + usize::from(self.unanswered().is_some())
    }

    pub(super) fn is_settled(&self) -> bool {
        self.calls.is_empty() && self.unanswered().is_none()
    }

    /// The `initialize` that the host has got its answer to.
    pub(super) fn initialized(&self) -> Option<&Bytes> {
        self.initialize
            .as_ref()
            .filter(|initialize| initialize.id.is_none())
            .map(|initialize| &initialize.line)
    }

    /// The `initialize` that was not answered. A fresh server may be asked again: nothing has come
    /// of it.
    pub(super) fn unanswered(&self) -> Option<&Bytes> {
        self.initialize
            .as_ref()
            .filter(|initialize| initialize.id.is_some())
            .map(|initialize| &initialize.line)
    }

    /// The host's `initialize` was answered, by an error of ours.
    pub(super) fn forget(&mut self) {
        self.initialize = None;
    }

    /// The server is lost. Returns an answer to each call: nobody knows what became of it.
    pub(super) fn fail_all(&mut self) -> Vec<Bytes> {
        let why = answers::unanswered("the server was lost");
        let calls = core::mem::take(&mut self.calls);
        calls.iter().map(|id| answers::unknown(id, &why)).collect()
    }
}

/// An answer to each call in what the host has said: it was not sent, for this reason.
pub(super) fn refusals(line: &Bytes, why: &str) -> Vec<Bytes> {
    let message = format!("the server can't be started again: {why}; this call was not sent");
    let copy = OnceCell::new();
    let read = Line::of(line, &copy);
    let calls = read.requests();
    calls
        .map(|(id, _)| answers::not_sent(id, &message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn what_was_answered_or_cancelled_is_not_open() {
        let mut open = Open::default();
        open.host_said(&line(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#));
        open.host_said(&line(
            r#"[{"jsonrpc":"2.0","id":"b","method":"x"},{"jsonrpc":"2.0","id":3,"method":"y"}]"#,
        ));
        open.host_said(&line(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#,
        ));
        open.server_said(&line(r#"{"result":{"id":1},"jsonrpc":"2.0","id":1}"#));
        // A request of the server's has an id of its own.
        open.server_said(&line(r#"{"jsonrpc":"2.0","id":"b","method":"roots/list"}"#));
        let failed = open.fail_all();
        let answer: serde_json::Value = serde_json::from_slice(&failed[0]).expect("JSON");
        assert_eq!(failed.len(), 1);
        assert_eq!(answer["id"], "b");
        assert_eq!(answer["error"]["data"]["outcome"], "unknown");
        assert!(open.is_settled());
    }

    #[test]
    fn what_can_not_be_sent_is_said_so() {
        let asked =
            line(r#"[{"jsonrpc":"2.0","id":"a","method":"x"},{"jsonrpc":"2.0","method":"n"}]"#);
        let refused = refusals(&asked, "no \"such\" program");
        let answer: serde_json::Value = serde_json::from_slice(&refused[0]).expect("JSON");
        assert_eq!(refused.len(), 1);
        assert_eq!(answer["id"], "a");
        assert_eq!(answer["error"]["data"]["outcome"], "not_sent");
        let message = answer["error"]["message"].as_str().expect("text");
        assert!(message.contains("no \"such\" program"), "{message}");
    }

    #[test]
    fn what_can_nearly_be_read_is_seen() {
        let mut open = Open::default();
        open.host_said(&Bytes::from_static(
            b"{\"id\":1,\"method\":\"x\",\"params\":[NaN,\"\xE4\"]}",
        ));
        assert!(!open.is_settled());
        open.server_said(&Bytes::from_static(
            b"{\"result\":[-Infinity,\"\xE4\"],\"id\":1}",
        ));
        assert!(open.is_settled());
    }

    #[test]
    fn an_initialize_is_asked_again_until_it_was_answered() {
        let mut open = Open::default();
        let initialize = line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
        open.host_said(&initialize);
        assert_eq!(
            (open.unanswered(), open.initialized()),
            (Some(&initialize), None)
        );
        assert!(open.fail_all().is_empty());
        open.server_said(&line(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#));
        assert_eq!(
            (open.unanswered(), open.initialized()),
            (None, Some(&initialize))
        );
        open.host_said(&initialize);
        open.server_said(&line(
            r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}"#,
        ));
        assert_eq!((open.unanswered(), open.initialized()), (None, None));
    }
}
