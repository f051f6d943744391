//! Losses: that something which was kept is gone, why, since when, and who has been told.

use serde::{Deserialize, Serialize};

use crate::names::BackendName;

/// The number of a loss: the next one of the same daemon has a greater one. In JSON: decimal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LossId(#[serde(with = "crate::text")] pub u64);

/// A loss on record, which stays there until somebody has said that it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossRecord {
    /// Its number, by which it is confirmed.
    pub id: LossId,
    /// When the daemon learned of it, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub at_ms: u64,
    /// The member of a list that was lost. None: the session's only backend, or the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<BackendName>,
    /// Why.
    pub because: Loss,
}

/// Why something that was kept is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Another server of the same key lives, so mcp-sessiond can't tell to which of
    /// them the free session belongs.
    Sibling,
    /// Several sessions of the same key were free, and can't be told apart.
    Several,
    /// The host was seen with three servers of this key at once: nothing is resumed by this key
    /// until the host exits.
    Crowd,
    /// The backend exited, while nobody was attached.
    Exited,
    /// The keeper was killed, and the backend with it.
    Killed,
    /// Nobody came for the backend in time.
    Lingered,
    /// Somebody has stopped the backend.
    Stopped,
    /// The host went on to another conversation.
    Conversation,
    /// The server is started with another command line or environment: its entry in the host's
    /// file was edited, or the host's environment has changed.
    Edited,
    /// The host had as many sessions as it may have, and this one was free the longest.
    Quota,
    /// The host closed the former server, and is not known to reconnect by closing. Nothing is
    /// lost.
    Closed,
    /// The host runs many conversations in one process. Nothing is lost.
    Conversations,
    /// The host had closed the backend, and did not come back for it in time.
    Abandoned,
    /// The daemon's records were lost, and this host is older than the daemon: there may have been a
    /// session.
    Records,
    /// The keeper could have answered and did not, or could not be reached. The daemon has ended it,
    /// and the backend with it.
    Hung,
    /// Nothing is known of the host, which may end a conversation by a kill. Nothing is lost.
    UnknownHost,
    /// The host closed the former server, and started the next one too late for a reconnect. Nothing
    /// is lost.
    ClosedEarlier,
    /// The server at a URL does not know the session any more.
    Forgotten,
    /// Some nodes of the server at a URL know the session, and others don't.
    Scattered,
    /// The session with the server at a URL was begun with another login of the user's, perhaps with
    /// another account.
    OtherLogin,
    /// The session was begun at another URL, or with other headers.
    OtherEntry,
    /// The session with the server at a URL was begun by a host that introduced itself with other
    /// words.
    OtherHost,
    /// The server at a URL does not answer in the session.
    Silent,
}

/// A server takes the place of one that was lost, and why that was, in words that follow a colon.
#[must_use]
pub fn begins_afresh(why: &str) -> String {
    format!("this server begins afresh, and what the previous one had in memory is lost: {why}")
}

impl LossRecord {
    /// What a host or a client is told of it, in a sentence.
    #[must_use]
    pub fn notice(&self) -> String {
        self.because.notice_of(self.of.as_ref())
    }
}

impl Loss {
    /// All of them, in the order in which they are numbered on record.
    pub const ALL: [Self; 23] = [
        Self::Sibling,
        Self::Several,
        Self::Crowd,
        Self::Exited,
        Self::Killed,
        Self::Lingered,
        Self::Stopped,
        Self::Conversation,
        Self::Edited,
        Self::Quota,
        Self::Closed,
        Self::Conversations,
        Self::Abandoned,
        Self::Records,
        Self::Hung,
        Self::UnknownHost,
        Self::ClosedEarlier,
        Self::Forgotten,
        Self::Scattered,
        Self::OtherLogin,
        Self::OtherEntry,
        Self::OtherHost,
        Self::Silent,
    ];

    /// Whether this is a session with a server at a URL: whoever speaks with that has found it.
    #[must_use]
    pub fn is_remote(self) -> bool {
        matches!(
            self,
            Self::Forgotten
                | Self::Scattered
                | Self::OtherLogin
                | Self::OtherEntry
                | Self::OtherHost
                | Self::Silent
        )
    }

    /// Whether this is a rule about the host, and nothing was lost.
    #[must_use]
    pub fn is_rule(self) -> bool {
        matches!(
            self,
            Self::Closed | Self::Conversations | Self::UnknownHost | Self::ClosedEarlier
        )
    }

    /// Whether the host or the user has brought this about on purpose: then nothing was lost.
    #[must_use]
    pub fn is_wanted(self) -> bool {
        matches!(
            self,
            Self::Stopped
                | Self::Conversation
                | Self::Edited
                | Self::Abandoned
                | Self::Closed
                | Self::Conversations
                | Self::UnknownHost
                | Self::ClosedEarlier
                | Self::OtherLogin
                | Self::OtherEntry
                | Self::OtherHost
        )
    }

    /// Whether a server that had run is gone for sure, and nobody wanted that. With the other reasons
    /// there may have been none.
    #[must_use]
    pub fn is_of_a_server(self) -> bool {
        matches!(
            self,
            Self::Exited | Self::Killed | Self::Lingered | Self::Hung | Self::Quota | Self::Several
        )
    }

    /// What a host or a client is told that gets another server: what is, and why.
    #[must_use]
    pub fn notice(self) -> String {
        if self.is_remote() {
            return format!(
                "a new session was begun, since {}: what was in the previous one is lost",
                self.sentence()
            );
        }
        let begins = match self.is_rule() {
            true => "a fresh server",
            false => "this server begins afresh",
        };
        format!("{begins}: {}", self.sentence())
    }

    /// The same of a member of a list, if `of` is given.
    #[must_use]
    pub fn notice_of(self, of: Option<&BackendName>) -> String {
        let notice = self.notice();
        match of {
            Some(of) => format!("{}: {notice}", of.in_list()),
            None => notice,
        }
    }

    /// What happened, and what can be done about it, in one sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Sibling => {
                "another server with the same command, directory and environment runs under this host, so mcp-sessiond can't tell \
                 which of them the earlier session belonged to; if they are two entries, give each its own `--instance NAME`; if the host starts \
                 one entry twice, `--siblings successor` helps where it closes a server before it starts the next"
            }
            Self::Several => {
                "several earlier servers with the same command, directory and environment were left, and can't be told apart; if they \
                 are several entries, give each its own `--instance NAME`"
            }
            Self::Crowd => {
                "this host has run three or more servers with this command, directory and environment at once, so none of them is \
                 kept until it exits; `--resume always`, `--siblings successor`, or a `--name NAME` for each keeps them; so does \
                 an `--instance NAME` of its own for each entry"
            }
            Self::Exited => "the previous server exited while no host was connected",
            Self::Killed => {
                "the process that kept the previous server has ended, and the server with it"
            }
            Self::Lingered => {
                "no host came back for the previous server in time (`backends.linger_ms`; `backends.named_linger_ms` where it has a name)"
            }
            Self::Abandoned => {
                "the host had closed the previous server, and did not come back for it in time (`backends.closed_linger_ms`; \
                 `backends.named_linger_ms` where it has a name)"
            }
            Self::Records => {
                "the records of an earlier daemon were lost (`sessions.db`), so nobody knows whether this server had run before"
            }
            Self::Hung => {
                "the process that kept the previous server did not answer, so the daemon has ended it, and the server with it"
            }
            Self::Stopped => "the previous server was stopped",
            Self::Conversation => {
                "the previous server belonged to a conversation that the host has left"
            }
            Self::Edited => {
                "the command line or the environment is not that of the previous server: the host has another environment now, or the \
                 server's entry in its configuration was edited"
            }
            Self::Quota => {
                "the host has as many sessions as it may (`sessions_per_owner`), and this one was free the longest"
            }
            Self::Closed => {
                "the host closed the previous server, and as far as is known it does not close a server to reconnect (`resume` is `cut`), so \
                 a server ends with its connection; `--resume always` keeps it"
            }
            Self::ClosedEarlier => {
                "the host had closed the previous server, and did not start the next one at once, as it does to reconnect \
                 (`backends.closed_again_ms`), so the previous one may have been a subagent's; `--resume always` keeps it"
            }
            Self::UnknownHost => {
                "mcp-sessiond does not know this host program, and can't tell a reconnect from the end of a conversation, so a used \
                 server ends with its connection; `--resume cut` keeps it where the host kills its server, `--resume always` also \
                 where it closes it, and a row in `[[hosts]]` says so for all servers of the host"
            }
            Self::Forgotten => "the server has forgotten the previous session",
            Self::Scattered => {
                "the server has several nodes, and the requests of one session do not all reach the same node"
            }
            Self::OtherLogin => "the previous session belongs to another login",
            Self::OtherEntry => "the URL or the headers have changed",
            Self::OtherHost => "the host introduces itself differently now",
            Self::Silent => "the server does not answer in the previous session",
            Self::Conversations => {
                "this host runs many conversations in one process (`resume` is `never`), so a server ends with its connection; \
                 `--resume always` keeps it"
            }
        }
    }
}
