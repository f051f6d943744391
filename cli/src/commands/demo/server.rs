//! A server: resumes or begins a session, says which, and serves until its host closes the pipe.
//!
//! It is its own broker: the token says which session it is and how often it was entered, and a new
//! one is issued at every visit.

use std::io::{self, BufRead, Write};

use mcp_sessiond_client::{Options, SessionId, Sessiond, Start, Status};
use serde::{Deserialize, Serialize};

use crate::runtime::block_on;

/// What the server is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionUse {
    /// The broker's session. Empty: resume was disabled.
    pub(super) session: String,
    /// How often it was entered.
    pub(super) visit: u32,
}

pub(super) fn play() -> io::Result<()> {
    let visit = block_on(enter())?;
    println(&serde_json::to_string(&visit)?)?;
    // The pipe ends when the host closes it or dies.
    for line in io::stdin().lock().lines() {
        line?;
    }
    Ok(())
}

async fn enter() -> SessionUse {
    let start = Start::Auto {
        binary: std::env::current_exe().ok(),
    };
    let sessiond = Sessiond::init(Options::default().start(start));
    let known = sessiond
        .load()
        .await
        .and_then(|token| serde_json::from_slice::<SessionUse>(token.expose()).ok());
    let visit = match known {
        Some(SessionUse { session, visit }) => SessionUse {
            session,
            visit: visit + 1,
        },
        None => SessionUse {
            session: SessionId::mint().as_str()[24..].to_owned(),
            visit: 1,
        },
    };
    let token = serde_json::to_vec(&visit).unwrap_or_default();
    if sessiond.store(&token).await {
        return visit;
    }
    if let Status::Disabled { reason } = sessiond.status() {
        crate::ui::output::warn(reason);
    }
    SessionUse {
        session: String::new(),
        visit: 0,
    }
}

fn println(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}
