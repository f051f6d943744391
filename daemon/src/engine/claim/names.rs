//! Claims of sessions that the user has named: who has such a name, and what a claim gets where that is
//! another host.

use mcp_sessiond_process::{
    self as process, Key, PinnedProcess, ProcessId, SelfDescription, digest,
};
use mcp_sessiond_proto::{ClaimRequest, Error, Named, Resume};
use mcp_sessiond_registry::{Claim, Claimant, OwnClaim, Rule, RuleSource, Wants, in_use};

use super::{Verified, exhausted, failed, find, program_dir_of};
use crate::config::known_host;
use crate::engine::Engine;

/// What the user can do about a name that another host has.
const NAME_ADVICE: &str = "it is free when that host closes it, and `--take` takes it over now";

/// The same where a claimer gets a server of its host's own.
const OWN_ADVICE: &str = "so this host gets a server of its own; `--wait` waits for the named one, and `--take` takes it over";

/// The digest of the command that a name stands for.
pub(super) fn command_of(named: &Named) -> [u8; 32] {
    digest("mcp-sessiond command", named.command.as_bytes())
}

/// What a claim by a name says of itself where it is led to a server of its host's own. None: the name
/// is too long for that.
pub(super) fn own_description(named: &Named, request: &ClaimRequest) -> Option<SelfDescription> {
    Some(SelfDescription {
        label: None,
        entry: Some(named.own_name()?),
        client: request.client.clone(),
    })
}

impl Engine {
    /// The host of a process that claims by a name, where it may be led to a server of that host's own.
    /// None: it can't be verified, or there is no need.
    pub(super) async fn verified_for(
        &self,
        named: &Named,
        instance: &PinnedProcess,
    ) -> Result<Option<Verified>, Error> {
        if !named.own {
            return Ok(None);
        }
        let (instance, settings) = (instance.clone(), self.settings());
        // Reading another process can block on its memory.
        let finding = tokio::task::spawn_blocking(move || find(&instance, &settings, None));
        let found = finding.await.map_err(|error| failed(&error))?;
        Ok(found.map_err(exhausted)?.ok())
    }

    /// In a sentence, which other host has what this name stands for, and where. None: none has.
    async fn name_in_use(&self, named: &Named, but: &PinnedProcess) -> Option<String> {
        let (key, command) = (Key::of_name(&named.name), Some(command_of(named)));
        let but = but.id();
        let holder = self.peek(|registry| registry.name_holder(key, command, but))?;
        let settings = self.settings();
        // Reading another process can block on its memory.
        let finding = tokio::task::spawn_blocking(move || {
            let holder = PinnedProcess::reopen(&holder).ok()??;
            let host = process::find_host(&holder, &settings.table).host.ok()?;
            let line = process::command_line(&host).ok();
            let title = line
                .as_ref()
                .and_then(known_host)
                .map(|host| host.title().to_owned());
            let title = title.unwrap_or_else(|| process::name_of(host.id().pid));
            // A front tells nobody its own directory, and was mostly started in its host's.
            let directory =
                process::directory_of(&holder).or_else(|_| process::directory_of(&host));
            Some(match directory {
                Ok(directory) => format!("{title} in {}", directory.display()),
                Err(_) => title,
            })
        });
        let by = finding.await.ok().flatten();
        Some(in_use(named.name.as_str(), by.as_deref()))
    }

    /// What a claim by a name is where another process has the name: that of a server of its host's
    /// own. `claim` is the claim by the name, of a process of which so much is `known`.
    pub(super) fn own_claim(
        &self,
        named: &Named,
        request: &ClaimRequest,
        claim: &Claim,
        (known, verified): (&Claimant, Option<Verified>),
    ) -> Option<OwnClaim> {
        let description = own_description(named, request)?;
        let (claimant, host_name, host_rule) = match verified {
            // What was read at its first claim counts: it may hide its environment since.
            _ if known.host != ProcessId::USER => (known.clone(), String::new(), None),
            Some(verified) => {
                let (name, rule) = (verified.host_name.clone(), verified.host_rule);
                (verified.claimant(), name, rule)
            }
            None => return None,
        };
        // As one that has the name is: only a host that runs many conversations resumes nothing.
        let known = self
            .settings()
            .loaded
            .config
            .narrowed(claimant.rule, request.client.as_ref());
        let resume = match known {
            Resume::Never => Resume::Never,
            _ => Resume::Always,
        };
        let directory = claimant.traits.directory;
        let claim = Claim {
            host: claimant.host,
            host_name,
            host_rule,
            key: claimant.traits.key(&description).ok(),
            program_dir: directory.map(|directory| program_dir_of(&claim.program, directory)),
            program: description
                .entry
                .as_ref()
                .map_or_else(String::new, |name| name.as_str().to_owned()),
            description,
            rule: Rule {
                resume,
                source: RuleSource::Library,
            },
            wants: match (request.closed, request.fresh) {
                (Some(used), _) => Wants::AfterClose { used },
                (None, true) => Wants::Fresh,
                (None, false) => Wants::Keyed,
            },
            ..claim.clone()
        };
        Some(OwnClaim { claimant, claim })
    }

    /// Why a claim by a name was refused, with who has it where that is another host; else what the
    /// registry says.
    pub(super) async fn taken_sentence(
        &self,
        named: &Named,
        peer: &PinnedProcess,
        otherwise: String,
    ) -> String {
        let in_use = self.name_in_use(named, peer).await;
        in_use.map_or(otherwise, |by| format!("{by}; {NAME_ADVICE}"))
    }

    /// Why a claim by a name got a server of its host's own.
    pub(super) async fn own_sentence(&self, named: &Named, peer: &PinnedProcess) -> String {
        match self.name_in_use(named, peer).await {
            Some(by) => format!("{by}, {OWN_ADVICE}"),
            None => format!(
                "the server named `{}` was in use when this host asked for it first, so this host has a server of its own until it \
                 exits; `--take` takes the named one",
                named.name.as_str()
            ),
        }
    }
}
