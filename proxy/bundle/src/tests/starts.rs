//! How the backends of a bundle come up.

use std::sync::atomic::Ordering;

use super::world::World;
use crate::*;

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[tokio::test(start_paused = true)]
async fn the_file_is_edited() {
    let world = World::new(&[("a", &["x"]), ("b", &["y"]), ("c", &["z"])]);
    let mut made = world.made().await;
    made.heard();
    made.bundle
        .set_sources(world.sources(&["c", "a"]), |name| name != "a");
    made.until("a", |state| *state == BackendState::Ready).await;
    assert_eq!(made.names(List::Tools).await, ["z", "x"]);
    assert!(
        made.heard()
            .contains(&"notifications/tools/list_changed".to_owned())
    );
    let started = ["a", "b", "c"].map(|name| world.server(name).started.load(Ordering::SeqCst));
    assert_eq!(started, [2, 1, 1]);
    made.bundle
        .set_sources(world.sources(&["c", "b"]), |_| true);
    made.until("b", |state| *state == BackendState::Ready).await;
    assert_eq!(made.names(List::Tools).await, ["z", "y"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_at_a_backend_that_leaves_the_file_is_lost_and_keeps_no_close_waiting() {
    let world = World::new(&[("a", &["x"]), ("b", &["y"])]);
    let made = world.made().await;
    world
        .server("b")
        .answers("tools/call", serde_json::Value::Null);
    let removed = async {
        while world.server("b").hears().await["method"] != "tools/call" {}
        made.bundle.set_sources(world.sources(&["a"]), |_| true);
    };
    let (lost, ()) = tokio::join!(made.calls(1, "y"), removed);
    assert_eq!(
        lost.expect_err("lost").data.expect("data").get(),
        r#"{"outcome":"unknown"}"#
    );
    made.bundle.close().await;
}

/// Remembers nothing, and takes as long as it is told to.
#[derive(Debug, Default)]
struct Slow {
    /// How often it was asked.
    asked: tokio::sync::watch::Sender<u32>,
    answers: tokio::sync::watch::Sender<bool>,
}

impl BundleStore for Slow {
    fn load(&self) -> futures::future::BoxFuture<'_, Names> {
        Box::pin(async {
            self.asked.send_modify(|asked| *asked += 1);
            let _ = self.answers.subscribe().wait_for(|answers| *answers).await;
            Names::default()
        })
    }

    fn save(&self, _: Names) -> futures::future::BoxFuture<'_, Option<Names>> {
        Box::pin(std::future::ready(None))
    }
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_is_slow_is_asked_once_for_all() {
    let servers: Vec<(&str, &[&str])> = NAMES.iter().map(|name| (*name, &[][..])).collect();
    let world = World::new(&servers);
    let slow = std::sync::Arc::new(Slow::default());
    let made = world.with(slow.clone());
    let answering = async {
        let asked = slow
            .asked
            .subscribe()
            .wait_for(|asked| *asked > 0)
            .await
            .is_ok();
        assert!(asked, "it is asked");
        slow.answers.send_replace(true);
    };
    tokio::join!(made.bundle.ready(), answering);
    assert_eq!(*slow.asked.borrow(), 1, "once for all servers");
    assert_eq!(made.bundle.status().missing(), [""; 0]);
}
