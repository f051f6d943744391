//! A server is told from the one that came before it: the host gets the ids of its requests, and
//! their progress tokens, as `"PREFIX/ID"`. What the host says of a request of another server goes
//! nowhere.

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, TrackedLine, WAITING};
use mcp_sessiond_client::RequestId;
use mcp_sessiond_jsonrpc::id_prefix::{from_asked, tagged};
use tokio::sync::mpsc;

/// What tells one connection to a server from all others.
#[derive(Debug, Clone)]
pub struct IdPrefix(String);

impl IdPrefix {
    /// For a connection of which nothing is taken up again.
    pub fn mint() -> Self {
        Self(RequestId::mint().to_string())
    }

    /// A line of the server, as the host gets it.
    pub fn to_host(&self, line: &Bytes) -> Bytes {
        tagged(line, &self.0)
    }

    /// A line of the host, as the server gets it. None: it is about a request of another server.
    pub fn to_server(&self, line: &Bytes) -> Option<Bytes> {
        from_asked(line, &self.0)
    }
}

/// The same pipe, whose server is told apart.
pub fn with_id_prefix(pipe: Pipe) -> Pipe {
    let Pipe {
        to: input,
        from: mut output,
        end,
    } = pipe;
    let id_prefix = IdPrefix::mint();
    let (to, mut wanted) = mpsc::channel::<Bytes>(WAITING);
    let (said, from) = mpsc::channel(WAITING);
    tokio::spawn({
        let id_prefix = id_prefix.clone();
        async move {
            loop {
                let line = tokio::select! {
                    line = wanted.recv() => line,
                    // Whoever sends more is to know it.
                    () = input.closed() => None,
                };
                let Some(line) = line else { return };
                if let Some(line) = id_prefix.to_server(&line)
                    && input.send(line).await.is_err()
                {
                    return;
                }
            }
        }
    });
    tokio::spawn(async move {
        while let Some(TrackedLine { line, receipt }) = output.recv().await {
            if said
                .send(TrackedLine {
                    line: id_prefix.to_host(&line),
                    receipt,
                })
                .await
                .is_err()
            {
                return;
            }
        }
    });
    Pipe { to, from, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_to_one_connection_is_for_no_other() {
        let connected = || {
            let (to, given) = mpsc::channel(1);
            let (said, from) = mpsc::channel(1);
            let pipe = with_id_prefix(Pipe {
                to,
                from,
                end: mcp_sessiond_bundle::End::by_drop(),
            });
            (pipe, given, said)
        };
        let ((mut first, _, says), (second, mut given, _)) = (connected(), connected());
        let line =
            |id: &str, rest: &str| Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#));
        says.send(TrackedLine::once(line("0", r#""method":"ping""#)))
            .await
            .expect("it listens");
        let asked = first.from.recv().await.expect("a request").line;
        let asked: serde_json::Value = serde_json::from_slice(&asked).expect("JSON");
        second
            .to
            .send(line(&asked["id"].to_string(), r#""result":{}"#))
            .await
            .expect("it listens");
        second
            .to
            .send(line("7", r#""method":"ping""#))
            .await
            .expect("it listens");
        assert_eq!(given.recv().await, Some(line("7", r#""method":"ping""#)));
        drop(given);
        second.to.closed().await;
    }
}
