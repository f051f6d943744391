//! How each shared server is used.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use mcp_sessiond_client::SessionId;
use mcp_sessiond_process as process;
use mcp_sessiond_proto::backends::KEEPER_VERSION;
use mcp_sessiond_proto::backends::frame::{FrameBuffer, Kind, frame};
use mcp_sessiond_proto::hello::{Hello, greet_blocking};
use mcp_sessiond_proto::paths;

use super::{Reply, Request};
use crate::keeper::dial::connected;

/// How long a sharer may take to say it.
const REQUEST_WAIT: Duration = Duration::from_secs(2);

/// How a shared server is used.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// How many hosts have it.
    pub hosts: usize,
    /// How many of its notifications nobody was told, since it can't be known whom they concern.
    pub withheld: u64,
}

/// How shared servers are used, by their sessions. A sharer that does not answer is left out.
pub fn uses(directory: &Path) -> BTreeMap<SessionId, Use> {
    let found = std::fs::read_dir(paths::shared(directory))
        .into_iter()
        .flatten()
        .flatten();
    let sockets = found
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_none());
    sockets
        .filter_map(|socket| ask(&socket).ok().flatten())
        .collect()
}

fn ask(socket: &Path) -> io::Result<Option<(SessionId, Use)>> {
    let mut stream = connected(socket, REQUEST_WAIT)?;
    // Another user's process is none of ours.
    if !process::is_ours(&stream) {
        return Ok(None);
    }
    stream.set_read_timeout(Some(REQUEST_WAIT))?;
    greet_blocking(&mut stream, &Hello::keeper(KEEPER_VERSION)).map_err(io::Error::other)?;
    let request = serde_json::to_vec(&Request::Status {})?;
    stream.write_all(&frame(Kind::Request, 0, &request))?;
    let mut frames = FrameBuffer::default();
    // It hangs up after its answer.
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    frames.room().extend_from_slice(&bytes);
    let reply = frames.next_frame().map_err(io::Error::other)?;
    let reply = reply.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(match serde_json::from_slice(reply.bytes())? {
        Reply::Status {
            session,
            places,
            withheld,
        } => Some((
            session,
            Use {
                hosts: places,
                withheld,
            },
        )),
        _ => None,
    })
}
