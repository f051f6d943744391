//! [`KeeperConnector`]: from a claim to a connection to the keeper that holds the session's backend.
//! `faulty`: keepers that hang or can't be reached.

mod faulty;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use mcp_sessiond_client::{
    CALL_TIMEOUT, ConnectError, Control, Error, Options, Outcome, SessionError,
};
use mcp_sessiond_process::{self as process, executable};
use mcp_sessiond_proto::backends::{Attach, Backend, KeeperReply, KeeperRequest, StopReason};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::services::FindRequest;
use mcp_sessiond_proto::types::LeaseRef;
use mcp_sessiond_proto::{
    BackendName, ClaimRequest, Claimed, ClientName, Epoch, Json, KeeperName, Loss, LossId,
    SessionId, paths,
};
use tokio::time::timeout_at;

use self::faulty::REFUSING_PART;
use super::connector::{
    Attachment, Connected, Connector, Hello, NoBackend, START_MAX, WithoutKeeper,
};
pub use super::daemon_calls::SessionCalls;
use super::daemon_calls::{RELEASE_WAIT, loss_told};
use super::facts::{self, ServerFacts};
pub(crate) use super::keeper_watch::{KeeperWatch, PingTimer};
use super::without_daemon;
use crate::frames::FrameSender;
use crate::front_settings::{FrontSettings, Tell};
use crate::keeper::dial::{DialError, Dialled, dial_waiting};
use crate::keeper::launch::{BackendOf, Launch, Report, Starting};
use crate::keeper::silence::{Silence, stalled_sentence};
use crate::memory::Dumpable;
use crate::notices::{CarriedLoss, ConfirmLoss, print};
use crate::program::Program;
use crate::signals::GivenMask;

/// How long a keeper waits for its front, as a multiple of what a host waits for us: the front has
/// given up by then.
const KEEPER_WAIT: (u32, u32) = (5, 2);

/// What has happened when a keeper was lost and there is another one.
pub(crate) const KEEPER_REPLACED: &str =
    "the keeper of the server had ended, and the server with it; a fresh one was started";

/// Claims a session, and finds or starts the keeper of its backend.
#[derive(Debug)]
pub struct KeeperConnector {
    control: Control,
    options: Options,
    claim: ClaimRequest,
    directory: PathBuf,
    program: Program,
    mask: GivenMask,
    /// The first claim was answered: control and claim are those of all later ones.
    has_claimed: bool,
    /// How long a host waits for us, and since when.
    wait: Duration,
    began: Instant,
    lease: Arc<Mutex<Option<LeaseRef>>>,
    /// The keeper that was asked last, in vain so far.
    silence: Option<Silence>,
    /// A claim was begun whose answer is not known, so the daemon may still read what this process was
    /// started with: at its first claim, and where it has lost its records.
    claiming: Option<Dumpable>,
    /// A claim without an answer was repeated, and had none either so far.
    is_repeated: bool,
    /// Another connector has claimed the session, and gives it up.
    is_member: bool,
    /// The keeper that is being started, and the one that was, as long as this front has not attached
    /// to it.
    starting: Option<Starting>,
    unattached: Option<KeeperName>,
    /// What a claim was told and no attachment has said yet, with its number on record.
    told: Option<(Loss, Option<LossId>)>,
    /// Where losses are told.
    tell: Tell,
    /// A call of the host's has failed with the former server.
    has_failed_call: bool,
    /// The keeper has refused this front, since the former one has closed: whether the server had
    /// been used. The session has yet to be given up.
    closed: Option<bool>,
    /// The keeper that has refused this front, or had nobody listening, and since when.
    refusing: Option<(KeeperName, Instant)>,
    /// A daemon that does not answer is waited for.
    holds: bool,
    /// Whether a name that another host has is waited for.
    waits_for_name: bool,
    /// The server is one of the host's own, since another host has the name.
    is_own: bool,
    /// Its user was told of that, or that the name is waited for.
    has_told_of_name: bool,
    /// Which backend of the session this is, where it has several.
    backend: Option<BackendName>,
    /// What the backend gets in addition to what this process has, and where it runs instead.
    environment: Vec<(OsString, OsString)>,
    home: Option<PathBuf>,
    /// What is started with all that, for what is known of it.
    server: OnceLock<ServerDigest>,
}

impl KeeperConnector {
    /// Nothing is asked of anybody yet.
    ///
    /// # Errors
    /// When there is no runtime directory that can be used.
    pub fn new(
        options: Options,
        claim: ClaimRequest,
        program: Program,
        mask: GivenMask,
        FrontSettings {
            keeper_wait: wait,
            tell,
            waits_for_name,
            ..
        }: FrontSettings,
    ) -> Result<Self, NoBackend> {
        let failed = |error: &dyn std::fmt::Display| NoBackend::NoSession(None, error.to_string());
        let directory = paths::directory().map_err(|error| failed(&error))?;
        let control = Control::new(options.clone().timeout(wait));
        let lease = Arc::default();
        Ok(Self {
            control,
            options,
            claim,
            directory,
            program,
            mask,
            has_claimed: false,
            wait,
            began: Instant::now(),
            lease,
            silence: None,
            claiming: None,
            is_repeated: false,
            is_member: false,
            starting: None,
            unattached: None,
            told: None,
            tell,
            has_failed_call: false,
            closed: None,
            refusing: None,
            holds: false,
            waits_for_name,
            is_own: false,
            has_told_of_name: false,
            backend: None,
            environment: Vec::new(),
            home: None,
            server: OnceLock::new(),
        })
    }

    /// The way to a backend of the session that this process has claimed already. `name` says to
    /// which, where there are several.
    pub fn for_backend(
        self,
        name: Option<BackendName>,
        environment: Vec<(OsString, OsString)>,
        home: Option<PathBuf>,
    ) -> Self {
        let mut member = Self {
            backend: name,
            is_member: true,
            ..self.with_launch_env(environment, home)
        };
        member.set_claimed();
        member
    }

    /// The way to the backend of this name, of a session that is still to be claimed.
    pub fn named(self, backend: Option<BackendName>) -> Self {
        Self { backend, ..self }
    }

    /// The backend gets these variables in addition to those of this process, and runs there
    /// instead.
    pub fn with_launch_env(
        self,
        environment: Vec<(OsString, OsString)>,
        home: Option<PathBuf>,
    ) -> Self {
        Self {
            environment,
            home,
            server: OnceLock::new(),
            ..self
        }
    }

    /// What this front's server is started with.
    pub(crate) fn server(&self) -> &ServerDigest {
        self.server.get_or_init(|| {
            facts::digest_of(&self.program, &self.environment, self.home.as_deref())
        })
    }

    /// What the daemon knows of this front's server.
    pub(crate) fn facts(&self) -> ServerFacts {
        ServerFacts::new(self.options.clone(), self.server().clone())
    }

    /// The client's name, once it is known. Nothing was claimed yet.
    pub(crate) fn set_client(&mut self, client: Option<ClientName>) {
        self.claim.client = client;
    }

    /// Has a daemon started, where there is none and there may be one.
    ///
    /// # Errors
    /// [`NoBackend`].
    pub async fn wake_daemon(&self) -> Result<(), NoBackend> {
        let woken = self.control.call(|_, _| async { Ok(Ok(())) }).await;
        self.control.hang_up();
        woken.map_err(Self::no_session)
    }

    /// Claims the session, and asks for no backend.
    ///
    /// # Errors
    /// [`NoBackend`].
    pub async fn claim(&mut self, until: Instant) -> Result<Claimed, NoBackend> {
        let claimed = self.claim_by(self.claim.clone(), until).await;
        self.control.hang_up();
        claimed
    }

    /// The same by this request, and keeps the connection.
    async fn claim_by(
        &mut self,
        claim: ClaimRequest,
        until: Instant,
    ) -> Result<Claimed, NoBackend> {
        let late = |_| {
            let why = "the daemon did not answer in time; see `mcp-sessiond doctor`";
            NoBackend::Unanswered(why.to_owned())
        };
        let claim = ClaimRequest {
            // A first claim that is answered later would give a lease to a front that has given up.
            wait_ms: (!self.has_claimed).then(|| wait_ms(self.wait)).flatten(),
            confirms_loss: true,
            closed: self.closed,
            ..claim
        };
        self.claiming.get_or_insert_with(Dumpable::begin);
        let claimed = timeout_at(until.into(), self.control.claim(claim)).await;
        let claimed = claimed.map_err(late)?;
        self.claiming = None;
        let claimed = claimed.map_err(Self::no_session)?;
        let lease = LeaseRef {
            session: claimed.session.clone(),
            epoch: claimed.epoch,
        };
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
        if let (Some(why), Some(named)) = (&claimed.own, &self.claim.named) {
            self.program.title = named.own_name();
            self.is_own = true;
            self.tell_of_name(&why);
        }
        Ok(claimed)
    }

    /// What the front of a list may do that could not claim its session, for this reason.
    pub(crate) fn list_without_keepers(&mut self, why: &NoBackend) -> WithoutKeeper {
        let may = match why {
            NoBackend::NoSession(None, _) | NoBackend::Passing(_) | NoBackend::Unanswered(_) => {
                without_daemon::decide_list(&self.directory, why, self.is_repeated)
            }
            _ => WithoutKeeper::RunUnkept(None),
        };
        self.note_decision(&may);
        may
    }

    fn note_decision(&mut self, may: &WithoutKeeper) {
        self.holds |= matches!(may, WithoutKeeper::Wait(_));
        self.is_repeated |= matches!(may, WithoutKeeper::ClaimAgain);
        if let WithoutKeeper::RunUnkept(_) = may {
            // One that comes late starts nothing.
            self.starting = None;
        }
    }

    /// Tells its user what became of the name, once.
    fn tell_of_name(&mut self, what: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.has_told_of_name, true) {
            print(what);
        }
    }

    /// What is claimed after the first time: what is lost from then on is not to be lost twice, what is
    /// taken is not taken back, and a name that is taken is not replaced.
    fn next_claim(&self) -> ClaimRequest {
        let mut claim = self.claim.clone();
        claim.fresh = false;
        if let Some(named) = &mut claim.named {
            named.take = false;
            // Whoever loses the name gets nothing in its place.
            named.own &= self.is_own;
        }
        claim
    }

    /// From now on control and claim are those of all later attempts.
    fn set_claimed(&mut self) {
        self.has_claimed = true;
        self.claim = self.next_claim();
        // The first attempt to get a keeper may go on for as long as the host waits for us, and the
        // daemon may answer that late.
        let timeout = self.wait.max(CALL_TIMEOUT);
        self.control = Control::new(self.options.clone().timeout(timeout));
    }

    /// Claims the session, and attaches to the keeper of its backend, which is started if there is
    /// none.
    async fn claim_and_attach(
        &mut self,
        initialize: Option<&Json>,
        until: Instant,
    ) -> Result<Attachment, NoBackend> {
        let is_first = initialize.is_none();
        let (outcome, found, attached) = loop {
            let (claimed, found) = self.find(until).await?;
            if !self.has_claimed {
                self.set_claimed();
            }
            self.closed = None;
            let Claimed {
                session,
                epoch,
                outcome,
                ..
            } = claimed;
            let lease = LeaseRef { session, epoch };
            let found = found.map(|found| found.keeper);
            let attached = self.attach_or_launch(&lease, found, initialize, until);
            match attached.await {
                // The session that is claimed now is a fresh one, whose keeper refuses nobody.
                Err(NoBackend::Closed { used }) => self.closed = Some(used),
                attached => break (outcome, found, attached?),
            }
        };
        let is_news = is_first && self.claim.named.is_some() && attached.attached.resumed;
        let differing = match found.filter(|_| is_news) {
            Some(keeper) => self.differing(keeper, until).await,
            None => Vec::new(),
        };
        let told = self.told.take();
        Ok(Attachment {
            outcome,
            loss: told.map(|(because, id)| self.carried(because, id)),
            differing,
            ..attached
        })
    }

    /// Attaches to the keeper that was found, or to one that is started.
    async fn attach_or_launch(
        &mut self,
        lease: &LeaseRef,
        found: Option<KeeperName>,
        initialize: Option<&Json>,
        until: Instant,
    ) -> Result<Attachment, NoBackend> {
        // Its connection is not needed until something happens to the keeper.
        self.control.hang_up();
        if let Some(keeper) = found {
            let attached = self.attach_to(keeper, lease, initialize, until).await;
            let why = match attached {
                Ok(attachment) => {
                    self.refusing = None;
                    return Ok(attachment);
                }
                Err(why) => why,
            };
            match &why {
                DialError::Stalled(_)
                | DialError::Silent
                | DialError::Busy
                | DialError::Closed { .. } => return Err(Self::unanswered(why)),
                DialError::Hung => {
                    let reason = StopReason::KeeperHung(keeper);
                    return Err(self.end_keeper(lease, keeper, reason).await);
                }
                // The claim was made before the daemon knew: another one carries what was lost.
                _ if !self.has_keeper(lease, keeper).await => {
                    self.find(until).await?;
                    self.control.hang_up();
                }
                _ if self.refuses_for_long(keeper) => {
                    let reason = StopReason::KeeperUnreachable(keeper);
                    return Err(self.end_keeper(lease, keeper, reason).await);
                }
                _ => return Err(NoBackend::Passing(why.to_string())),
            }
        }
        if let Some(taken) = self.taken_without_daemon() {
            return Err(NoBackend::Taken(taken));
        }
        let keeper = self.launch(lease, until).await?;
        let attached = self.attach_to(keeper, lease, initialize, until).await;
        attached.map_err(Self::unanswered)
    }

    /// Why a keeper has not let this front in. One that lives is waited for.
    fn unanswered(why: DialError) -> NoBackend {
        match why {
            DialError::Stalled(_) | DialError::Silent | DialError::Busy => {
                NoBackend::Stalled(why.to_string())
            }
            DialError::Closed { used } => NoBackend::Closed { used },
            why => NoBackend::Passing(why.to_string()),
        }
    }

    /// How a keeper is asked whose session, this one, another process has claimed.
    pub(crate) fn watch_of(
        &self,
        directory: &Path,
        keeper: KeeperName,
        server: &str,
        session: SessionId,
    ) -> KeeperWatch {
        let lease = Arc::new(Mutex::new(Some(lease_of(session))));
        KeeperWatch {
            directory: directory.to_owned(),
            keeper,
            server: server.to_owned(),
            session: SessionCalls::new(self.options.clone(), lease, None),
        }
    }

    /// Who runs a server of this name and has had no daemon, in a sentence, if anybody does.
    pub(crate) fn taken_without_daemon(&self) -> Option<String> {
        let named = self.claim.named.as_ref();
        let name = &named.filter(|_| !self.is_own)?.name;
        without_daemon::taken(&self.directory, name)
    }

    /// Whether the backend has a keeper already.
    pub async fn is_running(&mut self, until: Instant) -> bool {
        let found = self.find(until).await;
        self.control.hang_up();
        matches!(found, Ok((_, Some(_))))
    }

    /// Claims the session, and looks for its backend.
    async fn find(&mut self, until: Instant) -> Result<(Claimed, Option<Backend>), NoBackend> {
        let (claimed, found) = self.claim_and_find(until).await?;
        let is_told = self.loss_of(&claimed).is_some();
        if found.is_some() || claimed.outcome.is_fresh() || is_told {
            return Ok((claimed, found));
        }
        // The daemon may have learned of the keeper's end between the two questions: another claim
        // carries what was lost.
        let (_, found) = self.claim_and_find(until).await?;
        Ok((claimed, found))
    }

    async fn claim_and_find(
        &mut self,
        until: Instant,
    ) -> Result<(Claimed, Option<Backend>), NoBackend> {
        let claimed = self.claim_by(self.claim.clone(), until).await?;
        // What follows may fail, and the next claim need not carry it again.
        if let Some(told) = self.loss_of(&claimed) {
            self.told = Some(told);
        }
        let lease = LeaseRef {
            session: claimed.session.clone(),
            epoch: claimed.epoch,
        };
        // As long as a former backend is being ended, the daemon is asked again and again.
        let found = timeout_at(until.into(), self.find_backend(&lease)).await;
        let found = match found {
            Ok(found) => found.map_err(|error| match error {
                SessionError::Refused(error @ Error::Unavailable { .. }) => {
                    NoBackend::Ending(error.to_string())
                }
                SessionError::Refused(error) => NoBackend::Passing(error.to_string()),
                error => Self::no_session(error),
            })?,
            // It may also be that the daemon does not answer.
            Err(_) => {
                let why = "the previous server is still being ended".to_owned();
                return Err(NoBackend::Ending(why));
            }
        };
        self.is_repeated = false;
        Ok((claimed, found))
    }

    /// The session's backend, as the daemon knows it.
    async fn find_backend(&self, lease: &LeaseRef) -> Result<Option<Backend>, SessionError> {
        let LeaseRef { session, epoch } = lease.clone();
        let request = FindRequest {
            session,
            epoch,
            service: None,
            backend: self.backend.clone(),
        };
        self.control.ask(Client::find_backend, request).await
    }

    /// Whether the daemon still takes this keeper for the session's.
    async fn has_keeper(&self, lease: &LeaseRef, keeper: KeeperName) -> bool {
        let found = self.find_backend(lease).await;
        self.control.hang_up();
        matches!(found, Ok(Some(backend)) if backend.keeper == keeper)
    }

    fn no_session(error: SessionError) -> NoBackend {
        let sentence = error.to_string();
        match error {
            SessionError::Refused(Error::NameTaken { sentence }) => NoBackend::Taken(sentence),
            SessionError::Refused(
                error @ (Error::QuotaExceeded { .. } | Error::NoVerifiedHost { .. }),
            ) => NoBackend::NoSession(Some(error), sentence),
            SessionError::NoAnswer(_)
            | SessionError::Connect(ConnectError::Timeout { .. })
            | SessionError::Refused(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {
                NoBackend::Unanswered(sentence)
            }
            SessionError::Connect(_) => NoBackend::NoSession(None, sentence),
            _ => NoBackend::Passing(sentence),
        }
    }

    /// Starts a keeper, and waits until it has registered and started the backend.
    async fn launch(&mut self, lease: &LeaseRef, until: Instant) -> Result<KeeperName, NoBackend> {
        let passing = |error| NoBackend::Passing(format!("no keeper could be started: {error}"));
        if self.starting.is_none() {
            self.starting = Some(self.start(lease).map_err(passing)?);
        }
        match self.started(until).await.map_err(passing)? {
            Report::Ready(name) => Ok(name),
            Report::NoProgram { code, sentence } => Err(NoBackend::NoProgram { code, sentence }),
            Report::NoLease(sentence) | Report::NoSession(sentence) | Report::Failed(sentence) => {
                Err(NoBackend::Passing(sentence))
            }
        }
    }

    /// Waits for the report of the keeper that is being started.
    async fn started(&mut self, until: Instant) -> io::Result<Report> {
        let starting = self.starting.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let report = starting
            .report(until, until.max(self.began + START_MAX))
            .await;
        self.starting = None;
        if let Ok(Report::Ready(name)) = report {
            self.unattached = Some(name);
        }
        report
    }

    fn start(&self, lease: &LeaseRef) -> io::Result<Starting> {
        let binary = executable::own().ok_or(io::ErrorKind::NotFound)?;
        let launch = Launch {
            starts_daemon: self.options.starts_daemon(),
            descriptors: None,
            binary: &binary,
            of: BackendOf::Session {
                session: lease.session.clone(),
                service: None,
                backend: self.backend.clone(),
                server: Some(self.server().clone()),
                epoch: lease.epoch,
            },
            wait: self.wait * KEEPER_WAIT.0 / KEEPER_WAIT.1,
            program: &self.program,
            inherits: None,
            environment: &self.environment,
            home: self.home.as_deref(),
        };
        launch.start(&self.mask)
    }

    /// Attaches to this keeper, which is waited for while it can't answer.
    async fn attach_to(
        &mut self,
        keeper: KeeperName,
        lease: &LeaseRef,
        initialize: Option<&Json>,
        until: Instant,
    ) -> Result<Attachment, DialError> {
        let attach = Attach {
            session: lease.session.clone(),
            epoch: lease.epoch,
            initialize: initialize.cloned(),
            service: None,
            continues: false,
            refuses_after_loss: self.tell == Tell::Error,
            lost: self.told_loss(),
            lost_is_told: self.has_failed_call,
        };
        let server = self.display_name();
        let silence = match &mut self.silence {
            Some(silence) if silence.keeper() == keeper => silence,
            other => other.insert(Silence::of(keeper)),
        };
        let notice = |silence: &mut Silence| {
            if let Some(pid) = silence.notice() {
                print(&stalled_sentence(&server, pid, &pid));
            }
        };
        let request = KeeperRequest::Attach(attach);
        let dialled = dial_waiting(&self.directory, &request, until, silence, notice);
        let Dialled {
            stream: reader,
            frames,
            reply,
        } = dialled.await?;
        let attached = match reply {
            KeeperReply::Attached(attached) => attached,
            KeeperReply::Closed { used } => return Err(DialError::Closed { used }),
            _ => return Err(DialError::Answer),
        };
        let sender = Arc::new(FrameSender::new(reader.try_clone()?));
        (self.silence, self.starting, self.unattached) = (None, None, None);
        Ok(Attachment {
            sender,
            reader,
            frames,
            attached,
            outcome: Outcome::Held,
            loss: None,
            differing: Vec::new(),
            watch: Some(KeeperWatch {
                directory: self.directory.clone(),
                keeper,
                server,
                session: self.session(),
            }),
            server: Some(match &self.backend {
                Some(member) => member.in_list().to_owned(),
                None => self.program.display_name(),
            }),
            again: KEEPER_REPLACED,
            notice: None,
        })
    }

    /// What the user calls the server: its name among those of a list.
    fn display_name(&self) -> String {
        let name = self.backend.as_ref();
        name.map_or("this server", BackendName::in_list).to_owned()
    }

    /// The variables that the backend was started with in another way than this process. An older
    /// keeper does not say.
    async fn differing(&self, keeper: KeeperName, until: Instant) -> Vec<String> {
        let compare = KeeperRequest::Compare {
            variables: process::own_variables(),
        };
        let silence = &mut Silence::of(keeper);
        match dial_waiting(&self.directory, &compare, until, silence, |_| {}).await {
            Ok(Dialled {
                reply: KeeperReply::Compared { differing },
                ..
            }) => differing,
            _ => Vec::new(),
        }
    }

    /// What a claim has carried of this connector's backend.
    fn loss_of(&self, claimed: &Claimed) -> Option<(Loss, Option<LossId>)> {
        let mut lost = claimed.lost.iter();
        let own = lost.find(|loss| loss.of == self.backend);
        let because = claimed.because.or(own.map(|loss| loss.because))?;
        Some((because, own.map(|loss| loss.id)))
    }

    /// In a sentence what a claim was told and no attachment has said yet, where a server was lost.
    fn told_loss(&self) -> Option<String> {
        let (because, _) = self.told.filter(|(because, _)| because.is_of_a_server())?;
        Some(because.sentence().to_owned())
    }

    /// The same, for its user.
    pub(crate) fn carried_loss(&self, claimed: &Claimed) -> Option<CarriedLoss> {
        let (because, id) = self.loss_of(claimed)?;
        Some(self.carried(because, id))
    }

    fn carried(&self, because: Loss, id: Option<LossId>) -> CarriedLoss {
        let confirm = self.confirm_loss();
        CarriedLoss::new(because, id, move || {
            if let Some((confirm, id)) = confirm.zip(id) {
                confirm(id);
            }
        })
    }

    /// What tells the daemon that a loss was told, under the lease that there is now.
    pub(crate) fn confirm_loss(&self) -> Option<ConfirmLoss> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let (options, lease) = (self.options.clone(), lease.clone()?);
        Some(Arc::new(move |loss| {
            loss_told(options.clone(), lease.clone(), loss);
        }))
    }

    /// What ends the backend, and gives the lease up, from whichever task.
    pub fn session(&self) -> SessionCalls {
        let (options, lease) = (self.options.clone(), self.lease.clone());
        SessionCalls::new(options, lease, self.backend.clone())
    }
}

impl Connector for KeeperConnector {
    fn connect<'a>(
        &'a mut self,
        hello: &'a Hello,
        until: Instant,
    ) -> BoxFuture<'a, Result<Connected, NoBackend>> {
        Box::pin(async move {
            let initialize = hello.initialize.as_ref();
            self.has_failed_call = hello.has_failed_call;
            match self.claim_and_attach(initialize, until).await {
                Err(
                    NoBackend::NoSession(None, why)
                    | NoBackend::Passing(why)
                    | NoBackend::Unanswered(why),
                ) if self.holds && !self.has_claimed => Err(NoBackend::Stalled(why)),
                Err(NoBackend::Taken(why)) if self.waits_for_name => {
                    self.tell_of_name(&format_args!("{why}; waiting for it"));
                    Err(NoBackend::Stalled(why))
                }
                attached => attached.map(Box::new).map(Connected::Keeper),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let until = Instant::now() + RELEASE_WAIT;
            // The daemon can end it only once it has registered.
            drop(self.started(until).await);
            if let Some(keeper) = self.unattached.take() {
                let why = StopReason::KeeperUnattached(keeper);
                self.session().stop_for(why).await;
            }
            if self.is_member {
                return;
            }
            if self.claiming.is_some() {
                // The lease may have been granted: another claim of this process says which it is.
                drop(self.claim_by(self.next_claim(), until).await);
                self.control.hang_up();
            }
            self.session().release().await;
        })
    }

    fn without_keeper(&mut self, why: &NoBackend) -> WithoutKeeper {
        let may = match why {
            NoBackend::NoSession(None, _)
            | NoBackend::Passing(_)
            | NoBackend::Unanswered(_)
            | NoBackend::Ending(_) => {
                let (claimed, home) = ((why, self.is_repeated), self.home.as_deref());
                without_daemon::decide(&self.directory, &self.claim, claimed, &self.program, home)
            }
            // The daemon has answered.
            _ => WithoutKeeper::RunUnkept(None),
        };
        self.note_decision(&may);
        may
    }
}

/// What names a session that another process has claimed, where no lease is looked at.
fn lease_of(session: SessionId) -> LeaseRef {
    LeaseRef {
        session,
        epoch: Epoch(0),
    }
}

/// How long a claim may wait for another holder to be gone, so that there is time left for the
/// rest.
fn wait_ms(whole: Duration) -> Option<u32> {
    u32::try_from((whole * REFUSING_PART.0 / REFUSING_PART.1).as_millis()).ok()
}
