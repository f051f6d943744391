//! Bytes that wait for a server, which are bounded: it may have stopped reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::refusal::Refusal;

/// Bytes that wait for a server which does not read.
const BUDGET_BYTES: usize = 32 * 1024 * 1024;

/// How many bytes wait for a server.
#[derive(Debug, Default)]
pub(crate) struct SendBudget(Arc<AtomicUsize>);

/// A share of the bytes that may wait for a server. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share(Arc<AtomicUsize>, usize);

impl SendBudget {
    /// Takes a share.
    ///
    /// # Errors
    /// When there is none left.
    pub(crate) fn take(&self, bytes: usize) -> Result<Share, Refusal> {
        let share = Share(self.0.clone(), bytes);
        if self.0.fetch_add(bytes, Ordering::Relaxed) + bytes > BUDGET_BYTES {
            let message =
                format!("the server does not read: {BUDGET_BYTES} bytes wait for it already");
            return Err(Refusal::for_now(message));
        }
        Ok(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_what_is_read_makes_room() {
        let all = SendBudget::default();
        let most = all.take(BUDGET_BYTES).expect("room");
        for _ in 0..2 {
            assert_eq!(all.take(1).expect_err("none left").status, 503);
        }
        drop(most);
        assert!(all.take(1).is_ok());
    }
}
