//! The front of one server that is started at its first call. Lines go through as they are; what is
//! answered before the server runs is `mcp_sessiond_bundle::Lazy`'s.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use mcp_sessiond_bundle::{Handshake, Lazy, Message, Source, Waking};
use mcp_sessiond_client::{ClaimRequest, Options};

use super::bundle::answer_memory::AnswerMemory;
use super::bundle::member::{Backend, BundleContext};
use super::bundle::{Launch, Server};
use super::drive::{self, Driver, Untold};
use super::first_line::FOR_EVER;
use super::pending_leaves::PendingLeaves;
use super::probe::ProbePolicy;
use super::stdio::PipeFront;
use super::{FrontSetup, Instead, InsteadFn, Way, run_with};
use crate::front_settings::FrontSettings;
use crate::memory::forbid_core_dumps;
use crate::notices::print_claim;
use crate::program::{LaunchEnv, Program};
use crate::server::connector::NoBackend;
use crate::server::keeper_connector::KeeperConnector;
use crate::server::remote::StoreUsers;
use crate::stderr::{NamedStderr, Stderr};

/// Speaks MCP to the host, on standard input and output, until the host closes its end or is gone.
/// The server is started at the first call, or behind the host's back, if it is known what it would say
/// until then.
pub fn run(
    options: Options,
    claim: ClaimRequest,
    program: &Program,
    settings: FrontSettings,
    waking: Waking,
) -> ExitCode {
    let instead: InsteadFn = match waking {
        Waking::AtFirstCall => {
            |begun, connector| Box::pin(serve_host(begun, connector, Waking::AtFirstCall))
        }
        Waking::AtStart => {
            |begun, connector| Box::pin(serve_host(begun, connector, Waking::AtStart))
        }
    };
    let settings = FrontSettings {
        first_line_wait: FOR_EVER,
        ..settings
    };
    run_with(
        options,
        claim,
        program,
        LaunchEnv::default(),
        settings,
        ProbePolicy::FromMemory,
        &Way::Instead(instead),
    )
}

async fn serve_host(
    begun: FrontSetup<'_>,
    connector: &mut KeeperConnector,
    waking: Waking,
) -> Instead {
    let FrontSetup {
        options,
        claim,
        program,
        settings,
        mask,
        leaver,
        input,
        lines,
    } = begun;
    let claimed = match connector.claim(Instant::now() + settings.keeper_wait).await {
        Ok(claimed) => claimed,
        Err(why) => return Ok(Err(why)),
    };
    let leaving = leaver.leave().subscribe();
    let (stderr, pending_leaves) = (Stderr::new()?, PendingLeaves::default());
    let common = Arc::new(BundleContext {
        options,
        claim,
        mask,
        settings,
        stderr: stderr.clone(),
        leaving,
        lease: None,
        shelves: StoreUsers::default(),
        pending_leaves: pending_leaves.clone(),
        session_loss: None,
        lost_members: Vec::new(),
        claimed_losses: claimed.lost.iter().map(|lost| lost.id).collect(),
        unkept: None,
    });
    let memory = AnswerMemory::new(common.options.clone(), stderr.clone());
    let known = Arc::new(memory.of(&program.digest(), None));
    let backend = Arc::new(Backend::single(server(program), common));
    let handshake = lines.whole_line().and_then(introduction);
    let lazy = Lazy::new(backend.clone(), known, handshake, waking);
    let opened = lazy.open().await;
    let failed = backend.first_failure();
    let pipe = match opened {
        Ok(pipe) => pipe,
        Err(failure) => return Ok(Err(failed.unwrap_or(NoBackend::Passing(failure.message)))),
    };
    // Messages are carried from here on.
    forbid_core_dumps();
    let (loss, outcome) = (connector.carried_loss(&claimed), claimed.outcome);
    let named = NamedStderr::of_one(stderr);
    let to = named.clone();
    let untold: Untold = Box::new(move || {
        print_claim(&to, loss, Some(outcome));
    });
    let driver = move |client| Driver::new(client, drive::policy(), named).telling(Some(untold));
    let front = PipeFront {
        input: input.try_clone()?,
        lines: std::mem::take(lines),
        leaver: leaver.clone(),
        waits: (settings.input_end_wait, settings.stop_wait),
        marks: None,
        probes_apart: false,
    };
    let session = Some(connector.session());
    match front
        .carry(pipe, driver, session, memory.flush(), pending_leaves)
        .await? {}
}

fn server(program: &Program) -> Server {
    let (name, program) = (program.display_name(), program.clone());
    let launch = move || {
        Ok(Launch::Program {
            program: program.clone(),
            environment: Vec::new(),
            home: None,
        })
    };
    Server {
        name,
        identity: String::new(),
        launch: Arc::new(launch),
        // This front is.
        lazy: None,
    }
}

/// The parameters of the host's `initialize`, if that is the line.
fn introduction(line: &[u8]) -> Option<Handshake> {
    match &mut Message::read(line)[..] {
        [Message::Request { method, params, .. }] if method == "initialize" => {
            params.take().map(Handshake)
        }
        _ => None,
    }
}
