//! Who comes to a keeper's socket, and what for.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{Control, SessionError};
use mcp_sessiond_process::{self as process, Pinned, ProcessId};
use mcp_sessiond_proto::backends::{Attach, FrontRequest, KeeperReply, KeeperRequest, ProcessRef};
use mcp_sessiond_proto::hello::{Answer, CONTINUES, Hello, HelloError};
use mcp_sessiond_proto::{Error, KeeperName, ServiceName, SessionId};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::lines::{Line, Lines};

/// How long a visitor may take for its hello and its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Visitors that may be at the door at the same time.
const DOOR: usize = 16;

/// How long accepting pauses when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// What the daemon says of a front's lease.
#[derive(Debug)]
pub enum Word {
    /// This process holds the session under the epoch that was shown.
    Holder(ProcessId),
    /// No.
    Refused(Error),
    /// The daemon is away.
    Away,
}

/// A visitor that has said what it wants.
#[derive(Debug)]
pub enum Visit {
    /// A front would like to have the backend.
    Attach {
        /// What it showed.
        attach: Attach,
        /// The process.
        process: Pinned,
        /// What the daemon says.
        word: Word,
        /// Where it speaks.
        reader: Lines<OwnedReadHalf>,
        /// Where it listens.
        writer: OwnedWriteHalf,
    },
    /// The connection beside that of a front.
    Beside {
        /// The front's process.
        process: ProcessId,
        /// The connection.
        stream: UnixStream,
    },
    /// Somebody would like to know how the backend is.
    Status {
        /// Where the answer goes.
        writer: OwnedWriteHalf,
    },
    /// A daemon would like to know whose backend it is.
    Remember {
        /// Where the answer goes.
        writer: OwnedWriteHalf,
    },
    /// Somebody would like to have a fresh backend.
    Restart {
        /// Where the answer goes.
        writer: OwnedWriteHalf,
    },
}

/// What visitors are told, and checked against.
#[derive(Debug)]
pub struct House {
    /// The session.
    pub session: SessionId,
    /// The service that the session belongs to, if any.
    pub service: Option<ServiceName>,
    /// The keeper.
    pub keeper: KeeperName,
    /// The daemon.
    pub control: Control,
}

/// Lets visitors in until it is dropped.
pub async fn receive(listener: UnixListener, house: Arc<House>, visits: mpsc::Sender<Visit>) {
    let door = Arc::new(tokio::sync::Semaphore::new(DOOR));
    loop {
        let Ok(place) = door.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (house, visits) = (house.clone(), visits.clone());
                tokio::spawn(async move {
                    if let Ok(Ok(Some(visit))) = timeout(PATIENCE, greet(stream, &house)).await {
                        let _ = visits.send(visit).await;
                    }
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn greet(mut stream: UnixStream, house: &House) -> Result<Option<Visit>, HelloError> {
    // Anybody else is not told a word.
    let Ok(peer) = process::peer(&stream) else { return Ok(None) };
    let hello = Hello::read(&mut stream).await?;
    let newest = super::version();
    let answer = hello.accept_lines(newest).err().unwrap_or(Answer::Welcome);
    Hello { version: newest, features: CONTINUES, ..hello.reply(answer) }.write(&mut stream).await?;
    if answer != Answer::Welcome {
        return Ok(None);
    }
    let process = peer.process;
    let (reader, mut writer) = stream.into_split();
    let mut reader = Lines::new(reader);
    let Some(Line::Whole(line)) = reader.next().await? else { return Ok(None) };
    match serde_json::from_slice(&line) {
        Ok(KeeperRequest::Attach(attach)) => {
            let word = word(&attach, house).await;
            Ok(Some(Visit::Attach { attach, process, word, reader, writer }))
        }
        Ok(KeeperRequest::Beside {}) => {
            reply(&mut writer, &KeeperReply::Beside {}).await?;
            let (reader, _) = reader.into_parts();
            let stream = reader.reunite(writer).map_err(io::Error::other)?;
            Ok(Some(Visit::Beside { process: process.id(), stream }))
        }
        Ok(KeeperRequest::Status {}) => Ok(Some(Visit::Status { writer })),
        Ok(KeeperRequest::Restart {}) => Ok(Some(Visit::Restart { writer })),
        Ok(KeeperRequest::Remember {}) => Ok(Some(Visit::Remember { writer })),
        Ok(KeeperRequest::Compare { variables }) => {
            let differing = differing(&process::own_variables(), &variables);
            reply(&mut writer, &KeeperReply::Compared { differing }).await?;
            Ok(None)
        }
        Err(_) => {
            // What stood in it is not repeated: it may hold a message.
            let sentence =
                "a keeper is asked to `attach`, for a place `beside`, for its `status`, to `restart`, or to `compare`"
                    .into();
            reply(&mut writer, &KeeperReply::Refused(Error::InvalidArgument { sentence })).await?;
            Ok(None)
        }
    }
}

/// The names of what differs by value, or by being there.
fn differing(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// Writes an answer, one line.
///
/// # Errors
/// Those of the connection.
pub async fn reply(writer: &mut OwnedWriteHalf, reply: &KeeperReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

/// What the daemon says of the lease that a front shows.
async fn word(attach: &Attach, house: &House) -> Word {
    if attach.session != house.session || attach.service != house.service {
        return Word::Refused(Error::UnknownSession);
    }
    if attach.continues != house.service.is_some() {
        let sentence =
            "the fronts of a service's session continue each other (`continues`), and no others do".into();
        return Word::Refused(Error::InvalidArgument { sentence });
    }
    let request = FrontRequest { session: house.session.clone(), keeper: house.keeper, epoch: attach.epoch };
    let said = house.control.call(|connection, context| {
        let request = request.clone();
        async move { connection.check_front(context, request).await }
    });
    let said = said.await;
    // One connection a front, not one a keeper.
    house.control.hang_up();
    match said {
        Ok(ProcessRef { pid, start, inode }) => {
            Word::Holder(ProcessId { pid, start: process::StartTime(start), inode })
        }
        // The daemon is not running, or ended before it answered.
        Err(SessionError::Refused(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })) => Word::Away,
        Err(SessionError::Refused(error)) => Word::Refused(error),
        Err(_) => Word::Away,
    }
}
