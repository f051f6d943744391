//! What can't be read since descriptors or memory are exhausted: a doubt that passes, and says
//! nothing about the process that was to be read.

use std::io;

use nix::errno::Errno;

/// This process has no descriptors left, or the machine has no memory. What was to be read may well
/// be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of file descriptors or memory")]
pub struct Exhausted;

impl Exhausted {
    /// Whether that is what an error says.
    pub(super) fn is_cause(error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
    }
}

impl From<Exhausted> for io::Error {
    fn from(exhausted: Exhausted) -> Self {
        Self::other(exhausted)
    }
}

/// What was read. None: it can't be.
pub(super) fn readable<T>(read: io::Result<T>) -> Result<Option<T>, Exhausted> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if Exhausted::is_cause(&error) => Err(Exhausted),
        Err(_) => Ok(None),
    }
}
