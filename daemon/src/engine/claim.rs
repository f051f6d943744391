//! A claim, from the peer that sends it to the token in its hands. [`names`]: one by a name of the
//! user's.

mod names;

use mcp_sessiond_proto::time::now_ms;

use mcp_sessiond_process::{
    self as process, Exhausted, HostDoubt, Key, KeyDoubt, NotAnInstance, PinnedProcess, ProcessId,
    SelfDescription, Traits, Walk, digest,
};
use mcp_sessiond_proto::debug::{Step, WhoAmI};
use mcp_sessiond_proto::types::{Outcome, TokenStatus};
use mcp_sessiond_proto::{
    ClaimRequest, Claimed, Error, Label, LossRecord, Named, Resume, SessionId, Siblings, Token,
};
use mcp_sessiond_registry::{
    Claim, Claimant, HostRule, Lease, Registry, Rule, RuleSource, SessionRecord, Wants,
};

use self::names::{command_of, own_description};
use super::{Answer, Engine, Settings, State, in_doubt};
use crate::awaited::Awaited;
use crate::counters::count;
use crate::tokens::{self, Corruption, Found};

/// An instance whose host was verified.
#[derive(Clone)]
pub(super) struct Verified {
    pub(super) host: PinnedProcess,
    host_name: String,
    /// What the table of hosts says of it.
    host_rule: Option<Siblings>,
    rule: HostRule,
    /// When the host has started it: see [`Claimant::started_ms`].
    started_ms: u64,
    traits: Traits,
}

impl Verified {
    pub(super) fn claimant(self) -> Claimant {
        Claimant {
            rule: self.rule,
            started_ms: Some(self.started_ms),
            ..Claimant::new(self.host.id(), self.traits)
        }
    }
}

/// Bytes that the name may have that people know a server by.
const PROGRAM_MAX: usize = 255;

/// Digits of a digest that a claim by a name may bring.
const COMMAND_MAX: usize = 128;

/// What a claim by a name wants.
fn users(named: &Named, request: &ClaimRequest) -> Result<Wants, Error> {
    let refused = |sentence: &str| {
        Err(Error::InvalidArgument {
            sentence: sentence.into(),
        })
    };
    if request.instance.is_some() || request.label.is_some() || request.entry.is_some() {
        return refused("a claim by a name has no `instance`, no `label` and no `entry`");
    }
    let is_hex = named.command.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || !(1..=COMMAND_MAX).contains(&named.command.len()) {
        return refused("`command` is a digest: 1 to 128 hexadecimal digits");
    }
    Ok(Wants::Users {
        take: named.take,
        fresh: request.fresh,
    })
}

fn description(request: &ClaimRequest) -> SelfDescription {
    if let Some(named) = &request.named {
        return SelfDescription {
            label: Some(named.name.clone()),
            ..SelfDescription::default()
        };
    }
    SelfDescription {
        label: request.label.clone(),
        entry: request.entry.clone(),
        client: request.client.clone(),
    }
}

impl Engine {
    /// Claims a session for `peer`, or for the ancestor of it that the request names: the one that
    /// `wants` says.
    ///
    /// # Errors
    /// When there is no verified host, a limit was reached, or the records can't be written.
    pub async fn claim(
        &self,
        peer: &PinnedProcess,
        request: ClaimRequest,
        wants: Wants,
        awaited: &Awaited,
    ) -> Result<Claimed, Error> {
        let claimed = self.claim_uncounted(peer, request, wants, awaited).await;
        if let Ok(claimed) = &claimed {
            self.meters.counters.claimed(claimed.outcome);
        }
        claimed
    }

    async fn claim_uncounted(
        &self,
        peer: &PinnedProcess,
        request: ClaimRequest,
        wants: Wants,
        awaited: &Awaited,
    ) -> Result<Claimed, Error> {
        let wants = match (&request.named, request.closed) {
            (Some(named), _) => users(named, &request)?,
            (None, Some(used)) => Wants::AfterClose { used },
            (None, None) => wants,
        };
        let is_name = |name: &String| {
            (1..=PROGRAM_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
        };
        if !request.program.as_ref().is_none_or(is_name) {
            let sentence = format!("`program` is printable, and has 1 to {PROGRAM_MAX} bytes");
            return Err(Error::InvalidArgument { sentence });
        }
        // A claim comes to the same when repeated; a session that is to be made does so only by its
        // request.
        let is_once = matches!(wants, Wants::New(..));
        let instance = self.instance(peer, request.instance).await?;
        let known = self.look(|registry| registry.claimant(&instance.id()).is_some());
        let receiver = if let Some(named) = &request.named {
            let own = self.verified_for(named, &instance).await?;
            self.enter(&instance, &request, wants, awaited, own)?
        } else if known {
            self.enter(&instance, &request, wants, awaited, None)?
        } else {
            let (settings, entry) = (self.settings(), entry_of_front(&request));
            // Reading another process can block on its memory.
            let reading = tokio::task::spawn_blocking(move || {
                let verified = verify(&instance, &settings, entry.as_ref());
                (instance, verified)
            });
            let (instance, verified) = reading.await.map_err(|error| failed(&error))?;
            self.enter(&instance, &request, wants, awaited, Some(verified?))?
        };
        let Answer { lease, kept } = receiver.await.map_err(|error| failed(&error))?;
        let lease = match (lease, &request.named) {
            (Err(Error::NameTaken { sentence }), Some(named)) => {
                let sentence = self.taken_sentence(named, peer, sentence).await;
                return Err(Error::NameTaken { sentence });
            }
            (lease, _) => lease?,
        };
        kept.kept()
            .await
            .map_err(|error| if is_once { in_doubt(error) } else { error })?;
        let owner = self.peek(|registry| Some(registry.session(&lease.session)?.owner));
        let mut claimed = self.hand_over(lease).await?;
        if let Some(named) = request
            .named
            .as_ref()
            .filter(|_| owner != Some(ProcessId::USER))
        {
            claimed.own = Some(self.own_sentence(named, peer).await);
        }
        Ok(claimed)
    }

    /// Tells the registry of the claim. What was `read` of the claimant just now counts only if
    /// nothing is known of it yet: of two claims that a new process sends at once, both read. Of a
    /// claim by a name it says who its host is.
    fn enter(
        &self,
        instance: &PinnedProcess,
        request: &ClaimRequest,
        wants: Wants,
        awaited: &Awaited,
        read: Option<Verified>,
    ) -> Result<tokio::sync::oneshot::Receiver<Answer>, Error> {
        let exited = || Error::NoVerifiedHost {
            sentence: "The process or its host has exited".into(),
        };
        let now = self.now();
        let deadline = self
            .settings()
            .loaded
            .config
            .claim_deadline(now, request.wait_ms);
        let expires = request.until_ms.map_or(u64::MAX, |until| {
            now + until.saturating_sub(process::monotonic_ms())
        });
        let mut state = self.lock();
        // It may have claimed again meanwhile, and given up what that has brought.
        if awaited.by_nobody() {
            return Err(Error::Unavailable {
                sentence: "the process that sent this claim no longer waits for it".into(),
                retry_after_ms: 0,
            });
        }
        // Claims that can't be kept would only pile up.
        state.ledger.check()?;
        if let Some(verified) = &read {
            let watched = state
                .exits
                .add(instance.clone())
                .and_then(|()| state.exits.add(verified.host.clone()));
            watched.map_err(|error| failed(&error))?;
        }
        state.take_in_exits(now);
        let known = state.registry.claimant(&instance.id()).cloned();
        let first = known.is_none();
        let named = request.named.as_ref();
        let own_host = read
            .as_ref()
            .filter(|read| named.is_some() && read.host.is_alive());
        let own_host = own_host.cloned();
        if let (Some(read), Some(_), None) = (&read, named, &own_host) {
            state.unwatch(&read.host.id());
        }
        // A process that got a server of its host's own in the place of this name's has that still.
        let has_own = known.as_ref().is_some_and(|known| {
            let description = named.and_then(|named| own_description(named, request));
            let key = description.and_then(|own| known.traits.key(&own).ok());
            key.is_some_and(|key| known.keys.contains(&key))
        });
        let (claimant, host_name, host_rule) = match (known, read) {
            (Some(known), _)
                if !has_own && request.named.is_some() != (known.host == ProcessId::USER) =>
            {
                let sentence =
                    "one process claims sessions by names, or as a host's server, and not both"
                        .into();
                return Err(Error::InvalidArgument { sentence });
            }
            (Some(known), _) => (known, String::new(), None),
            (None, _) if named.is_some() => {
                state
                    .exits
                    .add(instance.clone())
                    .map_err(|error| failed(&error))?;
                if !instance.is_alive() {
                    state.unwatch(&instance.id());
                    return Err(exited());
                }
                // Nothing of it counts: the name is the user's word.
                let program = process::name_of(instance.id().pid);
                let claimant =
                    Claimant::new(ProcessId::USER, Traits::unknown(program, KeyDoubt::Gone));
                state.registry.introduce(instance.id(), claimant.clone());
                (claimant, "you".to_owned(), None)
            }
            (
                None,
                Some(Verified {
                    host,
                    host_name,
                    host_rule,
                    rule,
                    started_ms,
                    traits,
                }),
            ) => {
                // Whoever is dead by now was taken in before it was known; it would never be told
                // again.
                if !instance.is_alive() || !host.is_alive() {
                    state.unwatch(&instance.id());
                    state.unwatch(&host.id());
                    return Err(exited());
                }
                let claimant = Claimant {
                    rule,
                    started_ms: Some(started_ms),
                    ..Claimant::new(host.id(), traits)
                };
                state.registry.introduce(instance.id(), claimant.clone());
                (claimant, host_name, host_rule)
            }
            (None, None) => return Err(exited()),
        };
        let description = description(request);
        let key = match &request.named {
            Some(named) => Ok(Key::of_name(&named.name)),
            None => claimant.traits.key(&description),
        };
        if let (Err(doubt), true) = (&key, first) {
            count(&self.meters.counters.claims_doubtful_total);
            tracing::warn!(pid = instance.id().pid, %doubt, "the key is doubtful: it gets a fresh session, which is never resumed");
        }
        let program = request
            .program
            .clone()
            .unwrap_or_else(|| claimant.traits.program.clone());
        let of_place = |directory: [u8; 32]| program_dir_of(&program, directory);
        let program_dir = match &request.named {
            Some(named) => Some(command_of(named)),
            None => claimant.traits.directory.map(of_place),
        };
        let (ticket, receiver) = state.ticket();
        let claim = Claim {
            ticket,
            id: SessionId::mint(),
            process: instance.id(),
            host: named.map_or(claimant.host, |_| ProcessId::USER),
            host_name,
            host_rule,
            key: key.ok(),
            unnamed: claimant.traits.unnamed_key(&description),
            description,
            program_dir,
            program,
            siblings: request.siblings,
            rule: self.rule_of(&claimant, request),
            started_ms: claimant.started_ms,
            deadline,
            expires,
            opened_ms: now_ms(),
            confirms_loss: request.confirms_loss,
            wants,
            own: None,
        };
        let own =
            named.and_then(|named| self.own_claim(named, request, &claim, (&claimant, own_host)));
        let claim = Claim {
            own: own.map(Box::new),
            ..claim
        };
        state.registry.claim(claim, now);
        self.apply(&mut state);
        if state.registry.waiting() > 0 {
            self.deadline_changed.notify_one();
        }
        Ok(receiver)
    }

    /// Whether the session of this claim is resumed, and who says so.
    fn rule_of(&self, claimant: &Claimant, request: &ClaimRequest) -> Rule {
        if request.named.is_some() {
            return Rule::default();
        }
        let config = &self.settings().loaded.config;
        let known = config.narrowed(claimant.rule, request.client.as_ref());
        let (resume, source) = match (request.resume, request.wrapped) {
            (Some(asked), _) => (asked, RuleSource::Asked),
            (None, true) => (known, RuleSource::Table),
            // Its author has opted in. What the table says of its host is in the siblings.
            (None, false) => {
                let of_host = HostRule {
                    resume: Resume::Always,
                    ..claimant.rule
                };
                let of_client = config.narrowed(of_host, request.client.as_ref());
                match of_client {
                    Resume::Never if request.siblings.is_none() => {
                        (Resume::Never, RuleSource::Library)
                    }
                    _ => (Resume::Always, RuleSource::Library),
                }
            }
        };
        Rule { resume, source }
    }

    /// Says it where the keys of a server don't hold still.
    fn note_start(&self, record: &SessionRecord, outcome: Outcome) {
        let (Some(program_dir), Some(holder)) = (record.program_dir, record.holder) else {
            return;
        };
        let mut state = self.lock();
        let State {
            registry,
            key_churn,
            advice,
            ..
        } = &mut *state;
        let what_to_set = match outcome {
            Outcome::Resumed => {
                key_churn.resumes(record.owner, program_dir);
                None
            }
            // Several that run at once are several servers, and no starts of one.
            Outcome::FreshFirst
                if record.description.label.is_none() && !registry.has_sibling(record) =>
            {
                registry.claimant(&holder).and_then(|claimant| {
                    key_churn.begins(record.owner, program_dir, &claimant.traits)
                })
            }
            _ => None,
        };
        if let Some(what_to_set) = what_to_set {
            let SessionRecord { program, owner, .. } = record;
            let finding = format!(
                "`{program}`, started by process {}, starts with none of the state of earlier starts: each start differs",
                owner.pid
            );
            advice.say(finding, what_to_set);
        }
    }

    /// Adds the token to a lease.
    async fn hand_over(&self, lease: Lease) -> Result<Claimed, Error> {
        let Lease {
            session,
            epoch,
            outcome,
            because,
            lost,
            file,
        } = lease;
        let lock = self.file(file);
        // Whoever wrote under a former epoch is done when this is ours.
        let _reading = lock.lock().await;
        self.settle_left_over(&session);
        let record = self
            .peek(|registry| registry.session(&session).cloned())
            .ok_or(Error::UnknownSession)?;
        if record.epoch != epoch {
            return Err(Error::StaleEpoch {
                given: epoch,
                newest: record.epoch,
            });
        }
        if record.holder.is_none() {
            return Err(Error::LeaseEnded);
        }
        if let Some(because) = because {
            let (server, host, why) = (&record.program, record.owner.pid, because.sentence());
            if because.is_rule() {
                tracing::info!(session = %session, server, host, why, "a fresh server");
            } else {
                tracing::warn!(session = %session, server, host, why, "a server begins afresh");
            }
        }
        for LossRecord { of, because, .. } in &lost {
            let Some(of) = of else { continue };
            let (host, why) = (record.owner.pid, because.sentence());
            tracing::warn!(session = %session, server = of.in_list(), host, why, "a server begins afresh");
        }
        self.note_start(&record, outcome);
        let mut claimed = Claimed {
            session,
            epoch,
            outcome,
            because,
            lost,
            own: None,
            token_status: TokenStatus::Absent,
            token: None,
        };
        if record.digest.is_none() {
            if outcome == Outcome::FreshFirst && record.name.is_none() {
                claimed.token = self.adopt_version_1(&claimed, file).await;
            }
        } else {
            match self.read_token(&record) {
                Ok(Ok(token)) => claimed.token = Some(token),
                Ok(Err(why)) => {
                    self.discard(&record, &why).await?;
                    claimed.token_status = TokenStatus::Corrupted;
                }
                Err(error) => {
                    let sentence = format!("the token files can't be read: {error}");
                    let retry_after_ms = if tokens::is_passing(&error) {
                        UNREADABLE_RETRY_MS
                    } else {
                        FIX_RETRY_MS
                    };
                    return Err(Error::Unavailable {
                        sentence,
                        retry_after_ms,
                    });
                }
            }
        }
        if claimed.token.is_some() {
            claimed.token_status = TokenStatus::Present;
        }
        if claimed.token_status == TokenStatus::Absent {
            tracing::debug!(session = %claimed.session, "Token file not found (first run or clean slate)");
        }
        claimed.session = record.public_id().clone();
        Ok(claimed)
    }

    /// The token on disk, if it is the one on record.
    fn read_token(&self, record: &SessionRecord) -> std::io::Result<Result<Token, Corruption>> {
        Ok(match self.tokens.read(record.file)? {
            Found::Token(token) if record.digest == Some(tokens::digest(&token)) => Ok(token),
            Found::Token(_) => Err(Corruption::Digest),
            Found::Corrupted(why) => Err(why),
            Found::Absent => Err(Corruption::Missing),
        })
    }

    /// Deletes a token that can't be trusted. The caller has the file's lock.
    async fn discard(&self, record: &SessionRecord, why: &Corruption) -> Result<(), Error> {
        count(&self.meters.counters.tokens_corrupted_total);
        tracing::warn!(file = %record.file, %why, "Token file corrupted, treating as stale");
        if let Err(error) = self.tokens.delete(record.file) {
            tracing::warn!(file = %record.file, %error, "could not delete it");
        }
        self.tell_and_keep(|registry| {
            registry.end_store(&record.id, None);
            Ok(())
        })
        .await
    }

    /// The process that a claim of the peer's is for. A host of others is none, but by its own
    /// word, or where it has claimed before: so much is known beyond what the kernel tells.
    async fn instance(
        &self,
        peer: &PinnedProcess,
        named: Option<u32>,
    ) -> Result<PinnedProcess, Error> {
        if named.is_none() {
            return Ok(peer.clone());
        }
        let (asks, settings) = (peer.clone(), self.settings());
        // Reading another process can block on its memory.
        let finding =
            tokio::task::spawn_blocking(move || process::instance(&asks, named, &settings.table));
        let instance = finding
            .await
            .map_err(|error| failed(&error))?
            .map_err(misnamed)?;
        let id = instance.id();
        let owns = |registry: &Registry| registry.claimant(&id).is_none() && registry.is_owner(&id);
        if id != peer.id() && self.peek(owns) {
            Err(Error::NamesHost { pid: id.pid })
        } else {
            Ok(instance)
        }
    }

    /// What a claim would see, without claiming.
    ///
    /// # Errors
    /// When the request names a process that is no ancestor of `peer`.
    pub async fn who_am_i(
        &self,
        peer: &PinnedProcess,
        request: ClaimRequest,
    ) -> Result<WhoAmI, Error> {
        let instance = self.instance(peer, request.instance).await?;
        let settings = self.settings();
        let known = self.peek(|registry| {
            registry
                .claimant(&instance.id())
                .map(|known| known.traits.clone())
        });
        let reading = tokio::task::spawn_blocking(move || {
            let walk = process::find_host(&instance, &settings.table);
            if let Err(HostDoubt::Exhausted(short)) = walk.host {
                return Err(exhausted(short));
            }
            // What counts is what was read at its first claim.
            let traits = match known {
                Some(known) => known,
                None => {
                    let entry = entry_of_front(&request);
                    process::traits_of(
                        &instance,
                        &settings.table,
                        entry.as_ref().map(Label::as_str),
                    )
                    .map_err(exhausted)?
                }
            };
            let key = traits.key(&description(&request));
            Ok(describe(instance.id().pid, walk, key))
        });
        reading.await.map_err(|error| failed(&error))?
    }
}

/// When to try again what the machine had no means for, in ms.
const UNREADABLE_RETRY_MS: u32 = 1_000;

/// When to look again at a directory of token files that is not ours alone, in ms: longer than any
/// client waits, since somebody has to fix it first.
const FIX_RETRY_MS: u32 = 60_000;

fn misnamed(error: NotAnInstance) -> Error {
    match error {
        NotAnInstance::Stranger(pid) => Error::NotAnAncestor { pid },
        NotAnInstance::Host(pid) => Error::NamesHost { pid },
        NotAnInstance::Exhausted(short) => exhausted(short),
    }
}

/// Whether `mcp-sessiond call` has made this session, for calls of a server of `servers.json` that
/// follow each other: its name is the server's behind an at.
pub(super) fn is_of_call(session: &SessionRecord) -> bool {
    let label = session.description.label.as_ref();
    session.owner == ProcessId::USER && label.is_some_and(|label| label.as_str().starts_with('@'))
}

/// The entry that a front was told by its option: the words of the option are no part of its key.
fn entry_of_front(request: &ClaimRequest) -> Option<Label> {
    request.entry.clone().filter(|_| request.wrapped)
}

pub(super) fn verify(
    instance: &PinnedProcess,
    settings: &Settings,
    entry: Option<&Label>,
) -> Result<Verified, Error> {
    match find(instance, settings, entry).map_err(exhausted)? {
        Ok(verified) => Ok(verified),
        Err(doubt) => {
            // A process that has just exited has nothing to resume: fronts exit while they give up
            // their lease.
            if instance.is_alive() {
                let pid = instance.id().pid;
                tracing::warn!(
                    pid,
                    %doubt,
                    "Could not verify parent process start time, session resume disabled for this instance"
                );
            }
            Err(Error::NoVerifiedHost {
                sentence: doubt.to_string(),
            })
        }
    }
}

/// The host of an instance, and what is known of both; or why it can't be verified.
fn find(
    instance: &PinnedProcess,
    settings: &Settings,
    entry: Option<&Label>,
) -> Result<Result<Verified, HostDoubt>, Exhausted> {
    let Walk {
        steps,
        host,
        started,
    } = process::find_host(instance, &settings.table);
    let host = match host {
        Ok(host) => host,
        Err(HostDoubt::Exhausted(short)) => return Err(short),
        Err(doubt) => return Ok(Err(doubt)),
    };
    let host_name = steps
        .last()
        .map(|step| step.name.clone())
        .unwrap_or_default();
    let line = process::command_line(&host)?;
    let gives = |name: &str| process::is_set_by(&host, instance, name).unwrap_or(false);
    let (host_rule, rule) = settings.loaded.config.rule_of(&line, &gives);
    let entry = entry.map(Label::as_str);
    let traits = process::traits_of(instance, &settings.table, entry)?;
    Ok(Ok(Verified {
        host,
        host_name,
        host_rule,
        rule,
        started_ms: process::latest_start_ms(started.start),
        traits,
    }))
}

/// Digest of the name that people know a program by, and of its directory.
fn program_dir_of(program: &str, directory: [u8; 32]) -> [u8; 32] {
    digest(
        "mcp-sessiond spot",
        &[program.as_bytes(), &directory[..]].concat(),
    )
}

fn describe(instance: u32, walk: Walk, key: Result<Key, KeyDoubt>) -> WhoAmI {
    let step = |step: process::Step| Step {
        pid: step.pid,
        name: step.name,
        role: role(step.role).into(),
    };
    let (host, host_doubt) = match walk.host {
        Ok(host) => (Some(host.id().pid), None),
        Err(doubt) => (None, Some(doubt.to_string())),
    };
    let (key, key_doubt) = match key {
        Ok(key) => (Some(key.to_string()), None),
        Err(doubt) => (None, Some(doubt.to_string())),
    };
    WhoAmI {
        instance,
        walk: walk.steps.into_iter().map(step).collect(),
        host,
        host_doubt,
        key,
        key_doubt,
    }
}

fn role(role: process::Role) -> &'static str {
    match role {
        process::Role::Instance => "instance",
        process::Role::Launcher => "launcher",
        process::Role::Host => "host",
        process::Role::Ended => "ended here",
    }
}

/// Nothing is known of a process for the moment: whoever asked must not take that for the last
/// word.
pub(super) fn exhausted(short: Exhausted) -> Error {
    tracing::error!(error = %short, "could not answer a call");
    Error::Unavailable {
        sentence: format!("the daemon can't look at processes: {short}"),
        retry_after_ms: UNREADABLE_RETRY_MS,
    }
}

/// Something failed that has no business failing. The log has it; the peer is not told our
/// internals.
pub(super) fn failed(error: &dyn std::fmt::Display) -> Error {
    tracing::error!(%error, "could not answer a call");
    Error::Unavailable {
        sentence: "the daemon could not do this".into(),
        retry_after_ms: UNREADABLE_RETRY_MS,
    }
}
