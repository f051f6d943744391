//! One of several backends, in a keeper of its own.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures::future::BoxFuture;
use mcp_sessiond_bundle::{End, Failure, FailureCode, Pipe, Source, TrackedLine, WAITING};
use mcp_sessiond_client::{ClaimRequest, Loss, Options};
use mcp_sessiond_proto::types::LeaseRef;
use mcp_sessiond_proto::{BackendName, LossId};
use tokio::sync::{mpsc, oneshot, watch};

use super::forward::{Carrying, NamedStderr};
use super::leave::{PendingLeave, PendingLeaves};
use super::{Launch, Server};
use crate::front::open::Open;
use crate::id_prefix::{IdPrefix, with_id_prefix};
use crate::program::Program;
use crate::server::attach::{Attachment, NoBackend, attach_first_waiting};
use crate::server::child;
use crate::server::kept::Door;
use crate::server::remote::{ResumeStore, StoreUsers};
use crate::server::shared::Looking;
use crate::signals::{GivenMask, ending_signal};
use crate::stderr::Stderr;
use crate::waits::Waits;

/// What all backends of a front have in common.
#[derive(Debug, Clone)]
pub(crate) struct BundleContext {
    pub(crate) options: Options,
    pub(crate) claim: ClaimRequest,
    pub(crate) mask: GivenMask,
    pub(crate) waits: Waits,
    pub(crate) stderr: Stderr,
    /// Whether the host has closed its end: what is under way is still answered.
    pub(crate) leaving: watch::Receiver<bool>,
    /// The lease on the session, where there is one.
    pub(crate) lease: Option<LeaseRef>,
    /// Who uses what is kept of servers that run elsewhere.
    pub(crate) shelves: StoreUsers,
    /// The keepers that have yet to be told that the host has left.
    pub(crate) pending_leaves: PendingLeaves,
    /// What was lost of the session before this front claimed it: of which of its servers, each of
    /// them shows.
    pub(crate) lost: Option<Loss>,
    /// The servers of which the claim was told that they were lost.
    pub(crate) lost_members: Vec<BackendName>,
    /// The losses that the claim was told of, which the front tells.
    pub(crate) claimed_losses: Vec<LossId>,
    /// Why there are no keepers, where there can be none.
    pub(crate) unkept: Option<String>,
}

/// A backend of a server in the list.
#[derive(Debug)]
pub(crate) struct Backend {
    server: Server,
    common: Arc<BundleContext>,
    single: Option<Single>,
    /// What is kept of it, if it runs elsewhere.
    store: ResumeStore,
}

/// What is different where the server is the only one: its keeper has no name, and if it can't be
/// started at first, that is the front's to say.
#[derive(Debug, Default)]
struct Single {
    has_begun: AtomicBool,
    failed: Mutex<Option<NoBackend>>,
    /// Why it could not be started, as was said last: it is tried again and again.
    said: Mutex<String>,
    /// Whether there was a connection to it already.
    was_opened: AtomicBool,
}

impl Backend {
    pub(crate) fn new(server: Server, common: Arc<BundleContext>) -> Self {
        let BundleContext {
            options,
            lease,
            stderr,
            leaving,
            shelves,
            ..
        } = &*common;
        let store = ResumeStore::new(
            options,
            lease.as_ref(),
            &server.name,
            stderr.clone(),
            leaving.clone(),
        );
        let store = shelves.share(store);
        Self {
            server,
            common,
            single: None,
            store,
        }
    }

    /// The only one.
    pub(crate) fn single(server: Server, common: Arc<BundleContext>) -> Self {
        Self {
            single: Some(Single::default()),
            ..Self::new(server, common)
        }
    }

    /// It was tried to start the only one. Returns why it could not be started, if it was tried and
    /// could not.
    pub(crate) fn first_failure(&self) -> Option<NoBackend> {
        let single = self.single.as_ref()?;
        single.has_begun.store(true, Ordering::SeqCst);
        single
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The name of its keeper; none where it needs none.
    fn keeper_name(&self) -> Result<Option<BackendName>, Failure> {
        if self.single.is_some() {
            return Ok(None);
        }
        let why = "its name has more than 119 bytes, or control characters";
        self.server
            .keeper_name()
            .map(Some)
            .ok_or_else(|| Failure::new(FailureCode::BadEntry, why))
    }

    fn stderr(&self) -> NamedStderr {
        let name = self.single.is_none().then(|| self.server.name.clone());
        NamedStderr {
            name,
            stderr: self.common.stderr.clone(),
        }
    }

    fn carrying(&self) -> (Carrying, mpsc::Sender<Bytes>, mpsc::Receiver<TrackedLine>) {
        let (to, wanted) = mpsc::channel(WAITING);
        let (said, from) = mpsc::channel(WAITING);
        let stderr = self.stderr();
        let leaving = self.common.leaving.clone();
        let is_first = |single: &Single| !single.was_opened.swap(true, Ordering::SeqCst);
        let id_prefix = (!self.single.as_ref().is_some_and(is_first)).then(IdPrefix::mint);
        let pending_leaves = self.common.pending_leaves.clone();
        let carrying = Carrying {
            door: None,
            open: Open::default(),
            wanted,
            said,
            stderr,
            leaving,
            pending_leaves,
            id_prefix,
            lost: self.common.lost,
            claimed_losses: self.common.claimed_losses.clone(),
            is_told: self
                .server
                .keeper_name()
                .is_some_and(|own| self.common.lost_members.contains(&own)),
            is_used: false,
            untold: None,
        };
        (carrying, to, from)
    }

    fn not_opened(&self, why: NoBackend) -> Failure {
        let sentence = why.to_string();
        let is_first = |single: &&Single| !single.has_begun.load(Ordering::SeqCst);
        if let Some(single) = self.single.as_ref().filter(is_first) {
            *single.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            return Failure::new(FailureCode::NotStarted, sentence);
        }
        // Of one of several the bundle's report says it.
        if let Some(single) = &self.single {
            let mut said = single.said.lock().unwrap_or_else(PoisonError::into_inner);
            if *said != sentence {
                self.stderr().print(&sentence);
                *said = sentence;
            }
        }
        match why {
            NoBackend::NoProgram { sentence, .. } => Failure::not_found(sentence),
            why => Failure::new(FailureCode::NotStarted, why.to_string()),
        }
    }
}

impl Source for Backend {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            let (launch, common) = (self.server.launch.clone(), self.common.clone());
            let (program, environment, home, shared) = match blocking(move || launch()).await?? {
                Launch::Program {
                    program,
                    environment,
                    home,
                } => (program, environment, home, None),
                Launch::Shared(shared) => {
                    let (environment, home) = shared.launch_env();
                    (shared.program(), environment, home, Some(shared))
                }
                Launch::Remote(connecting) => {
                    return connecting
                        .connect(self.store.anew())
                        .await
                        .map(with_id_prefix);
                }
            };
            if let Some(why) = &common.unkept {
                let name = &self.server.name;
                common
                    .stderr
                    .print(&format_args!("{name}: {why}; it is run without being kept"));
                return child::start(&program, &environment, home, &common.mask)
                    .map(with_id_prefix);
            }
            let name = self.keeper_name()?;
            let own = common.clone();
            let door = move || {
                let BundleContext {
                    options,
                    claim,
                    mask,
                    waits,
                    ..
                } = &*own;
                let door = Door::new(options.clone(), claim.clone(), program, *mask, *waits)?;
                Ok(door.for_backend(name, environment, home))
            };
            if let Some(shared) = shared {
                let door = blocking(door).await?.map_err(|why| self.not_opened(why))?;
                let end = End::new({
                    let stopper = door.stopper();
                    || Box::pin(stopper.stop())
                });
                let (carrying, to, from) = self.carrying();
                let launch = self.server.launch.clone();
                let looking = Looking::new(move || match launch() {
                    Ok(Launch::Shared(shared)) => Ok(shared),
                    Ok(_) => Err("it is no longer shared".to_owned()),
                    Err(failure) => Err(failure.message),
                });
                tokio::spawn(carrying.run_shared(shared, looking, door, common.mask));
                return Ok(Pipe { to, from, end });
            }
            let waits = common.waits;
            let opened = blocking(move || {
                let mut door = door()?;
                attach_first_waiting(&mut door, waits).map(|attachment| (door, attachment))
            });
            // A task of its own, which comes to its end also where nobody waits for it any more.
            let (give, given) = oneshot::channel();
            let pending_leave = common.pending_leaves.add();
            tokio::spawn(async move {
                let opened = opened.await;
                let both = |(door, attachment)| Some((door, attachment, pending_leave));
                drop(give.send(opened.map(|opened| {
                    opened.map(|it| OpenGuard {
                        both: both(it),
                        common,
                    })
                })));
            });
            let lost = || Failure::new(FailureCode::NotStarted, "it was not started");
            let mut opened = given
                .await
                .map_err(|_| lost())??
                .map_err(|why| self.not_opened(why))?;
            let (door, attachment, pending_leave) = opened.both.take().ok_or_else(lost)?;
            let stopper = door.stopper();
            let (mut carrying, to, from) = self.carrying();
            carrying.door = Some(Box::new(door));
            tokio::spawn(carrying.run(attachment, pending_leave));
            Ok(Pipe {
                to,
                from,
                end: End::new(|| Box::pin(stopper.stop())),
            })
        })
    }

    fn is_running(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let (Ok(name), None) = (self.keeper_name(), &self.common.unkept) else {
                return false;
            };
            let common = self.common.clone();
            // Nothing is started by this, so it need not be known what.
            let program = Program {
                name: OsString::new(),
                arguments: Vec::new(),
                title: None,
            };
            let looked = blocking(move || {
                let BundleContext {
                    options,
                    claim,
                    mask,
                    waits,
                    ..
                } = &*common;
                let door = Door::new(options.clone(), claim.clone(), program, *mask, *waits);
                let until = Instant::now() + waits.keeper;
                door.is_ok_and(|door| door.for_backend(name, Vec::new(), None).is_running(until))
            });
            looked.await.unwrap_or(false)
        })
    }
}

/// What was opened. If nobody takes it, the server is ended; where the host has left, it waits for
/// the next one as the others do.
struct OpenGuard {
    both: Option<(Door, Attachment, PendingLeave)>,
    common: Arc<BundleContext>,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let Some((door, attachment, _pending_leave)) = self.both.take() else {
            return;
        };
        if *self.common.leaving.borrow() {
            attachment.sender.leave(ending_signal());
        } else {
            tokio::spawn(door.stopper().stop());
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Failure::new(FailureCode::NotStarted, error.to_string()))
}
