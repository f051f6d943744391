//! [`OwnPort`]: a port for a server that is killed and started again.

use std::fs::{File, create_dir_all};
use std::net::TcpListener;

use nix::unistd::getuid;

/// Below those that Linux gives out by itself (`ip_local_port_range`).
const FIRST: u16 = 20_000;
const NUMBER: u16 = 10_000;

/// A port that nobody else listens on while this is there, though nobody may listen on it for a while:
/// where a server is gone, the next one of another test would get a port that the system chooses.
#[derive(Debug)]
pub struct OwnPort {
    /// Its number.
    pub number: u16,
    _lock: File,
}

impl OwnPort {
    /// Takes one.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn take() -> Self {
        let directory = std::env::temp_dir().join(format!("mcp-sessiond-ports-{}", getuid()));
        create_dir_all(&directory).expect("a directory");
        let begin = std::process::id() % u32::from(NUMBER);
        let taken = (0..u32::from(NUMBER)).find_map(|nth| {
            let number = FIRST + u16::try_from((begin + nth) % u32::from(NUMBER)).ok()?;
            let lock = File::create(directory.join(number.to_string())).ok()?;
            lock.try_lock().ok()?;
            TcpListener::bind(("127.0.0.1", number)).ok()?;
            Some(Self {
                number,
                _lock: lock,
            })
        });
        taken.expect("a port")
    }
}
