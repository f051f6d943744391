//! What can't be read for want of means: a doubt that passes, and says nothing about the process
//! that was to be read.

use std::io;

use nix::errno::Errno;

/// This process has no descriptors left, or the machine has no memory. What was to be read may well
/// be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of file descriptors or memory")]
pub struct Scarce;

impl Scarce {
    /// Whether that is what an error says.
    pub(super) fn is_why(error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw);
        matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
    }
}

impl From<Scarce> for io::Error {
    fn from(scarce: Scarce) -> Self {
        Self::other(scarce)
    }
}

/// What was read. None: it can't be.
pub(super) fn seen<T>(read: io::Result<T>) -> Result<Option<T>, Scarce> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if Scarce::is_why(&error) => Err(Scarce),
        Err(_) => Ok(None),
    }
}
