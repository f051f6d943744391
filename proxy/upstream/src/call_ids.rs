//! The ids of a host's calls, where each process has a host that counts anew: the server sees
//! another id for each, so that an answer to a call of a former connection is never taken for the
//! answer to a later one. The same goes for progress tokens.

use bytes::Bytes;
use mcp_sessiond_jsonrpc::edited;
use mcp_sessiond_jsonrpc::message::Kind;
use mcp_sessiond_proto::RequestId;
use serde_json::Value;

/// Whether the next process has the same host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// It has, and the host goes on with its calls: it gets their answers from whichever process
    /// there is.
    Same,
    /// It has not: each process has a host that begins with `initialize` and gives its calls ids
    /// anew. The session with the server goes on where the host introduces itself as the former one
    /// did. What is answered to calls of the former one reaches nobody.
    Renamed,
}

/// What ids of this process begin with, which no other has.
#[derive(Debug)]
pub(super) struct CallIds(String);

impl CallIds {
    pub(super) fn new() -> Self {
        Self(RequestId::mint().as_str().to_owned())
    }

    /// A message of the host, as the server gets it.
    pub(super) fn to_server(&self, line: &Bytes) -> Bytes {
        edited(line, |message, edits| {
            let (id, token) = match &message.kind {
                Kind::Request { id, .. } => (Some(*id), message.asked_progress()),
                Kind::Notification { method } if method == "notifications/cancelled" => {
                    (message.cancelled(), None)
                }
                Kind::Notification { .. } | Kind::Answer { .. } => (None, None),
            };
            for id in id.into_iter().chain(token) {
                edits.replace(
                    message,
                    id,
                    Value::String(format!("{}/{id}", self.0)).to_string(),
                );
            }
        })
    }

    /// A message of the server, as the host gets it. None: it belongs to a call that this host has
    /// not made.
    pub(super) fn to_host(&self, line: &Bytes) -> Option<Bytes> {
        let mut is_ours = true;
        let line = edited(line, |message, edits| {
            let id = match &message.kind {
                Kind::Answer { id, .. } if *id != "null" => Some(*id),
                Kind::Notification { method } if method == "notifications/progress" => {
                    message.progress()
                }
                _ => None,
            };
            let Some(id) = id else { return };
            match self.own(id) {
                Some(own) => edits.replace(message, id, own),
                None => is_ours = false,
            }
        });
        is_ours.then_some(line)
    }

    /// The host's own id. A server may say anything behind what an id of ours begins with: only
    /// what is an id gets into a line for the host.
    pub(super) fn own(&self, id: &str) -> Option<String> {
        let text: String = serde_json::from_str(id).ok()?;
        let own = text.strip_prefix(&self.0)?.strip_prefix('/')?;
        let is_id = matches!(
            serde_json::from_str(own),
            Ok(Value::String(_) | Value::Number(_))
        );
        (is_id && !own.contains(char::is_control)).then(|| own.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_gets_its_own_answers_by_its_own_ids() {
        let (first, second) = (CallIds::new(), CallIds::new());
        let line = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        for id in ["1", r#""a/\"b""#] {
            let call = line(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"x","params":{{"_meta":{{"progressToken":{id}}},"n":1.50}}}}"#
            ));
            let sent: Value = serde_json::from_slice(&first.to_server(&call)).expect("JSON");
            assert_eq!(sent["id"], sent["params"]["_meta"]["progressToken"]);
            assert_ne!(first.to_server(&call), second.to_server(&call));
            let answer = line(&format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
                sent["id"]
            ));
            let progress = line(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":1}}}}"#,
                sent["id"]
            ));
            let told = line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
            assert_eq!(first.to_host(&answer), Some(told));
            assert!(first.to_host(&progress).expect("its own").ends_with(
                format!(r#""params":{{"progressToken":{id},"progress":1}}}}"#).as_bytes()
            ));
            assert_eq!(
                (second.to_host(&answer), second.to_host(&progress)),
                (None, None)
            );
        }
        for forged in ["", "1,2", "{}", "1\n", "null", r#"1},{"x":2"#, "\"\u{85}\""] {
            let id = Value::String(format!("{}/{forged}", first.0));
            let answer = line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
            assert_eq!(first.to_host(&answer), None, "{forged:?}");
        }
        let cancelled = line(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        );
        assert_ne!(first.to_server(&cancelled), cancelled);
        for other in [
            r#"{"jsonrpc":"2.0","id":"1/7","method":"roots/list"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        ] {
            assert_eq!(first.to_host(&line(other)), Some(line(other)));
        }
    }
}
