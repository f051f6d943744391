//! Hosts: what each does to its servers decides what a claim of theirs gets. Those that are known are in
//! `hosts.toml`; the user's configuration comes before that.

mod known;

use mcp_sessiond_process::CommandLine;
use mcp_sessiond_proto::{ClientName, Resume, Siblings};
use mcp_sessiond_registry::HostRule;
use serde::{Deserialize, Serialize};

use self::known::rule_of_client;
pub use self::known::{FileForm, KnownHost, ServersFile, known_host, known_hosts};

/// A host, and what counts for claims of its servers.
///
/// It is known by `executable`, with an `argument` or not, or by `client`. A row with `client` can
/// only make the rule stricter: a client says its own name, and so must not get more by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostRow {
    /// The file name of its executable, which may end in `*`, or its absolute path. Of an
    /// interpreted program, the interpreter's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// A part of the path of one of its first arguments: of an interpreted program, the name of its
    /// package or script; of a program with several modes, the mode (`acp`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// What the host calls itself: `clientInfo.name` of its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientName>,
    /// Which of several alike its servers get, unless they ask for something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub siblings: Option<Siblings>,
    /// Whether a server that is kept goes on serving the host's next connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// The variable in which it names the conversation to its servers. A server that has it is
    /// resumed in the same conversation: after a cut, and where the host reconnects at once after a
    /// close. `resume` counts for one that does not have it, or has it from the host's own start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl HostRow {
    /// What is wrong with it, in a sentence.
    ///
    /// # Errors
    /// A row that matches nothing, or says nothing, or allows a resume by the client's word.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let says = self.siblings.is_some() || self.resume.is_some() || self.conversation.is_some();
        if self
            .resume
            .is_some_and(|resume| !Resume::CHOICES.contains(&resume))
        {
            return Err("`resume` is `always`, `cut` or `never`");
        }
        match (&self.executable, &self.client) {
            (None, None) => Err("a row needs `executable` or `client`"),
            (Some(_), Some(_)) => Err("a row has `executable` or `client`, and not both"),
            (None, _) if self.argument.is_some() => Err("`argument` needs `executable`"),
            (None, _) if self.siblings.is_some() || self.conversation.is_some() => {
                Err("a row with `client` has `resume`, and neither `siblings` nor `conversation`")
            }
            (None, _) if !matches!(self.resume, Some(Resume::Cut | Resume::Never)) => Err(
                "a row with `client` says `resume = \"cut\"` or `resume = \"never\"`: a client's own word can't allow more",
            ),
            _ if !says => Err("a row needs `siblings`, `resume` or `conversation`"),
            _ => Ok(()),
        }
    }

    fn fits(&self, host: &CommandLine) -> bool {
        let is_called = |name: &String| host.is_called(name);
        self.executable.as_ref().is_some_and(is_called)
            && self.argument.as_deref().is_none_or(|part| host.runs(part))
    }

    /// What it says about resuming a server that was given these variables, if it says anything.
    fn resume(&self, gives: &impl Fn(&str) -> bool) -> Option<Resume> {
        resume_by(
            self.siblings,
            self.resume,
            self.conversation.as_deref(),
            gives,
        )
    }
}

/// What a row says about resuming a server that was given these variables, if it says anything.
fn resume_by(
    siblings: Option<Siblings>,
    resume: Option<Resume>,
    conversation: Option<&str>,
    gives: &impl Fn(&str) -> bool,
) -> Option<Resume> {
    match conversation {
        // What is never kept is not kept in a conversation, either.
        Some(name) if resume != Some(Resume::Never) && gives(name) => Some(Resume::Conversation),
        Some(_) => resume.or(Some(Resume::Cut)),
        None if siblings == Some(Siblings::Never) => Some(Resume::Never),
        None => resume,
    }
}

/// What counts for a host: what the configuration says, else the built-in table. `gives` says
/// whether the server was given a variable, and something in it.
pub(super) fn rule_of(
    configured: &[HostRow],
    host: &CommandLine,
    gives: &impl Fn(&str) -> bool,
) -> (Option<Siblings>, HostRule) {
    let rows = || configured.iter().filter(|row| row.fits(host));
    let known = || known_hosts().filter(|known| known.fits(host));
    let of_users = rows().filter_map(|row| row.resume(gives)).min();
    let of_table = known().filter_map(|known| known.resume(gives)).min();
    let never = (of_table == Some(Resume::Never)).then_some(Siblings::Never);
    let siblings = rows()
        .find_map(|row| row.siblings)
        // A row that allows a resume does so for a server with the library as well.
        .or_else(|| (of_users == Some(Resume::Never)).then_some(Siblings::Never))
        .or_else(|| if of_users.is_some() { None } else { never })
        .or_else(|| known().find_map(|known| known.siblings));
    let rule = HostRule {
        resume: of_users.or(of_table).unwrap_or(Resume::Unknown),
        is_users: of_users.is_some(),
    };
    (siblings, rule)
}

/// What the name of a client makes of its host's rule: the same, or a stricter one.
pub(super) fn narrowed(
    configured: &[HostRow],
    of_host: HostRule,
    client: Option<&ClientName>,
) -> Resume {
    let Some(client) = client else {
        return of_host.resume;
    };
    let rows = configured
        .iter()
        .filter(|row| row.client.as_ref() == Some(client));
    let of_users = rows.filter_map(|row| row.resume).min();
    let of_table = match of_host.is_users {
        true => None,
        false => rule_of_client(client.as_str()),
    };
    of_users
        .or(of_table)
        .map_or(of_host.resume, |resume| resume.min(of_host.resume))
}

/// The variables in which hosts name the conversation, as far as the configuration says.
pub(super) fn conversation_variables(configured: &[HostRow]) -> impl Iterator<Item = String> {
    configured.iter().filter_map(|row| row.conversation.clone())
}

#[cfg(test)]
mod tests;
