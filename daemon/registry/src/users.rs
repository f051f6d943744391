//! Sessions that belong to the user, by names that the user has chosen: like a session of tmux,
//! each survives the host that it was begun in, and has one front at a time. Explicit, and so never
//! a guess.

use alloc::format;

use mcp_sessiond_identity::{Key, ProcessId};
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::types::Outcome;

use super::claims::{Choice, Claim, Wants};
use super::{Effect, Registry};

impl Registry {
    /// A claim of a session by its name.
    pub(super) fn claim_of_users(&mut self, claim: Claim) {
        let Wants::Users { take, fresh } = claim.wants else {
            return;
        };
        let Some(key) = claim.key else { return };
        let found = self.of_name(key).map(|session| {
            (
                session.id.clone(),
                session.holder,
                session.spot == claim.spot,
            )
        });
        match found {
            Some((id, holder, is_same)) if fresh || !is_same => {
                let is_ours = holder.is_none_or(|holder| holder == claim.process);
                if take || (is_same && is_ours) {
                    self.end_session(&id);
                    // Whoever begins afresh asks for nothing of what was before.
                    self.take_loss(claim.host, key, None);
                    self.open(&claim, Outcome::FreshFirst, None);
                } else {
                    self.refuse_name(&claim, key);
                }
            }
            Some((id, Some(holder), _)) if take && holder != claim.process => {
                self.resume(&claim, &id, key);
            }
            _ => match self.choose_users(&claim, key) {
                Choice::Wait if self.now < claim.deadline => self.wait(claim, key),
                Choice::Wait => self.refuse_name(&claim, key),
                choice => self.carry_out(&claim, key, choice, None),
            },
        }
        self.drop_idle_user();
    }

    pub(super) fn choose_users(&self, claim: &Claim, key: Key) -> Choice {
        let Some(session) = self.of_name(key) else {
            return Choice::Open(Outcome::FreshFirst);
        };
        match session.holder {
            // Another command has the name meanwhile: it is refused when it has waited.
            _ if session.spot != claim.spot => Choice::Wait,
            None => Choice::Resume(session.id.clone()),
            Some(holder) if holder == claim.process => Choice::Keep(session.id.clone()),
            Some(_) => Choice::Wait,
        }
    }

    /// Says who has the name.
    pub(super) fn refuse_name(&mut self, claim: &Claim, key: Key) {
        let name = claim.said.label.as_ref().map_or("?", |name| name.as_str());
        let sentence = match self.of_name(key) {
            Some(session) if session.spot != claim.spot => format!(
                "the name `{name}` is that of `{}`, which was started by another command line than this `{}`; take another \
                 name, or say `--take` to end it",
                session.program, claim.program
            ),
            Some(session) => format!(
                "the server named `{name}` is in use by process {}; it can be had when that goes, or by `--take`",
                session.holder.map_or(0, |holder| holder.pid)
            ),
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
            self.effects.push(Effect::DropOwner(ProcessId::USER));
        }
    }

    fn of_name(&self, key: Key) -> Option<&super::SessionRecord> {
        let id = self.by_key.get(&(ProcessId::USER, key))?.all().next()?;
        self.sessions.get(id)
    }
}
