//! Running the command as it is for a host whose input is not JSON-RPC: see [`raw`](super::raw). A
//! name has one server at a time, whatever its host speaks.

use std::fs::File;
use std::time::{Duration, Instant};

use mcp_sessiond_process::runtime;

use super::failed_start::StartError;
use super::leave::Leaver;
use super::raw::WHY;
use crate::lines::LineBuffer;
use crate::notices::{note_unkept, print};
use crate::program::{LaunchEnv, Program};
use crate::server::child::PlainChild;
use crate::server::connector::{Connector as _, NoBackend, WithoutKeeper};
use crate::server::keeper_connector::{KeeperConnector, SessionCalls};
use crate::signals::GivenMask;

/// The exit code where the name is in use: it may work later (EX_TEMPFAIL of sysexits.h).
const TEMPORARY: u8 = 75;

/// Why the command may not be run for a host that has named its server, if it may not: where the name belongs
/// to somebody else, or a kept server has it. Until this process exits, nobody else
/// gets the name.
pub(super) async fn take_name(
    mut connector: KeeperConnector,
    wait: Duration,
) -> Option<StartError> {
    let refused = |why: String| {
        Some(StartError {
            code: TEMPORARY,
            sentence: format!("{WHY}; that needs a server of its own, and {why}"),
        })
    };
    let until = loop {
        let until = Instant::now() + wait;
        match connector.claim(until).await {
            Ok(_) => break until,
            Err(NoBackend::Taken(why)) => return refused(why),
            Err(why) => match connector.without_keeper(&why) {
                WithoutKeeper::ClaimAgain => {}
                WithoutKeeper::RunUnkept(lock) => {
                    // Until this process exits.
                    std::mem::forget(lock);
                    return None;
                }
                WithoutKeeper::Wait(why) | WithoutKeeper::Refuse(why) => return refused(why),
            },
        }
    };
    if let Some(why) = connector.taken_without_daemon() {
        return refused(why);
    }
    let session = connector.session();
    let mut of_session = connector.for_backend(None, Vec::new(), None);
    if !of_session.is_running(until).await {
        return None;
    }
    session.release().await;
    refused("a server of this name is kept: `mcp-sessiond stop` ends it".to_owned())
}

/// What it takes to pass a host's bytes through that shows only after its server was kept that it
/// does not speak JSON-RPC.
pub(super) struct PassThrough {
    pub(super) program: Program,
    pub(super) launch_env: LaunchEnv,
    pub(super) mask: GivenMask,
    /// Ends the kept server.
    pub(super) session: SessionCalls,
    pub(super) leaver: Leaver,
    /// Whether the user has named the server.
    pub(super) is_named: bool,
}

impl PassThrough {
    /// Ends the kept server, of which the host has had nothing, runs the command as our child in its
    /// place, and ends this process as the command ends. `read` has what was read of the host.
    pub(super) fn run(self, read: &LineBuffer, input: File) -> ! {
        if self.is_named && !self.session.has_lease() {
            print(&format_args!(
                "{WHY}; that needs a server of its own, and another host has the server of this name"
            ));
            std::process::exit(TEMPORARY.into());
        }
        let shown = self.program.display_name();
        print(&format_args!(
            "{WHY}; {shown} is run without being kept: it will not survive a reconnect"
        ));
        // It may hold a port or a lock.
        if let Ok(runtime) = runtime::current_thread() {
            runtime.block_on(self.session.stop());
        }
        let (environment, home) = &self.launch_env;
        let code = match PlainChild::start(&self.program, environment, home.as_deref(), &self.mask)
        {
            Ok(plain) => {
                note_unkept(shown, &WHY);
                self.leaver.hand_on_to(plain.pid());
                plain.forward(read, input)
            }
            Err(error) => {
                let (code, sentence) = self.program.not_run(&error);
                print(&sentence);
                code
            }
        };
        std::process::exit(code.into())
    }
}
