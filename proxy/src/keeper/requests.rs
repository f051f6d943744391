//! Requests on a keeper's socket.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_client::{Control, SessionError};
use mcp_sessiond_process::{self as process, Peer, PeerError, PinnedProcess, ProcessId};
use mcp_sessiond_proto::backends::frame::{FrameBuffer, Kind};
use mcp_sessiond_proto::backends::{
    Attach, FrontLease, FrontRequest, KeeperReply, KeeperRequest, ProcessRef, relayed_max,
};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::hello::{Answer, Hello, HelloError};
use mcp_sessiond_proto::{BackendName, Error, KeeperName, Resume, ServiceName, SessionId};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::children::Children;
use super::sharing::NewClient;
use super::spare::{Spare, refuse};
use crate::frames::{Frames, PendingFrames};
use crate::lines::Line;
use crate::secrets::Secrets;
use crate::socket::{self, SocketWriter};

/// How long a client may take for its hello and its request.
const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// How many clients may send their hello and request at the same time.
const HANDSHAKES_MAX: usize = 16;

/// The pause before the next accept when no descriptor is free.
const PAUSE: Duration = Duration::from_millis(100);

/// What the daemon says of a front's lease.
#[derive(Debug)]
pub enum LeaseCheck {
    /// This process holds the session under the epoch that was shown.
    Holder(ProcessId, FrontRule),
    /// The daemon refuses.
    Refused(Error),
    /// The daemon does not answer.
    DaemonAway,
}

/// Whether a front may have the backend as a former one has left it.
#[derive(Debug, Clone, Copy)]
pub struct FrontRule {
    /// What counts for its host.
    pub resume: Resume,
    /// When it would have been closed at the earliest and at the latest if its host reconnected, in
    /// ms of [`start_clock_ms`](process::start_clock_ms).
    pub closed_ms: (u64, u64),
}

impl FrontRule {
    /// That of a backend that nobody has had.
    pub const NONE: Self = Self {
        resume: Resume::Always,
        closed_ms: (0, 0),
    };

    /// Whether a front forbids it that has left in this way. `closed_ms`: when it said so.
    pub fn forbids(&self, closed_ms: Option<u64>, is_used: bool) -> bool {
        let (from, to) = self.closed_ms;
        match self.resume {
            Resume::Always => false,
            Resume::Conversation => {
                closed_ms.is_some_and(|at| at == 0 || !(from..=to).contains(&at))
            }
            Resume::Cut => closed_ms.is_some(),
            Resume::Unknown => closed_ms.is_some() || is_used,
            Resume::Never => true,
        }
    }
}

/// A client that has sent its request.
#[derive(Debug)]
pub enum Incoming {
    /// A front asks for the backend.
    Attach {
        /// The lease that it shows.
        attach: Box<Attach>,
        /// The process.
        process: PinnedProcess,
        /// What the daemon says of the lease.
        check: LeaseCheck,
        /// What it says comes from here.
        reader: Frames,
        /// What it is told goes here.
        writer: SocketWriter,
    },
    /// A front asks for a place beside others.
    Join {
        /// What it has asked, and its connection.
        client: Box<NewClient>,
        /// The process.
        process: ProcessId,
    },
    /// A client asks for the state of the backend.
    Status {
        /// Where the answer goes.
        writer: SocketWriter,
    },
    /// A client asks for what the backend wrote to its standard error.
    Stderr {
        /// How many bytes of it the client knows.
        after: u64,
        /// Where the answer goes.
        writer: SocketWriter,
    },
    /// A front asks whether the keeper does its work.
    Ping {
        /// Where the answer goes.
        writer: SocketWriter,
    },
    /// A daemon asks whose backend this is.
    Remember {
        /// Where the answer goes.
        writer: SocketWriter,
    },
    /// A client asks for a fresh backend.
    Restart {
        /// Where the answer goes.
        writer: SocketWriter,
    },
}

/// What this keeper knows to check a client's request.
#[derive(Debug)]
pub struct KeeperContext {
    /// The session.
    pub session: SessionId,
    /// The service that the session belongs to, if any.
    pub service: Option<ServiceName>,
    /// What tells the backend from all others that hosts share, if they share it.
    pub key: Option<String>,
    /// Which backend of the session this is, where it has several.
    pub of: Option<BackendName>,
    /// What its backend is started with, for what is known of it.
    pub server: Option<ServerDigest>,
    /// The keeper.
    pub keeper: KeeperName,
    /// The daemon.
    pub control: Control,
    /// What the keeper has started.
    pub children: Arc<Children>,
}

impl KeeperContext {
    /// What the user calls the backend in a list of several, with a colon; nothing where it is the
    /// only one.
    pub(super) fn name_in_list(&self) -> String {
        let of = self.of.as_ref();
        of.map(|of| format!("{}: ", of.in_list()))
            .unwrap_or_default()
    }
}

/// Accepts clients until it is dropped.
pub async fn receive(
    listener: UnixListener,
    context: Arc<KeeperContext>,
    incoming: mpsc::Sender<Incoming>,
    mut spare: Spare,
) {
    let door = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(place) = door.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (context, incoming) = (context.clone(), incoming.clone());
                tokio::spawn(async move {
                    if let Ok(Ok(Some(request))) =
                        timeout(REQUEST_WAIT, read_request(stream, &context)).await
                    {
                        let _ = incoming.send(request).await;
                    }
                    drop(place);
                });
            }
            Err(_) => {
                spare.refuse_next(&listener);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn read_request(
    mut stream: UnixStream,
    context: &KeeperContext,
) -> Result<Option<Incoming>, HelloError> {
    let peer = match process::peer(&stream) {
        Ok(peer) => peer,
        // To hold the process takes a descriptor.
        Err(PeerError::Io(_)) => {
            refuse(&stream);
            return Ok(None);
        }
        // A process of another user gets no answer.
        Err(_) => return Ok(None),
    };
    let hello = Hello::read(&mut stream).await?;
    let newest = super::version();
    let say = |answer| Hello {
        version: newest,
        ..hello.reply(answer)
    };
    if let Err(answer) = hello.accept_keeper(newest) {
        say(answer).write(&mut stream).await?;
        return Ok(None);
    }
    let process = match peer {
        Peer::Known(process) => process,
        Peer::Claimed(challenge) => {
            let asking = say(Answer::Challenge).challenging(challenge.bytes());
            stream.write_all(&asking).await?;
            let Ok(process) = challenge.answered(&stream).await else {
                say(Answer::Unidentified).write(&mut stream).await?;
                return Ok(None);
            };
            process
        }
    };
    say(Answer::Welcome).write(&mut stream).await?;
    let (reader, writer) = socket::halves(stream.into_std()?)?;
    let mut reader = Frames::new(reader, FrameBuffer::default());
    let Some(asked) = reader.next().await? else {
        return Ok(None);
    };
    if asked.kind != Kind::Request {
        return Ok(None);
    }
    match serde_json::from_slice(asked.bytes()) {
        Ok(KeeperRequest::Attach(attach)) => {
            let check = check_lease(&attach, context).await;
            Ok(Some(Incoming::Attach {
                attach: Box::new(attach),
                process,
                check,
                reader,
                writer,
            }))
        }
        Ok(KeeperRequest::Join(join)) => {
            if context.key.as_ref() != Some(&join.key) {
                reply(&writer, &KeeperReply::Refused(Error::UnknownBackend)).await?;
                return Ok(None);
            }
            let session = context.session.clone();
            reply(&writer, &KeeperReply::Joining { session }).await?;
            let first = match reader.next().await? {
                Some(said) if said.kind == Kind::Line => said.body,
                _ => return Ok(None),
            };
            let Line::Whole(first) = first else {
                let why = format!("its host begins with more than {} bytes", relayed_max());
                reply(&writer, &KeeperReply::Own { why }).await?;
                return Ok(None);
            };
            Ok(Some(Incoming::Join {
                client: Box::new(NewClient {
                    join,
                    first,
                    reader,
                    writer,
                }),
                process: process.id(),
            }))
        }
        Ok(KeeperRequest::Status {}) => Ok(Some(Incoming::Status { writer })),
        Ok(KeeperRequest::Errors { after }) => Ok(Some(Incoming::Stderr { after, writer })),
        Ok(KeeperRequest::Restart {}) => Ok(Some(Incoming::Restart { writer })),
        Ok(KeeperRequest::Ping {}) => Ok(Some(Incoming::Ping { writer })),
        Ok(KeeperRequest::Remember {}) => Ok(Some(Incoming::Remember { writer })),
        Ok(KeeperRequest::Compare { variables }) => {
            let differing = differing(&process::own_variables(), &variables);
            reply(&writer, &KeeperReply::Compared { differing }).await?;
            Ok(None)
        }
        Ok(KeeperRequest::Hide { texts }) => {
            let command = std::env::args_os().skip_while(|word| word != "--").skip(1);
            let command: Vec<String> = command
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let secrets = Secrets::own(&command);
            let texts = texts.iter().map(|text| secrets.hide(text)).collect();
            reply(&writer, &KeeperReply::Hidden { texts }).await?;
            Ok(None)
        }
        Err(_) => {
            // The error does not quote the request, which may contain a message.
            let sentence =
                "a keeper takes the requests `attach`, `join`, `status`, `errors`, `restart`, `ping`, `remember`, `compare` and `hide`"
                    .into();
            reply(
                &writer,
                &KeeperReply::Refused(Error::InvalidArgument { sentence }),
            )
            .await?;
            Ok(None)
        }
    }
}

/// The names of the variables that differ, or that only one side has.
fn differing(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .cloned()
        .collect()
}

/// Writes an answer.
///
/// # Errors
/// Those of the connection.
pub async fn reply(writer: &SocketWriter, reply: &KeeperReply) -> io::Result<()> {
    let mut pending = PendingFrames::default();
    pending.put(Kind::Reply, 0, serde_json::to_vec(reply)?.into());
    pending.write(writer).await
}

/// What the daemon says of the lease that a front shows.
async fn check_lease(attach: &Attach, context: &KeeperContext) -> LeaseCheck {
    let is_its = attach.session == context.session && attach.service == context.service;
    if !is_its || context.key.is_some() {
        return LeaseCheck::Refused(Error::UnknownSession);
    }
    if attach.continues != context.service.is_some() {
        let sentence =
            "the fronts of a service's session continue each other (`continues`), and no others do"
                .into();
        return LeaseCheck::Refused(Error::InvalidArgument { sentence });
    }
    let request = FrontRequest {
        session: context.session.clone(),
        keeper: context.keeper,
        epoch: attach.epoch,
    };
    let said = context.control.ask(Client::check_front, request);
    let said = said.await;
    // One connection for each front's check, not a lasting one for each keeper.
    context.control.hang_up();
    match said {
        Ok(FrontLease {
            process: ProcessRef { pid, start, inode },
            resume,
            started_ms,
            closed_again_ms,
        }) => {
            let holder = ProcessId {
                pid,
                start: process::StartTime(start),
                inode,
            };
            let earliest = started_ms.saturating_sub(closed_again_ms);
            let rule = FrontRule {
                resume,
                closed_ms: (earliest, started_ms),
            };
            LeaseCheck::Holder(holder, rule)
        }
        // The daemon is not running, or ended before it answered.
        Err(SessionError::Refused(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })) => {
            LeaseCheck::DaemonAway
        }
        Err(SessionError::Refused(error)) => LeaseCheck::Refused(error),
        Err(_) => LeaseCheck::DaemonAway,
    }
}
