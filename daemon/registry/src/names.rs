//! Sessions that the user has named, and the servers that hosts have of their own beside one whose name
//! is in use.

use alloc::format;
use alloc::string::String;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Error, Resume};

use super::claims::{Choice, OwnClaim};
use super::indexes::OfKey;
use super::owners::Owner;
use super::records::ProgramDir;
use super::{Claim, Effect, RecordKey, Registry, SessionRecord, Wants};

/// Names that are remembered of one host.
const NAMES_MAX: usize = 64;

/// That another host has what the user has named, in a sentence. `by` says which.
pub fn in_use(name: &str, by: Option<&str>) -> String {
    let by = by.unwrap_or("another host");
    format!("the server named `{name}` is in use by {by}")
}

impl Registry {
    /// A claim of a session by its name.
    pub(super) fn claim_of_users(&mut self, claim: &Claim) {
        let Wants::Users { take, fresh } = claim.wants else {
            return;
        };
        let Some(key) = claim.key else { return };
        let found = self.of_name(key).map(|session| {
            (
                session.id.clone(),
                session.holder,
                session.program_dir == claim.program_dir,
            )
        });
        let holds = matches!(found, Some((_, Some(holder), _)) if holder == claim.process);
        if !take
            && !holds
            && let Some(own) = self.own_before(claim)
        {
            self.claim_own(own, key);
            return self.drop_idle_user();
        }
        match found {
            Some((id, holder, is_same)) if fresh || !is_same => {
                let is_ours = holder.is_none_or(|holder| holder == claim.process);
                if take || (is_same && is_ours) {
                    self.end_session(&id);
                    self.forget_losses(claim.host, key);
                    self.open_unasked(claim, Outcome::FreshFirst);
                } else {
                    self.own_or_refuse(claim, key);
                }
            }
            Some((id, Some(holder), _)) if take && holder != claim.process => {
                self.resume(claim, &id, key);
            }
            _ => match self.choose_users(claim, key) {
                Choice::Wait if self.now < claim.deadline => self.wait(claim.clone(), key),
                Choice::Wait => self.own_or_refuse(claim, key),
                choice => self.apply(claim, key, choice, None),
            },
        }
        self.note_name(claim, key);
        self.drop_idle_user();
    }

    /// The claim of the host's own server, where this name has led the same host and key to one
    /// before: nobody slides from that into the state of the name's. One that ends with its front leads
    /// nobody to it.
    fn own_before(&self, claim: &Claim) -> Option<OwnClaim> {
        let own = claim.own.as_deref()?;
        let known = self.claimants.get(&claim.process);
        // A front that has had one never gets the name's.
        let has_had = known.is_some_and(|known| known.host == own.claim.host);
        let has_one = |key| {
            let mut of_key = self.led_to(own.claim.host, key, None).flat_map(OfKey::all);
            of_key.any(|id| self.is_resumable(id))
        };
        (has_had || own.claim.key.is_some_and(has_one)).then(|| own.clone())
    }

    /// A claim gets a server of its own host's in the place of the one with this name.
    fn claim_own(&mut self, own: OwnClaim, name: Key) {
        let OwnClaim {
            claimant,
            mut claim,
        } = own;
        // Its next front could not be told from that of the name's.
        let has_held_name = |owner: &Owner| owner.names.contains(&name);
        if self.owners.get(&claim.host).is_some_and(has_held_name) {
            claim.rule.resume = Resume::Never;
        }
        let known = self.claimants.get(&claim.process);
        if known.is_none_or(|known| known.host != claim.host) {
            self.introduce(claim.process, claimant);
        }
        self.claim(claim, self.now);
    }

    /// Another process has the name.
    pub(super) fn own_or_refuse(&mut self, claim: &Claim, key: Key) {
        let is_same = self
            .of_name(key)
            .is_some_and(|session| session.program_dir == claim.program_dir);
        match claim.own.as_deref().filter(|_| is_same) {
            Some(own) => self.claim_own(own.clone(), key),
            None => self.refuse_name(claim, key),
        }
    }

    /// Remembers of a claim's host that it has held this name, if it does.
    pub(super) fn note_name(&mut self, claim: &Claim, name: Key) {
        let holder = self.of_name(name).and_then(|session| session.holder);
        let Some(own) = claim
            .own
            .as_deref()
            .filter(|_| holder == Some(claim.process))
        else {
            return;
        };
        let Some(owner) = self.owners.get_mut(&own.claim.host) else {
            return;
        };
        if owner.names.contains(&name) {
            return;
        }
        if owner.names.len() >= NAMES_MAX {
            owner.names.pop_first();
        }
        owner.names.insert(name);
        self.save_owner(own.claim.host);
    }

    /// The process that has the name of this key, if another one than this does under the same
    /// command.
    pub fn name_holder(
        &self,
        key: Key,
        program_dir: Option<ProgramDir>,
        but: ProcessId,
    ) -> Option<ProcessId> {
        let session = self.of_name(key)?;
        let holder = session.holder.filter(|holder| *holder != but)?;
        (session.program_dir == program_dir).then_some(holder)
    }

    pub(super) fn choose_users(&self, claim: &Claim, key: Key) -> Choice {
        let Some(session) = self.of_name(key) else {
            return Choice::Open(Outcome::FreshFirst);
        };
        match session.holder {
            // Another command has the name meanwhile: it is refused when it has waited.
            _ if session.program_dir != claim.program_dir => Choice::Wait,
            None => Choice::Resume(session.id.clone()),
            Some(holder) if holder == claim.process => Choice::Keep(session.id.clone()),
            Some(_) => Choice::Wait,
        }
    }

    /// Says who has the name.
    pub(super) fn refuse_name(&mut self, claim: &Claim, key: Key) {
        let name = claim
            .description
            .label
            .as_ref()
            .map_or("?", |name| name.as_str());
        let sentence = match self.of_name(key) {
            Some(session) if session.program_dir != claim.program_dir => format!(
                "the name `{name}` belongs to `{}`, which was started with another command line than this `{}`; choose another name, or use `--take` to end it",
                session.program, claim.program
            ),
            Some(_) => in_use(name, None),
            None => format!("the server named `{name}` has just ended; try again"),
        };
        self.effects.push(Effect::Answer(
            claim.ticket,
            Err(Error::NameTaken { sentence }),
        ));
    }

    /// The user owns something as long as there is a session with a name: nobody would tell of an
    /// end.
    pub(super) fn drop_idle_user(&mut self) {
        let is_idle = self
            .owners
            .get(&ProcessId::USER)
            .is_some_and(|user| user.sessions.is_empty());
        let waits = self.waiting_for(ProcessId::USER);
        if is_idle && !waits {
            self.owners.remove(&ProcessId::USER);
            self.effects
                .push(Effect::Drop(RecordKey::Owner(ProcessId::USER)));
        }
    }

    fn of_name(&self, key: Key) -> Option<&SessionRecord> {
        let id = self.by_key.get(&(ProcessId::USER, key))?.all().next()?;
        self.sessions.get(id)
    }
}
