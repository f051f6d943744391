//! Calls that the host has cancelled, through the whole of a bundle as one server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::world::*;
use crate::*;

/// A host that speaks to a bundle.
struct Talk {
    speaker: BundleServer,
    from: mpsc::Receiver<TrackedLine>,
}

impl Talk {
    /// The host has introduced itself, and was answered.
    async fn begin(fakes: &[&Fake], settings: Settings, memory: Arc<dyn BundleStore>) -> Self {
        let (to, from) = mpsc::channel(WAITING);
        let sources = sources(fakes);
        let speaker = BundleServer::new(to, move |handshake, host| {
            Arc::new(Backends::start(sources, handshake, host, memory, settings))
        });
        let mut talk = Self { speaker, from };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        talk.says(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
            .await;
        assert_eq!(talk.hears().await["id"], 0);
        talk
    }

    async fn says(&self, line: &Value) {
        self.speaker.receive(line.to_string().as_bytes()).await;
    }

    async fn calls(&self, id: u64, tool: &str) {
        self.says(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}}),
        )
        .await;
    }

    async fn cancels(&self, id: u64) {
        self.says(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}),
        )
        .await;
    }

    /// The next that is no change of a list.
    async fn hears(&mut self) -> Value {
        loop {
            let line = self.from.recv().await.expect("a message").line;
            let line: Value = serde_json::from_slice(&line).expect("JSON");
            if !line["method"]
                .as_str()
                .is_some_and(|method| method.ends_with("/list_changed"))
            {
                return line;
            }
        }
    }
}

/// A server does not answer what was cancelled (MCP 2025-11-25, Cancellation).
#[tokio::test(start_paused = true)]
async fn a_cancelled_call_does_not_keep_close_waiting() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let permission = Arc::new(Notify::new());
    a.tools(&["silent"]).reply("silent", Reply::Never);
    b.tools(&["slow"])
        .reply("slow", Reply::When(permission.clone()));
    let mut talk = Talk::begin(&[&a, &b], settings(), Arc::new(())).await;
    talk.calls(1, "silent").await;
    talk.calls(2, "slow").await;
    a.hears("tools/call", 1).await;
    b.hears("tools/call", 1).await;
    talk.cancels(1).await;
    a.hears("notifications/cancelled", 1).await;
    let bundle = talk.speaker.bundle().expect("a bundle").clone();
    let mut close = bundle.close();
    assert!(is_pending(&mut close).await, "the other call is not over");
    permission.notify_one();
    assert_eq!(talk.hears().await["id"], 2);
    close.await;
    assert_eq!(b.count("notifications/cancelled"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_its_backend_starts_is_not_made() {
    let memory = Arc::new(Remembered::default());
    let a = Fake::new("a");
    a.tools(&["pays", "asks"]);
    World::start(&[&a], settings(), memory.clone())
        .bundle
        .ready()
        .await;
    let until = Arc::new(Notify::new());
    a.opening(Opening::Hangs(until.clone()));
    let settings = Settings {
        ready_wait: Duration::from_secs(1),
        ..settings()
    };
    let mut talk = Talk::begin(&[&a], settings, memory).await;
    talk.calls(1, "pays").await;
    talk.calls(2, "asks").await;
    tokio::task::yield_now().await;
    talk.cancels(1).await;
    until.notify_one();
    assert_eq!(talk.hears().await["id"], 2);
    let asked = a.hears("tools/call", 1).await;
    assert_eq!(
        (asked["name"].as_str(), a.count("tools/call")),
        (Some("asks"), 1)
    );
}
