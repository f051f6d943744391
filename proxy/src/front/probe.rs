//! The host's probe, where it is answered before anything is claimed: no server is started for it,
//! no lease taken, and no loss told to a host that throws the connection away.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Mutex;

use bytes::Bytes;
use mcp_sessiond_process::runtime;
use mcp_sessiond_proto::facts::{Discover, Facts, Learned, PROBES_MAX};
use mcp_sessiond_proto::{ClientName, Lock as _};
use mcp_sessiond_relay::{Probe, is_initialize};

use super::first_line::{self, FOR_EVER, FirstLine};
use crate::lines::LineBuffer;
use crate::server::facts::ServerFacts;

/// Who answers the probes of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbePolicy {
    /// The server, or the front in its place where it is known to refuse them.
    AsKnown,
    /// The same, where `initialize` may be answered from memory, without a keeper that could see it.
    FromMemory,
    /// The front: a server of several hosts is initialised by all of them.
    Refused,
    /// The front, as long as this host is not known to speak MCP 2026-07-28 alone: several servers in
    /// one are initialised by each host that can.
    Translated,
}

impl ProbePolicy {
    /// What it means that the host begins with `initialize`.
    fn learned_of_initialize(self) -> Learned {
        match self {
            // It is the host of which something is known.
            Self::Translated => Learned::Forgotten {},
            Self::AsKnown | Self::FromMemory | Self::Refused => Learned::Initialized {},
        }
    }
}

/// What a host has begun with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// This client; its next line stands in the buffer, or has not come in time.
    Client(Option<ClientName>),
    /// It has closed its end.
    Closed,
    /// So many connections in a row have only probed that this host may speak MCP 2026-07-28 alone:
    /// it is to have a server that was sent nothing else. The probe stands in the buffer.
    ProbesOnly(Option<ClientName>),
}

/// Answers the probes at the beginning of a host's lines, of which the first one was read.
pub(crate) async fn answer(
    client: Option<ClientName>,
    policy: ProbePolicy,
    facts: &dyn Fn() -> ServerFacts,
    input: &mut File,
    lines: &mut LineBuffer,
) -> Opening {
    let Some(mut probe) = probe_in(lines) else {
        if policy != ProbePolicy::AsKnown && lines.whole_line().is_some_and(is_initialize_line) {
            facts().learn(policy.learned_of_initialize()).await;
        }
        return Opening::Client(client);
    };
    let facts = facts();
    let Facts { discover, probed } = facts.find().await;
    let is_refused = match policy {
        ProbePolicy::Refused => true,
        ProbePolicy::Translated => discover != Some(Discover::Answers {}),
        ProbePolicy::AsKnown | ProbePolicy::FromMemory => {
            discover.as_ref().is_some_and(Discover::is_answered_for)
        }
    };
    if !is_refused {
        return Opening::Client(client);
    }
    if probed >= PROBES_MAX {
        let learned = match policy {
            ProbePolicy::Translated => Learned::Discover(Discover::Answers {}),
            _ => Learned::Forgotten {},
        };
        facts.learn(learned).await;
        return match policy {
            ProbePolicy::AsKnown | ProbePolicy::FromMemory | ProbePolicy::Translated => {
                Opening::ProbesOnly(client)
            }
            // Who does not begin with `initialize` gets a server of its own.
            ProbePolicy::Refused => Opening::Client(client),
        };
    }
    let mut client = client;
    let leaving = OnlyProbed::note(facts.clone());
    loop {
        lines.next_line();
        write(&probe.refusal(discover.as_ref()));
        match first_line::read(input, lines, FOR_EVER) {
            FirstLine::Closed => {
                leaving.count().await;
                return Opening::Closed;
            }
            // The probe's, or where it has none, that of the line that claims.
            FirstLine::Read(next) => client = client.or(next),
            FirstLine::Raw => {}
        }
        match probe_in(lines) {
            Some(next) => probe = next,
            None => break,
        }
    }
    leaving.forget();
    if lines.whole_line().is_some_and(is_initialize_line) {
        facts.learn(policy.learned_of_initialize()).await;
    }
    Opening::Client(client)
}

/// What a front without a keeper learns of its server: how it takes a probe that was sent before any
/// `initialize`.
#[derive(Debug)]
pub(crate) struct Probing {
    facts: ServerFacts,
    /// The probe that waits for its answer.
    asked: Option<Probe>,
    initialized: bool,
}

impl Probing {
    pub(crate) fn new(facts: ServerFacts) -> Self {
        Self {
            facts,
            asked: None,
            initialized: false,
        }
    }

    /// The host has sent a line.
    pub(crate) fn host_sent(&mut self, line: &Bytes) {
        if self.initialized {
            return;
        }
        if is_initialize(line) {
            self.initialized = true;
            self.learn(Learned::Initialized {});
        } else if let Some(probe) = Probe::of(line) {
            self.asked = Some(probe);
        }
    }

    /// The server has sent a line.
    pub(crate) fn server_sent(&mut self, line: &Bytes) {
        let Some(answered) = self
            .asked
            .as_ref()
            .and_then(|probe| probe.answered_by(line))
        else {
            return;
        };
        self.asked = None;
        if let Some(discover) = answered {
            self.learn(Learned::Discover(discover));
        }
    }

    fn learn(&self, learned: Learned) {
        let facts = self.facts.clone();
        tokio::spawn(async move { facts.learn(learned).await });
    }
}

/// The host of this front, if it has only probed so far: when it leaves, or a signal ends this
/// process, that counts.
static ONLY_PROBED: Mutex<Option<ServerFacts>> = Mutex::new(None);

struct OnlyProbed;

impl OnlyProbed {
    fn note(facts: ServerFacts) -> Self {
        *ONLY_PROBED.locked() = Some(facts);
        Self
    }

    /// It leaves.
    async fn count(self) {
        drop(tokio::task::spawn_blocking(count_if_only_probed).await);
    }

    /// It goes on.
    fn forget(self) {
        *ONLY_PROBED.locked() = None;
    }
}

/// This process ends: a host that has only probed counts, once. Whoever comes second waits until that is
/// done.
pub(super) fn count_if_only_probed() {
    let mut only_probed = ONLY_PROBED.locked();
    if let Some(facts) = only_probed.take()
        && let Ok(runtime) = runtime::current_thread()
    {
        runtime.block_on(facts.learn(Learned::Probed {}));
    }
}

fn probe_in(lines: &LineBuffer) -> Option<Probe> {
    Probe::of(&Bytes::copy_from_slice(lines.whole_line()?))
}

fn is_initialize_line(line: &[u8]) -> bool {
    is_initialize(&Bytes::copy_from_slice(line))
}

/// A host that has closed its output is gone, and that is seen at the next line.
fn write(line: &Bytes) {
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    if let Ok(output) = output {
        let _ = File::from(output).write_all(&[line, &b"\n"[..]].concat());
    }
}
