//! Ends what has outlived its owner or its time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::Status;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::contents::{Access, Contents, OwnerStatus};
use crate::engine::{Dropped, Engine};

/// The pause before the next attempt when the storage did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// How many sessions are listed at a time, at the start.
const BATCH: usize = 100;

/// Looks after the sessions of one daemon.
#[derive(Debug)]
pub struct Reaper {
    engine: Arc<Engine>,
    contents: Arc<Contents>,
    /// Why the storage failed last, so that it is said once.
    reported: Option<String>,
    /// What has ended, and when its contents go.
    dropped: VecDeque<(Instant, Dropped)>,
    incoming: mpsc::UnboundedReceiver<Dropped>,
}

impl Reaper {
    /// Will end the contents of what comes in by `incoming`.
    pub fn new(
        engine: Arc<Engine>,
        contents: Arc<Contents>,
        incoming: mpsc::UnboundedReceiver<Dropped>,
    ) -> Self {
        Self {
            engine,
            contents,
            reported: None,
            dropped: VecDeque::new(),
            incoming,
        }
    }

    /// Goes on until it is dropped.
    pub async fn run(mut self) {
        loop {
            let found = self.find_orphans().await;
            if self.works(
                found,
                "could not look for what is left of hosts that are gone",
            ) {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        let mut sweep_at = self.next_sweep();
        loop {
            let reap_at = self.dropped.front().map(|(at, _)| *at);
            tokio::select! {
                Some(dropped) = self.incoming.recv() => {
                    let grace_ms = self.engine.settings().loaded.config.sessions.host_grace_ms;
                    self.dropped.push_back((Instant::now() + Duration::from_millis(grace_ms), dropped));
                }
                () = tokio::time::sleep_until(reap_at.unwrap_or(sweep_at)), if reap_at.is_some() => self.reap().await,
                () = tokio::time::sleep_until(sweep_at) => {
                    let swept = self.contents.sweep(|place| self.engine.owner_status(place)).await;
                    self.works(swept, "could not sweep");
                    self.end_served().await;
                    sweep_at = self.next_sweep();
                }
            }
        }
    }

    /// Ends the backends of services' sessions that have ended, also where another daemon ended
    /// them, and forgets what those have lost.
    async fn end_served(&self) {
        let served = self.engine.served_sessions();
        for of in served.into_iter().chain(self.engine.losing_sessions()) {
            if let Ok(false) = self
                .contents
                .lives(&Access::service(&of.0, &of.1, None))
                .await
            {
                self.engine.end_served(&of);
            }
        }
    }

    /// Whether the work succeeded. Logs a failure once, not each time.
    fn works<T>(&mut self, done: Result<T, Error>, what: &str) -> bool {
        let why = done.err().map(|error| error.to_string());
        if let Some(error) = why.as_ref().filter(|_| self.reported != why) {
            tracing::warn!(%error, "{what}");
        }
        self.reported = why;
        self.reported.is_none()
    }

    fn next_sweep(&self) -> Instant {
        Instant::now()
            + Duration::from_millis(self.engine.settings().loaded.config.sessions.sweep_ms)
    }

    /// What a former daemon could not end before it was killed.
    async fn find_orphans(&mut self) -> Result<(), Error> {
        if self.contents.store().is_shared() {
            // Too many of them may belong to other daemons. The sweep finds ours.
            return Ok(());
        }
        let mut after = None;
        loop {
            let page = self.contents.inventory(after.as_ref(), BATCH).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (place, info) in page {
                // The storage is local, so sessions of another boot have no owner any more.
                match self.engine.owner_status(&place) {
                    OwnerStatus::Gone | OwnerStatus::Elsewhere => {
                        self.contents.end_owner(&place.owner).await?;
                    }
                    OwnerStatus::Left => drop(self.contents.end(&place, OwnerStatus::Left).await?),
                    // It was terminated, and the daemon killed before that was on record
                    // everywhere.
                    OwnerStatus::Held | OwnerStatus::Free if info.status == Status::Terminated => {
                        self.engine.forget(&place);
                    }
                    OwnerStatus::Held | OwnerStatus::Free | OwnerStatus::Service => {}
                }
            }
        }
    }

    async fn reap(&mut self) {
        let now = Instant::now();
        while self.dropped.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, dropped)) = self.dropped.pop_front() else {
                return;
            };
            let ended = match &dropped {
                // With its host everything goes at once.
                Dropped::Session(place) => match self.engine.owner_status(place) {
                    OwnerStatus::Left => {
                        self.contents.end(place, OwnerStatus::Left).await.map(drop)
                    }
                    // Or there is another one of that id by now.
                    _ => Ok(()),
                },
                Dropped::Owner(owner) => self.contents.end_owner(owner).await,
            };
            if !self.works(
                ended,
                "could not end what is left of a session; trying again",
            ) {
                self.dropped.push_front((now + RETRY, dropped));
                return;
            }
        }
    }
}
