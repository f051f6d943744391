//! The status, as C reads it.
#![allow(non_camel_case_types, reason = "these are the names in the header")]

use std::ffi::c_char;

use mcp_sessiond_client::{Outcome, Status};

use crate::values::mcp_sessiond_outcome::{self, *};
use crate::values::mcp_sessiond_state::*;
use crate::values::{MCP_SESSIOND_SESSION_SIZE, MCP_SESSIOND_TEXT_SIZE, mcp_sessiond_status};

/// The status in a struct that the caller has said to be of this size.
pub(crate) fn to_c(status: &Status, size: usize) -> mcp_sessiond_status {
    let mut to = mcp_sessiond_status {
        size,
        epoch: 0,
        state: MCP_SESSIOND_STATE_UNCLAIMED as u32,
        outcome: MCP_SESSIOND_OUTCOME_NONE as u32,
        is_final: 0,
        session: [0; MCP_SESSIOND_SESSION_SIZE],
        text: [0; MCP_SESSIOND_TEXT_SIZE],
    };
    match status {
        Status::Active {
            session,
            epoch,
            outcome,
        } => {
            to.state = MCP_SESSIOND_STATE_ACTIVE as u32;
            to.epoch = epoch.0;
            to.outcome = number(*outcome) as u32;
            copy(session.as_str(), &mut to.session);
        }
        Status::Disabled { reason } => {
            to.state = MCP_SESSIOND_STATE_DISABLED as u32;
            to.is_final = reason.is_final().into();
        }
        _ => {}
    }
    copy(&status.to_string(), &mut to.text);
    to
}

fn number(outcome: Outcome) -> mcp_sessiond_outcome {
    match outcome {
        Outcome::Held => MCP_SESSIOND_OUTCOME_HELD,
        Outcome::Resumed => MCP_SESSIOND_OUTCOME_RESUMED,
        Outcome::FreshFirst => MCP_SESSIOND_OUTCOME_FRESH_FIRST,
        Outcome::FreshHeld => MCP_SESSIOND_OUTCOME_FRESH_HELD,
        Outcome::FreshPlural => MCP_SESSIOND_OUTCOME_FRESH_PLURAL,
        Outcome::FreshNever => MCP_SESSIOND_OUTCOME_FRESH_NEVER,
        Outcome::FreshDoubtful => MCP_SESSIOND_OUTCOME_FRESH_DOUBTFUL,
    }
}

/// Copies a text, cut between two characters where it is too long, and followed by a NUL at least.
fn copy(text: &str, into: &mut [c_char]) {
    let mut end = text.len().min(into.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (place, byte) in into.iter_mut().zip(text[..end].bytes()) {
        *place = byte.cast_signed() as c_char;
    }
}
