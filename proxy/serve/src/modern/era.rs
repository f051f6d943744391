//! Asks a fresh server whether it speaks MCP 2026-07-28. What it does instead of answering, its
//! keeper sees, and the daemon remembers for all fronts of its command.

use std::time::Duration;

use mcp_sessiond_http_session::handshake::VERSIONS;
use mcp_sessiond_proto::facts::PLAIN_REFUSAL;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::envelope::VERSION;
use crate::backend::Backend;
use crate::first_answer::FirstAnswer;
use crate::live::handshake::{EarlyLines, HANDSHAKE_WAIT, first_request};

/// How long after the start of a server its clients wait until it has said that it speaks this
/// version. Then they are told that it doesn't. The question stays for as long as a server may take
/// to start.
pub(super) const CLIENT_WAIT: Duration = Duration::from_secs(20);
/// How long a server may take to start and to answer before it is sent `initialize`: some ignore
/// what comes before that.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// The era of MCP that a server speaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// The version of this era. With what it has said before it said so.
    Modern(EarlyLines),
    /// The same, but it said so after it was sent `initialize`: another one will do.
    Late,
    /// Versions of the era before; or it has ended, said nothing, or failed at the question.
    Older,
}

/// Asks a server that was just started.
pub(super) async fn ask(backend: &dyn Backend) -> Era {
    let client = json!({"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")});
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client,
    });
    let version = VERSIONS.last();
    let initialize = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    let (Ok(discover), Ok(initialize)) = (
        to_raw_value(&json!({"_meta": meta})),
        to_raw_value(&initialize),
    ) else {
        return Era::Older;
    };
    match first_request(backend, "server/discover", &discover, ANSWER_WAIT).await {
        Ok(Some((FirstAnswer::Result(result), early))) if is_modern(&result) => {
            return Era::Modern(early);
        }
        // It has exited, and its keeper refuses in its place.
        Ok(Some((FirstAnswer::Error(error), _))) if error.get() == PLAIN_REFUSAL => {}
        Ok(_) => return Era::Older,
        Err(_) => {}
    }
    // That it exits, or says nothing, counts only where it can be initialised.
    match first_request(backend, "initialize", &initialize, HANDSHAKE_WAIT).await {
        Ok(Some((FirstAnswer::Result(result), _))) if is_modern(&result) => Era::Late,
        _ => Era::Older,
    }
}

/// Whether this is a server's result of `server/discover` that names this version.
fn is_modern(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: Vec<String>,
    }
    serde_json::from_str(result.get()).is_ok_and(|Discovered { supported_versions }| {
        supported_versions.iter().any(|version| version == VERSION)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures::FutureExt as _;
    use futures::future::{BoxFuture, pending, ready};
    use mcp_sessiond_http_session::messages::Id;
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::backend::{Ended, ServerLine, ServerLoss};

    /// A server that answers these methods with what stands beside them, and no other.
    struct Server<'a> {
        answers: &'a [(&'a str, &'a str)],
        heard: Mutex<Vec<String>>,
        lines: Mutex<VecDeque<ServerLine>>,
    }

    impl Backend for Server<'_> {
        fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
            let line: Value = serde_json::from_slice(&line).expect("JSON");
            let method = line["method"].as_str().expect("a request");
            for (_, answer) in self.answers.iter().filter(|(name, _)| *name == method) {
                let line = format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, line["id"]);
                self.lines.lock().expect("whole").push_back(ServerLine {
                    number: 1,
                    line: line.into(),
                    stream: None,
                });
            }
            self.heard.lock().expect("whole").push(method.to_owned());
            ready(Ok(())).boxed()
        }

        fn next(&self) -> BoxFuture<'_, Option<ServerLine>> {
            let line = self.lines.lock().expect("whole").pop_front();
            match line {
                Some(line) => ready(Some(line)).boxed(),
                None => pending().boxed(),
            }
        }

        fn confirm(&self, _: u64) {}

        fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>> {
            ready(Ok(Vec::new())).boxed()
        }

        fn losses(&self) -> Vec<ServerLoss> {
            Vec::new()
        }

        fn end(&self) -> BoxFuture<'_, ()> {
            ready(()).boxed()
        }

        fn incarnation(&self) -> &'static str {
            "1"
        }

        fn continues(&self) -> bool {
            false
        }
    }

    const DISCOVER: &str = "server/discover";
    const INITIALIZE: &str = "initialize";
    const MODERN: &str = r#""result":{"supportedVersions":["2026-07-28"]}"#;
    const INITIALIZED: &str = r#""result":{"protocolVersion":"2025-11-25"}"#;

    /// What such a server is found to speak, and what it was sent for that.
    async fn ask_one(answers: &[(&str, &str)]) -> (Era, Vec<String>) {
        let server = Server {
            answers,
            heard: Mutex::default(),
            lines: Mutex::default(),
        };
        let era = ask(&server).await;
        (era, server.heard.into_inner().expect("whole"))
    }

    #[tokio::test]
    async fn a_server_that_answers_is_sent_nothing_more() {
        let sent = || vec![DISCOVER.to_owned()];
        let modern = ask_one(&[(DISCOVER, MODERN), (INITIALIZE, INITIALIZED)]).await;
        assert_eq!(modern, (Era::Modern(Vec::new()), sent()));
        for answer in [
            r#""result":{"supportedVersions":["2025-11-25"]}"#,
            r#""result":{"supportedVersions":["2027-01-01"]}"#,
            r#""result":{}"#,
            r#""result":NaN"#,
            r#""error":{"code":-32602,"message":"no"}"#,
            r#""error":{"code":-32603,"message":"failed"}"#,
            r#""error":1"#,
        ] {
            let older = ask_one(&[(DISCOVER, answer), (INITIALIZE, INITIALIZED)]).await;
            assert_eq!(older, (Era::Older, sent()), "{answer}");
        }
    }

    /// Its keeper then sees that it answers nothing before that.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_initialised_while_its_clients_wait() {
        let sent = || [DISCOVER, INITIALIZE].map(str::to_owned).to_vec();
        let began = Instant::now();
        let silent = ask_one(&[(INITIALIZE, INITIALIZED)]).await;
        assert_eq!(silent, (Era::Older, sent()));
        assert!(began.elapsed() < CLIENT_WAIT);
        let slow_to_start = ask_one(&[(INITIALIZE, MODERN)]).await;
        assert_eq!(slow_to_start, (Era::Late, sent()));
        assert_eq!(ask_one(&[]).await, (Era::Older, sent()));
    }

    #[tokio::test]
    async fn a_server_that_has_exited_and_was_started_again_is_initialised() {
        let refused = format!(r#""error":{PLAIN_REFUSAL}"#);
        let (era, sent) = ask_one(&[(DISCOVER, &refused), (INITIALIZE, INITIALIZED)]).await;
        assert_eq!(
            (era, &sent[1..]),
            (Era::Older, &[INITIALIZE.to_owned()][..])
        );
    }
}
