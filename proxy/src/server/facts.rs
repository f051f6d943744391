//! What is known of a server, from the daemon: how it takes `server/discover`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use mcp_sessiond_client::{Control, Options};
use mcp_sessiond_proto::ClientName;
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::facts::{
    Discover, Facts, FactsRequest, LearnRequest, Learned, PROBES_MAX, ServerDigest,
};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::keeper::program_change;
use crate::launch_env::LaunchPlace;
use crate::program::Program;

/// How long the daemon may take to say what is known, and to be told. A host waits meanwhile; what
/// does not come in time is not known.
const FACTS_WAIT: Duration = Duration::from_millis(100);

/// Identifies what a command starts: the command, directory and environment that this process would
/// start it with, and the files of its program as they are now.
pub(crate) fn digest_of(
    program: &Program,
    environment: &[(OsString, OsString)],
    home: Option<&Path>,
) -> ServerDigest {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(program.digest().as_bytes());
    part(LaunchPlace::own().fingerprint().as_bytes());
    for (name, value) in environment {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(home.map_or(&[], |home| home.as_os_str().as_bytes()));
    part(program_change::stamps(program).as_bytes());
    ServerDigest::of(&hash.finalize())
}

/// Identifies a remote server: its address, and what is sent with each request.
pub(crate) fn digest_of_remote(address: &str, headers: &BTreeMap<String, String>) -> ServerDigest {
    let mut hash = Sha256::new();
    let headers = headers.iter().flat_map(|(name, value)| [&**name, value]);
    for part in ["url", address].into_iter().chain(headers) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    ServerDigest::of(&hash.finalize())
}

/// Identifies the servers of the list for hosts of this name: what is known of them is how such a host
/// begins.
pub(crate) fn digest_of_list(client: Option<&ClientName>) -> ServerDigest {
    let mut hash = Sha256::new();
    let client = client.map_or("", ClientName::as_str);
    for part in ["list", client] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    ServerDigest::of(&hash.finalize())
}

/// The daemon's memory of one server.
#[derive(Debug, Clone)]
pub(crate) struct ServerFacts {
    control: Control,
    server: ServerDigest,
    wait: Duration,
}

impl ServerFacts {
    pub(crate) fn new(options: Options, server: ServerDigest) -> Self {
        Self::within(FACTS_WAIT, options, server)
    }

    /// The same for a front that can do nothing without the daemon, and waits for it for so long.
    pub(crate) fn within(wait: Duration, options: Options, server: ServerDigest) -> Self {
        let control = Control::new(options.timeout(wait));
        Self {
            control,
            server,
            wait,
        }
    }

    /// What is known.
    pub(crate) async fn find(&self) -> Facts {
        let request = FactsRequest {
            server: self.server.clone(),
        };
        let found = self.control.ask(Client::find_facts, request);
        let found = timeout(self.wait, found).await;
        self.control.hang_up();
        found.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// A client probes. True: it is refused in the server's place, as far as is known. After so many
    /// in a row that went no further, that may be wrong, and is forgotten.
    pub(crate) async fn note_probe(&self) -> bool {
        let Facts { discover, probed } = self.find().await;
        if !discover.as_ref().is_some_and(Discover::is_answered_for) {
            return false;
        }
        let is_wrong = probed >= PROBES_MAX;
        self.learn(match is_wrong {
            true => Learned::Forgotten {},
            false => Learned::Probed {},
        })
        .await;
        !is_wrong
    }

    /// Something was seen.
    pub(crate) async fn learn(&self, learned: Learned) {
        let request = LearnRequest {
            server: self.server.clone(),
            learned,
        };
        let told = self.control.ask(Client::learn_fact, request);
        drop(timeout(self.wait, told).await);
        self.control.hang_up();
    }
}
