//! One process at a time serves a name: it holds a lock, which goes with it, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use mcp_sessiond_client::ServiceName;
use mcp_sessiond_process::digest;
use mcp_sessiond_proto::paths;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NOFOLLOW;

/// The right to serve a name.
#[derive(Debug)]
pub struct Holder(#[expect(dead_code, reason = "held, not read")] Flock<File>);

/// Why it can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NotHeld {
    /// Another process has it.
    #[error("process {pid} serves {service} already; end it, or take another --name")]
    Taken {
        /// Its pid.
        pid: String,
        /// The service.
        service: ServiceName,
    },
    /// There can be no lock.
    #[error("the lock on {service} can't be had: {error}")]
    Io {
        /// The service.
        service: ServiceName,
        /// Why.
        error: io::Error,
    },
}

impl Holder {
    /// Takes the right, if nobody has it. The runtime directory is there.
    ///
    /// # Errors
    /// [`NotHeld`].
    pub fn of(service: &ServiceName) -> Result<Self, NotHeld> {
        let failed = |error| NotHeld::Io { service: service.clone(), error };
        let directory = paths::directory().map_err(|error| failed(io::Error::other(error)))?;
        let name = digest("mcp-sessiond serve lock", service.as_str().as_bytes());
        let name: String = name.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
        let file = options.open(directory.join(format!("serve-{name}.lock"))).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let noted = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
                noted.map_err(failed)?;
                Ok(Self(lock))
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(failed)?;
                Err(NotHeld::Taken { pid: pid.trim_end().into(), service: service.clone() })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}
