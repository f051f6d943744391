//! The front of one server that runs elsewhere.

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use mcp_sessiond_client::{ClaimRequest, Options};
use mcp_sessiond_proto::Claimed;
use mcp_sessiond_proto::types::LeaseRef;

use super::FAILED;
use super::drive::{self, Driver, Untold};
use super::first_line::FirstLine;
use super::pending_leaves::PendingLeaves;
use super::probe::{self, Opening, ProbePolicy, Probing};
use super::stdio::{PipeFront, in_runtime};
use crate::front_settings::FrontSettings;
use crate::memory::forbid_core_dumps;
use crate::notices::{note_unkept, print, print_claim};
use crate::program::Program;
use crate::server::connector::{NoBackend, WithoutKeeper, connect_unkept};
use crate::server::facts::ServerFacts;
use crate::server::keeper_connector::KeeperConnector;
use crate::server::remote::{RemoteServer, ResumeStore};
use crate::signals::{FRONT, GivenMask};
use crate::stderr::{NamedStderr, Stderr};

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
/// People know the server as `shown`, which has no secrets.
pub fn run(
    options: &Options,
    claim: ClaimRequest,
    shown: &str,
    server: RemoteServer,
    settings: FrontSettings,
) -> ExitCode {
    let mask = GivenMask::block(&FRONT);
    in_runtime(|runtime| serve_host(runtime, options, claim, shown, server, settings, mask))
}

fn serve_host(
    runtime: &tokio::runtime::Runtime,
    options: &Options,
    mut claim: ClaimRequest,
    shown: &str,
    server: RemoteServer,
    settings: FrontSettings,
    mask: GivenMask,
) -> io::Result<ExitCode> {
    let (mut front, first) = PipeFront::begin(settings)?;
    let client = match first {
        FirstLine::Closed => return Ok(ExitCode::SUCCESS),
        FirstLine::Read(client) => client,
        // There is no command that could get it. Each line of it is refused.
        FirstLine::Raw => None,
    };
    let facts = ServerFacts::new(options.clone(), server.digest().clone());
    let as_known = ProbePolicy::AsKnown;
    let known = || facts.clone();
    let opening = probe::answer(client, as_known, &known, &mut front.input, &mut front.lines);
    match runtime.block_on(opening) {
        Opening::Client(client) => claim.client = client,
        // A probe is sent outside any session, so nothing of an earlier one is touched.
        Opening::ProbesOnly(client) => claim.client = client,
        Opening::Closed => return Ok(ExitCode::SUCCESS),
    }
    claim.program = Some(shown.to_owned());
    let program = Program {
        name: shown.into(),
        arguments: Vec::new(),
        title: None,
        has_sources: true,
    };
    let claimed = runtime.block_on(async {
        let keeper = KeeperConnector::new(options.clone(), claim, program, mask, settings);
        let mut connector = keeper?;
        loop {
            let until = Instant::now() + settings.keeper_wait;
            match connector.claim(until).await {
                Ok(claimed) => return Ok::<_, NoBackend>((connector, claimed)),
                Err(why) => match connector.list_without_keepers(&why) {
                    WithoutKeeper::ClaimAgain => {}
                    _ => return Err(why),
                },
            }
        }
    });
    let stderr = Stderr::new()?;
    let named = NamedStderr::of_one(stderr.clone());
    let (lease, session_calls, untold) = match claimed {
        Ok((connector, claimed)) => {
            let (to, loss) = (named.clone(), connector.carried_loss(&claimed));
            let Claimed {
                session,
                epoch,
                outcome,
                ..
            } = claimed;
            let untold: Untold = Box::new(move || {
                print_claim(&to, loss, Some(outcome));
            });
            let lease = LeaseRef { session, epoch };
            (Some(lease), Some(connector.session()), Some(untold))
        }
        Err(why) => {
            print(&format_args!(
                "{why}; the session with {shown} will not survive a reconnect"
            ));
            note_unkept(shown.to_owned(), &why);
            (None, None, None)
        }
    };
    // Messages are carried from here on.
    forbid_core_dumps();
    let leaving = front.leaver.leave().subscribe();
    let store = ResumeStore::new(options, lease.as_ref(), shown, stderr, leaving);
    runtime.block_on(async {
        let mut connector = server.connector(store);
        let pipe = match connect_unkept(&mut *connector).await {
            Ok(pipe) => pipe,
            Err(why) => {
                print(&format_args!("{shown}: {why}"));
                return Ok(ExitCode::from(FAILED));
            }
        };
        let driver = move |client| {
            Driver::new(client, drive::policy(), named)
                .learning(Probing::new(facts))
                .telling(untold)
        };
        let pending = PendingLeaves::default();
        match front
            .carry(pipe, driver, session_calls, connector.release(), pending)
            .await? {}
    })
}
