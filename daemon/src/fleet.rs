//! The daemons that share a storage: the heartbeats that this one sends, and what it does for
//! one that gives none any more.
//!
//! A daemon sends heartbeats while something depends on it: a last will whose author it watches, or
//! a service whose sessions have their servers on its machine. With a storage that is not shared,
//! nothing in here ever runs.

mod peers;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mcp_sessiond_process::fault;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::Lock as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use self::peers::Peers;
use crate::contents::{Access, Contents, Heartbeat, Keeping};
use crate::engine::{Engine, home_of};
use crate::storage::Version;
use crate::wills::Wills;

/// How often a daemon renews its heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A daemon whose heartbeat has not changed for so long is dead to the others.
const SILENCE: Duration = Duration::from_secs(60);

/// What one daemon does as a member of a fleet.
pub struct Fleet {
    engine: Arc<Engine>,
    contents: Arc<Contents>,
    wills: Arc<Wills>,
    heartbeat: Duration,
    silence: Duration,
    own: tokio::sync::Mutex<Own>,
    peers: Mutex<Peers>,
    /// Something depends on this daemon, or on another that was not known.
    woken: Notify,
}

/// The heartbeat of this daemon.
#[derive(Default)]
struct Own {
    /// The one on record, and when it was given.
    given: Option<(Heartbeat, Instant)>,
    /// When something depended on it last.
    needed: Option<Instant>,
    /// Whether others may have taken sessions over.
    is_checked: bool,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fleet({:?})", self.peers())
    }
}

impl Fleet {
    /// A member that has sent no heartbeat so far.
    pub fn new(engine: Arc<Engine>, contents: Arc<Contents>, wills: Arc<Wills>) -> Self {
        let millis = |(heartbeat, silence)| {
            (
                Duration::from_millis(heartbeat),
                Duration::from_millis(silence),
            )
        };
        let (heartbeat, silence) = fault::fleet_ms().map_or((HEARTBEAT, SILENCE), millis);
        let (own, peers, woken) = Default::default();
        Self {
            engine,
            contents,
            wills,
            heartbeat,
            silence,
            own,
            peers,
            woken,
        }
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.locked()
    }

    fn is_shared(&self) -> bool {
        self.contents.store().is_shared()
    }

    /// Something is about to depend on this daemon: has it send a heartbeat first, if there is no
    /// recent one.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn needed(&self) -> Result<(), Error> {
        if !self.is_shared() {
            return Ok(());
        }
        let mut own = self.own.lock().await;
        own.needed = Some(Instant::now());
        let is_recent = |(_, at): &(Heartbeat, Instant)| at.elapsed() < 2 * self.heartbeat;
        if !own.given.as_ref().is_some_and(is_recent) {
            self.give(&mut own).await?;
            self.woken.notify_one();
        }
        Ok(())
    }

    /// Puts on record that this machine has the server of a service's session, or will have it.
    ///
    /// # Errors
    /// [`Error::SessionHeld`] as long as another machine has it whose daemon sends heartbeats;
    /// [`Error::Unavailable`].
    pub async fn keep_here(&self, access: &Access) -> Result<(), Error> {
        if !self.is_shared() {
            return Ok(());
        }
        self.needed().await?;
        let mut gone: Option<String> = None;
        loop {
            match self
                .contents
                .keep_at(access, self.engine.home(), gone.as_deref())
                .await?
            {
                Keeping::Here => return Ok(()),
                Keeping::TakenFrom(daemon) => {
                    let session = &access.place.name;
                    tracing::warn!(
                        session,
                        daemon,
                        "took over a session whose server ran on another machine: the daemon there sends no heartbeat"
                    );
                    return Ok(());
                }
                Keeping::Elsewhere(home) if self.is_gone(&home).await? => gone = Some(home),
                Keeping::Elsewhere(_) => return Err(Error::SessionHeld),
            }
        }
    }

    /// Whether a daemon sends no heartbeat. One that was not heard of before gets the time to
    /// give one.
    async fn is_gone(&self, home: &str) -> Result<bool, Error> {
        let Some(version) = self.contents.heartbeat_of(home).await? else {
            return Ok(true);
        };
        let (was_watching, silent) = {
            let mut seen = self.peers();
            (!seen.is_empty(), seen.hear(home, version))
        };
        if !was_watching {
            self.woken.notify_one();
        }
        Ok(silent >= self.silence)
    }

    /// Sends heartbeats, and looks for those of others, until it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut looked = Instant::now();
        loop {
            if !self.is_shared() {
                // It may be one day, if none could be opened so far.
                self.woken.notified().await;
                continue;
            }
            if let Err(error) = self.round(&mut looked).await {
                tracing::debug!(%error, "could not send a heartbeat, or look for those of other daemons");
            }
            let sweep_ms = self.engine.settings().loaded.config.sessions.sweep_ms;
            let is_idle = self.own.lock().await.given.is_none() && self.peers().is_empty();
            let pause = if is_idle {
                Duration::from_millis(sweep_ms)
            } else {
                self.heartbeat
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.woken.notified() => {}
                () = self.wills.found() => {}
            }
        }
    }

    async fn round(&self, looked: &mut Instant) -> Result<(), Error> {
        self.renew().await?;
        let heartbeats = self.contents.heartbeats().await?;
        let silent = {
            let mut seen = self.peers();
            self.wills
                .others()
                .into_iter()
                .for_each(|home| seen.know(home));
            // Whoever was stopped for long, as this daemon may have been, gets the time to give a
            // heartbeat.
            seen.look(&heartbeats, looked.elapsed().min(2 * self.heartbeat));
            *looked = Instant::now();
            seen.forget(self.engine.home());
            seen.silent(self.silence)
        };
        for (home, version) in silent {
            self.stand_in(home, version).await?;
        }
        Ok(())
    }

    /// Renews the heartbeat of this daemon, or removes it if nothing has depended on it for a
    /// while.
    async fn renew(&self) -> Result<(), Error> {
        let mut own = self.own.lock().await;
        if !self.wills.is_empty() || self.engine.serves() {
            own.needed = Some(Instant::now());
        }
        if own.needed.is_some_and(|at| at.elapsed() < self.silence) {
            self.give(&mut own).await?;
        } else if let Some((heartbeat, _)) = &own.given {
            self.contents.remove_heartbeat(heartbeat).await?;
            own.given = None;
        }
        Ok(())
    }

    async fn give(&self, own: &mut Own) -> Result<(), Error> {
        let former = own.given.as_ref().map(|(heartbeat, _)| heartbeat.version);
        let is_late = own
            .given
            .as_ref()
            .is_none_or(|(_, at)| at.elapsed() >= self.silence);
        let (heartbeat, is_removed) = self
            .contents
            .send_heartbeat(self.engine.home(), former)
            .await?;
        own.given = Some((heartbeat, Instant::now()));
        own.is_checked &= !is_late && !is_removed;
        if !own.is_checked {
            self.let_go().await?;
            own.is_checked = true;
        }
        Ok(())
    }

    /// Ends the servers of sessions that others have taken over while this daemon sent no
    /// heartbeat.
    async fn let_go(&self) -> Result<(), Error> {
        for of in self.engine.served_sessions() {
            let kept_at = match self
                .contents
                .kept_at(&Access::service(&of.0, &of.1, None))
                .await
            {
                Err(Error::UnknownSession) => None,
                kept_at => kept_at?,
            };
            if kept_at.is_some_and(|home| home != self.engine.home()) {
                tracing::warn!(session = %of.1, "ends the server of a session that another machine has taken over");
                self.engine.end_served(&of);
            }
        }
        Ok(())
    }

    /// Carries out the last wills of a daemon that sends no heartbeat any more, and removes the one
    /// that it gave last.
    async fn stand_in(&self, home: String, version: Option<Version>) -> Result<(), Error> {
        let mut done = 0_usize;
        for will in self.contents.wills().await? {
            if home_of(&will.author) == Some(&*home) && self.wills.carry_out_once(&will).await? {
                done += 1;
            }
        }
        if done > 0 {
            tracing::warn!(
                daemon = home,
                wills = done,
                "another daemon sends no heartbeat; carried out the last wills of its streams"
            );
        }
        let is_over = match version {
            Some(version) => {
                self.contents
                    .remove_heartbeat(&Heartbeat {
                        home: home.clone(),
                        version,
                    })
                    .await?
            }
            None => true,
        };
        if is_over {
            self.peers().forget(&home);
        }
        Ok(())
    }
}
