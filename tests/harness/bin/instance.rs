//! A server that does nothing but use the client library:
//! `instance [--start] [--siblings oldest] [--label LABEL] [--none] [ANYTHING…]`.
//!
//! It takes commands from standard input, one a line: `load`, `store TOKEN`, `reject`, `release`,
//! `status`, and `call METHOD PARAMS`, which says that to the daemon and answers with `result` or
//! `error`, and `spawn ARGUMENTS` (an array), which starts a child and answers with its `pid`. Each
//! is answered with one line of JSON. It does not start a daemon unless told to. It ends with its
//! standard input.

use std::io::Write as _;
use std::process::{Command, Stdio};

use mcp_sessiond_client::{Options, Sessiond, Siblings, Start, Status};
use mcp_sessiond_proto::hello::Codec;
use mcp_sessiond_tests::Peer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    let sessiond = Sessiond::init(options()?);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        let (verb, argument) = command.split_once(' ').unwrap_or((&command, ""));
        let mut answer = json!({});
        match verb {
            "load" => {
                let token = sessiond.load().await;
                answer["token"] = token
                    .map(|token| String::from_utf8_lossy(token.expose()).into_owned())
                    .into();
            }
            "store" => answer["done"] = sessiond.store(argument.as_bytes()).await.into(),
            "reject" => answer["done"] = sessiond.reject().await.into(),
            "release" => sessiond.release().await,
            "call" => {
                let (method, params) = argument.split_once(' ').unwrap_or((argument, "{}"));
                let directory = std::env::var("MCP_SESSIOND_DIR")?;
                let mut peer =
                    Peer::connect(&mcp_sessiond_proto::paths::socket(directory.as_ref()));
                peer.greet(Codec::JsonRpc);
                match peer.call(method, serde_json::from_str(params)?) {
                    Ok(result) => answer["result"] = result,
                    Err(error) => answer["error"] = error,
                }
            }
            "spawn" => {
                let arguments: Vec<String> = serde_json::from_str(argument)?;
                let (program, rest) = arguments.split_first().ok_or("no program")?;
                let mut child = Command::new(program);
                child.args(rest).stdin(Stdio::null()).stdout(Stdio::null());
                answer["pid"] = child.spawn()?.id().into();
            }
            _ => {}
        }
        add_status(&mut answer, &sessiond.status());
        let mut output = std::io::stdout().lock();
        output.write_all(format!("{answer}\n").as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn options() -> Result<Options, Box<dyn std::error::Error>> {
    let mut options = Options::default().start(Start::Never);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        options = match argument.as_str() {
            "--start" => options.start(Start::default()),
            "--siblings" => match arguments.next().as_deref() {
                Some("oldest") => options.siblings(Siblings::Oldest),
                _ => options.siblings(Siblings::Fresh),
            },
            "--label" => options.label(arguments.next().unwrap_or_default().parse()?),
            _ => options,
        };
    }
    Ok(options)
}

fn add_status(answer: &mut Value, status: &Status) {
    match status {
        Status::Active {
            session,
            epoch,
            outcome,
        } => {
            answer["session"] = session.as_str().into();
            answer["epoch"] = epoch.0.into();
            answer["outcome"] = json!(outcome);
        }
        Status::Disabled { reason } => answer["disabled"] = reason.to_string().into(),
        _ => {}
    }
}
