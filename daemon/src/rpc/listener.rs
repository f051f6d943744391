//! Connections: which the daemon accepts, how many, and how long they may take for their hello.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mcp_sessiond_process::socket::Listener;
use mcp_sessiond_process::{self as process, Peer, PeerError};
use mcp_sessiond_proto::codec;
use mcp_sessiond_proto::frame::Budget;
use mcp_sessiond_proto::hello::{Answer, Hello, HelloError};
use mcp_sessiond_proto::service::{METHODS, Sessiond, SessiondRequest};
use tarpc::RequestName as _;
use tarpc::server::Serve as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::calls::Calls;
use super::connection::Connection;
use super::{Daemon, Handlers};
use crate::counters::count;

/// How long a peer may take for its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a peer that the daemon turns away may take for its hello.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// How many peers may be turned away with an answer at the same time. Beyond that the daemon hangs
/// up.
const TURNED_AWAY_MAX: usize = 32;

/// The pause before the next accept when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// After how many closed connections their memory is given back to the system; otherwise the
/// allocator keeps it.
const CLOSED_MANY: usize = 32;

/// The delay before that, so that it happens once for all connections that close together.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// How long after its start the daemon gives back what it needed only for that.
const STARTED_AFTER: Duration = Duration::from_secs(5);

/// Serves connections until `draining` says otherwise, then waits for the calls under way. The
/// caller limits that time.
///
/// # Errors
/// When the socket can't be listened on.
pub async fn serve(
    listener: Listener,
    daemon: Arc<Daemon>,
    mut draining: watch::Receiver<bool>,
) -> io::Result<()> {
    let socket = tokio::net::UnixListener::from_std(listener.into())?;
    let budget = Budget::new(daemon.engine.settings().loaded.config.limits.frame_bytes);
    let mut connections = JoinSet::new();
    let told = draining.clone();
    // The most connections since memory was last given back, and when to give it back next.
    let mut most = 0;
    let mut give_back_at = Some(Instant::now() + STARTED_AFTER);
    loop {
        let open = connections.len();
        most = most.max(open);
        if give_back_at.is_none() && most - open >= CLOSED_MANY {
            give_back_at = Some(Instant::now() + GIVE_BACK_AFTER);
        }
        tokio::select! {
            () = sleep_until(give_back_at), if give_back_at.is_some() => {
                mcp_sessiond_process::runtime::give_back_memory();
                (most, give_back_at) = (connections.len(), None);
            }
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, daemon.clone(), budget.clone(), told.clone()));
                }
                Err(error) => {
                    tracing::error!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = drained(&mut draining) => break,
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// One connection, from its first byte to its last.
async fn converse(
    mut stream: UnixStream,
    daemon: Arc<Daemon>,
    budget: Budget,
    mut draining: watch::Receiver<bool>,
) {
    let peer = match process::peer(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            refuse(stream, &daemon, &error).await;
            return;
        }
    };
    let id = peer.process().id();
    let place = {
        let settings = daemon.engine.settings();
        daemon.connections.enter(
            peer.process().clone(),
            &settings.loaded.config.limits,
            &budget,
        )
    };
    let Some(place) = place else {
        count(&daemon.engine.meters.counters.connections_over_limit_total);
        tracing::warn!(
            pid = id.pid,
            "refused a connection: as many as the limits allow are open"
        );
        turn_away(stream, &daemon, Answer::Busy).await;
        return;
    };
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(HELLO_TIMEOUT, greet(&mut stream, peer)) => greeted,
        () = drained(&mut draining) => {
            turn_away(stream, &daemon, Answer::Draining).await;
            return;
        }
    };
    let hello = match greeted {
        Ok(Ok(Greeted::Welcome(hello))) => hello,
        Ok(Ok(Greeted::Refused)) => return,
        Ok(Ok(Greeted::Unidentified(error))) => {
            note_refusal(&daemon, &error);
            return;
        }
        Ok(Err(_)) | Err(_) => {
            count(&daemon.engine.meters.counters.connections_broken_total);
            tracing::debug!(pid = id.pid, "a connection ended at its hello");
            return;
        }
    };
    count(&daemon.engine.meters.counters.connections_total);
    let Ok(codec) = hello.accept() else { return };
    let transport = codec::server(stream, codec, hello.frame_max, place.frames.clone());
    let most = daemon
        .engine
        .settings()
        .loaded
        .config
        .limits
        .requests_per_connection;
    let handlers = Handlers(Arc::new(Connection::new(
        daemon.clone(),
        place.peer.clone(),
        hello.version,
    )));
    let meters = daemon.meters.clone();
    let calls = Calls::new(transport, most, move |context, request| {
        let began = Instant::now();
        let (meters, method) = (meters.clone(), method(&request));
        let call = handlers.clone().serve().serve(context, request);
        async move {
            let answer = call.await;
            meters.requested(method, began.elapsed());
            answer
        }
    });
    if let Err(error) = calls.run(drained(&mut draining)).await {
        count(&daemon.engine.meters.counters.connections_broken_total);
        tracing::debug!(pid = id.pid, %error, "a connection was broken off");
    }
}

/// The name of a call.
fn method(request: &SessiondRequest) -> &'static str {
    // `Sessiond.store_token`
    let name = request.name();
    let name = name.rsplit('.').next().unwrap_or_default();
    METHODS
        .into_iter()
        .find(|method| *method == name)
        .unwrap_or_default()
}

/// Returns when the daemon is about to exit.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender is gone only when the daemon is.
    let _ = draining.wait_for(|draining| *draining).await.map(drop);
}

/// How a hello was answered.
enum Greeted {
    Welcome(Hello),
    /// The client speaks another protocol.
    Refused,
    /// Somebody else writes than the one that has connected.
    Unidentified(PeerError),
}

/// Reads the hello, has the peer answer the question who it is where the kernel does not know, and
/// answers.
async fn greet(stream: &mut UnixStream, peer: Peer) -> Result<Greeted, HelloError> {
    let hello = Hello::read(stream).await?;
    if let Err(answer) = hello.accept() {
        hello.reply(answer).write(stream).await?;
        return Ok(Greeted::Refused);
    }
    if let Peer::Claimed(challenge) = peer {
        let asking = hello
            .reply(Answer::Challenge)
            .challenging(challenge.bytes());
        stream.write_all(&asking).await?;
        if let Err(error) = challenge.answered(stream).await {
            hello.reply(Answer::Unidentified).write(stream).await?;
            return Ok(Greeted::Unidentified(error));
        }
    }
    hello.reply(Answer::Welcome).write(stream).await?;
    Ok(Greeted::Welcome(hello))
}

/// Turns away a peer that could not be identified.
async fn refuse(stream: UnixStream, daemon: &Daemon, error: &PeerError) {
    note_refusal(daemon, error);
    match error {
        // Nobody is there. Another user gets no answer.
        PeerError::Gone | PeerError::OtherUid(_) => {}
        // A fault of this process, such as too many open files.
        PeerError::Io(_) => turn_away(stream, daemon, Answer::Busy).await,
        PeerError::OtherNamespace
        | PeerError::AnotherWriter { .. }
        | PeerError::WrongAnswer
        | PeerError::NotHeld(_)
        | PeerError::NoLock(_) => {
            turn_away(stream, daemon, Answer::Unidentified).await;
        }
    }
}

/// Counts and logs why a peer is turned away.
fn note_refusal(daemon: &Daemon, error: &PeerError) {
    // The process was killed after it connected; that is no error.
    if matches!(error, PeerError::Gone) {
        tracing::debug!("a process was gone before its connection was accepted");
        return;
    }
    count(&daemon.engine.meters.counters.connections_refused_total);
    match error {
        PeerError::Io(_) => tracing::error!(%error, "refused a connection"),
        _ => tracing::warn!(%error, "refused a connection"),
    }
}

/// Tells a peer why the daemon turns it away, unless too many are being turned away.
async fn turn_away(mut stream: UnixStream, daemon: &Daemon, answer: Answer) {
    let turned_away = &daemon.connections.turned_away;
    if turned_away.fetch_add(1, Ordering::Relaxed) < TURNED_AWAY_MAX {
        let told = async {
            let hello = Hello::read(&mut stream).await?;
            hello.reply(answer).write(&mut stream).await?;
            Ok::<_, HelloError>(())
        };
        let _ = tokio::time::timeout(TURN_AWAY_TIMEOUT, told).await;
    }
    turned_away.fetch_sub(1, Ordering::Relaxed);
}
