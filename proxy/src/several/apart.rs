//! A server's pipe, told apart from that of the one which came before it.

use bytes::Bytes;
use mcp_sessiond_bundle::{Pipe, TrackedLine, WAITING};
use tokio::sync::mpsc;

use crate::apart::Apart;

/// The same pipe, whose server is told apart.
#[must_use]
pub fn told_apart(pipe: Pipe) -> Pipe {
    let Pipe {
        to: input,
        from: mut output,
        end,
    } = pipe;
    let apart = Apart::mint();
    let (to, mut wanted) = mpsc::channel::<Bytes>(WAITING);
    let (said, from) = mpsc::channel(WAITING);
    tokio::spawn({
        let apart = apart.clone();
        async move {
            loop {
                let line = tokio::select! {
                    line = wanted.recv() => line,
                    // Whoever sends more is to know it.
                    () = input.closed() => None,
                };
                let Some(line) = line else { return };
                if let Some(line) = apart.to_server(&line)
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
                    line: apart.to_host(&line),
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
            let pipe = told_apart(Pipe {
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
