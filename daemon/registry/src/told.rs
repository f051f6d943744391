//! What the answer to a claim tells of losses.

use alloc::vec::Vec;

use mcp_sessiond_proto::{Loss, LossRecord};

/// What a claim is told that gets a fresh session: nothing was before, or this became of it. No
/// session is opened without, and only what is on record makes one.
#[derive(Debug)]
pub(super) struct Told {
    because: Option<Loss>,
    lost: Vec<LossRecord>,
}

impl Told {
    pub(super) fn new(because: Option<Loss>, lost: Vec<LossRecord>) -> Self {
        Self { because, lost }
    }

    /// Why it gets what it gets.
    pub(super) fn because(&self) -> Option<Loss> {
        self.because
    }

    /// What is on record of that, and of the members of its session.
    pub(super) fn lost(self) -> Vec<LossRecord> {
        self.lost
    }
}

/// The loss of the session itself, among those of its members.
pub(super) fn own(lost: &[LossRecord]) -> Option<Loss> {
    let own = lost.iter().find(|loss| loss.of.is_none())?;
    Some(own.because)
}
