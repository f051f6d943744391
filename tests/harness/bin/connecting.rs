//! A front that gives up while it connects: `connecting wrap --instance NAME -- COMMAND…`. With
//! `MCP_SESSIOND_TEST_POLLS=N` in its environment it polls the attempt N times, drops it, and gives up
//! what was begun, unless `MCP_SESSIOND_TEST_KEEPS` is there, too. It says `{"connected": BOOL}`, and
//! stays until its input ends.
//!
//! Without that variable, and as the keeper that it starts, it is `mcp-sessiond` itself.

use std::io::{self, Read as _};
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::{Duration, Instant};

use mcp_sessiond_client::{ClaimRequest, Options, Start};
use mcp_sessiond_proxy::front_settings::FrontSettings;
use mcp_sessiond_proxy::program::Program;
use mcp_sessiond_proxy::server::connector::{Connector as _, Hello};
use mcp_sessiond_proxy::server::keeper_connector::KeeperConnector;
use mcp_sessiond_proxy::signals::GivenMask;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let polls = std::env::var("MCP_SESSIOND_TEST_POLLS").map(|polls| polls.parse());
    let [verb, _, label, _, name, arguments @ ..] = &words[..] else {
        return mcp_sessiond::main();
    };
    let ("wrap", Ok(polls)) = (&**verb, polls) else {
        return mcp_sessiond::main();
    };
    let claim = ClaimRequest {
        label: Some(label.parse().expect("a label")),
        client: Some("test".parse().expect("a name")),
        wrapped: true,
        ..ClaimRequest::default()
    };
    let program = Program {
        name: name.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        title: None,
        has_sources: true,
    };
    run(claim, program, polls.expect("a number"));
    ExitCode::SUCCESS
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the test reads it")]
async fn run(claim: ClaimRequest, program: Program, polls: usize) {
    let settings = FrontSettings {
        keeper_wait: PATIENCE,
        ..FrontSettings::default()
    };
    let options = Options::default().start(Start::Never);
    let mask = GivenMask::block(&[]);
    let mut connector =
        KeeperConnector::new(options, claim, program, mask, settings).expect("a directory");
    let hello = Hello::default();
    let connected = {
        let mut connecting = pin!(connector.connect(&hello, Instant::now() + PATIENCE));
        let mut left = polls;
        let polled = std::future::poll_fn(|context| {
            left -= 1;
            match connecting.as_mut().poll(context) {
                Poll::Pending if left > 0 => Poll::Pending,
                polled => Poll::Ready(polled),
            }
        });
        polled.await
    };
    let connected = match connected {
        Poll::Ready(connected) => Some(connected.expect("it connects")),
        Poll::Pending => None,
    };
    if connected.is_none() && std::env::var_os("MCP_SESSIOND_TEST_KEEPS").is_none() {
        connector.release().await;
    }
    println!("{}", json!({"connected": connected.is_some()}));
    // Nothing else is to be done meanwhile.
    let _ = io::stdin().read(&mut [0]);
}
