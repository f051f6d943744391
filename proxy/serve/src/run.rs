//! Listens for connections, until a signal ends this process.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::StreamExt as _;
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::service::Service as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use mcp_sessiond_client::{Options, Sessions};
use mcp_sessiond_process::signals::not_ignored;
use mcp_sessiond_process::{PinnedProcess, descriptors, tcp};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proxy::front::bundle::{Edit, List};
use mcp_sessiond_proxy::unkept::{self, Unkept};
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use signal_hook_tokio::Signals;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::backend::Backends;
use crate::bundles::{BundleOptions, Bundles, Listing};
use crate::connections::{ConnectionSlot, ConnectionSlots};
use crate::counts::{Connection, Counts};
use crate::endpoints::Endpoints;
use crate::half_close::{HalfClose, RequestBody, ResponseBody, Socket};
use crate::http::{PATH, router};
use crate::inspect;
use crate::keeper_backend::Keepers;
use crate::live::Shared;
use crate::settings::{Listen, Proof, Servers, Settings, Target};
pub use crate::start_error::StartError;
use crate::start_error::not_leased;
use crate::stderr::warn;
use crate::table::Table;
use crate::upstream::Upstreams;

/// How often a client of HTTP/2 gets a ping, and how long it may take to answer.
const PING_WAIT: Duration = Duration::from_secs(15);
/// Bytes that a head may have.
const HEAD_MAX: usize = 32 * 1024;
/// Headers that a request may have.
const HEADERS_MAX: usize = 100;
/// Requests of one connection of HTTP/2 that may be under way.
const STREAMS_MAX: u32 = 128;
/// How long a connection of HTTP/2 on which nothing is asked may take to end.
const GOODBYE: Duration = Duration::from_secs(1);
/// Connections at one time.
const CONNECTIONS_MAX: usize = 1_024;
/// The pause after a connection could not be accepted, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before a daemon is looked for again.
const DAEMON_PAUSE: Duration = Duration::from_secs(1);
/// The answer to a connection of another user's.
const NOT_OURS: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 76\r\n\r\n\
    The kernel does not say that this is of the user who runs mcp-sessiond serve";

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Serves until SIGTERM or SIGINT. After SIGINT the sessions have ended, too, unless they are to be
/// kept.
///
/// # Errors
/// [`StartError`], before anything was served.
pub async fn run(settings: Settings) -> Result<(), StartError> {
    tokio::spawn(mcp_sessiond_proxy::memory::give_back_once_started());
    let options = Options::default()
        .start(settings.start.clone())
        .timeout(settings.hold);
    let sessions = Sessions::of_service(settings.service.clone(), options);
    let mut signals = Signals::new(not_ignored(&[Signal::SIGTERM, Signal::SIGINT]))?;
    tokio::select! {
        found = find_daemon(&sessions, settings.waits) => found?,
        _ = signals.next() => return Ok(()),
    };
    let (backends, bundle) = backends(&settings).await?;
    let (listener, at) = bind(&settings.listen).await?;
    let settings = Arc::new(settings);
    let endpoints = Endpoints::new(settings.clone(), bundle);
    endpoints.update().await?;
    let table = Arc::new(Table::new(Shared {
        settings,
        sessions,
        backends,
        counts: Counts::default(),
    }));
    let settings = &table.shared().settings;
    announce(&at, settings.inspect);
    if let Some(host) = host_wanted(settings) {
        warn(format_args!(
            "a request that names another host than localhost is refused with 403; allow what clients call this machine, by `--host {host}`"
        ));
    }
    note(table.shared());
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let serving = accept(
        &listener,
        endpoints.merged_into(router(&table)),
        table.shared(),
    );
    let ends = tokio::select! {
        () = serving => false,
        () = table.end_idle() => false,
        () = endpoints.follow() => false,
        signal = signals.next() => signal == Some(Signal::SIGINT as i32) && !table.shared().settings.keep,
    };
    if let Listener::Unix(_, path) = &listener {
        let _ = std::fs::remove_file(path);
    }
    if ends {
        futures::join!(table.end(), endpoints.end());
    } else {
        table.close();
        endpoints.close();
    }
    Ok(())
}

/// Reads the servers of servers.json, and follows the edits of that file.
fn bundle_options(
    servers: &Servers,
    descriptors: Option<u64>,
) -> Result<BundleOptions, StartError> {
    let mut list = (servers.list)();
    let listing = |list: &dyn List| {
        Ok(Listing {
            servers: list.servers(),
            decorations: list.decorations()?,
        })
    };
    // Without what is added to them something would be let through that must not be.
    let (edits, current) = watch::channel(Arc::new(listing(&*list).map_err(StartError::List)?));
    let bundle = BundleOptions {
        listing: current,
        place: list.place(),
        settings: servers.settings.clone(),
        descriptors,
    };
    tokio::spawn(async move {
        loop {
            match list.next().await {
                Edit::Servers(_) => match listing(&*list) {
                    Ok(now) => drop(edits.send_replace(Arc::new(now))),
                    Err(why) => warn(format_args!("{why}; its servers stay as they are")),
                },
                Edit::Wrong(why) => warn(why),
            }
        }
    });
    Ok(bundle)
}

/// Makes sure that there is a daemon.
async fn find_daemon(sessions: &Sessions, waits: bool) -> Result<(), StartError> {
    let mut is_logged = false;
    while let Err(error) = sessions.list().await {
        let error = StartError::NoDaemon(error);
        if !waits {
            return Err(error);
        }
        if !is_logged {
            warn(format_args!("{error}; waiting for one"));
        }
        is_logged = true;
        sleep(DAEMON_PAUSE).await;
    }
    Ok(())
}

/// Notes what is served, where `mcp-sessiond status` finds it: no keeper holds a server that speaks
/// HTTP itself, nor one that no client has a session with.
fn note(shared: &Shared) {
    let settings = &shared.settings;
    let (what, why) = match &settings.target {
        Target::Upstream(remote) => (remote.to_string(), "it speaks HTTP itself"),
        Target::Program(program) => (program.display_name(), "each session has its own"),
        Target::Servers(_) => ("all servers".to_owned(), "each session has its own"),
    };
    if let (Ok(directory), Ok(own)) = (paths::directory(), PinnedProcess::own()) {
        let note = Unkept::now(&own, what, &why);
        unkept::note(
            &directory,
            &Unkept {
                service: Some(settings.service.clone()),
                ..note
            },
        );
    }
}

/// Leases the service. Returns where the backends of its sessions come from; and, of several
/// servers, what a bundle of them is made of.
async fn backends(
    settings: &Settings,
) -> Result<(Arc<dyn Backends>, Option<BundleOptions>), StartError> {
    // One for each client's connection, and two for each server's keeper.
    let descriptors = descriptors::raise();
    let refused = |error| not_leased(error, &settings.service);
    Ok(match &settings.target {
        Target::Program(program) => {
            let keepers = Keepers::of(settings, program.clone(), descriptors).await;
            (Arc::new(keepers.map_err(refused)?), None)
        }
        Target::Upstream(remote) => {
            let upstreams = Upstreams::of(settings, remote).await;
            (Arc::new(upstreams.map_err(refused)?), None)
        }
        Target::Servers(servers) => {
            let bundle = bundle_options(servers, descriptors)?;
            let service = settings.service.clone();
            let bundles = Bundles::lease(settings, service, &bundle, None).await;
            (Arc::new(bundles.map_err(refused)?), Some(bundle))
        }
    })
}

/// What `--host` has to name before a client of another machine is let in, where nothing is named.
fn host_wanted(settings: &Settings) -> Option<String> {
    let Listen::Tcp(address) = settings.listen else {
        return None;
    };
    let ip = address.ip();
    let is_open = !ip.is_loopback() && settings.hosts.is_empty();
    is_open.then(|| match ip {
        ip if ip.is_unspecified() => "NAME".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("'[{ip}]'"),
    })
}

fn announce(at: &str, inspect: bool) {
    // Standard output may be closed.
    let _ = writeln!(io::stdout(), "listening at {at}");
    if let (true, Some((before, after))) = (inspect, at.rsplit_once(PATH)) {
        let _ = writeln!(
            io::stdout(),
            "sessions are shown at {before}{}{after}",
            inspect::PATH
        );
    }
}

/// Whether `serve` could listen here at the moment.
///
/// # Errors
/// [`StartError::NoListener`], where something is there already.
pub fn check_listen(listen: &Listen) -> Result<(), StartError> {
    let (at, free) = match listen {
        Listen::Tcp(address) => {
            let bound = std::net::TcpListener::bind(address);
            let free = bound.map(drop).map_err(|error| in_use(*address, error));
            (address.to_string(), free)
        }
        Listen::Unix(path) => (path.display().to_string(), is_free(path)),
    };
    free.map_err(|error| StartError::NoListener { at, error })
}

async fn bind(listen: &Listen) -> Result<(Listener, String), StartError> {
    match listen {
        Listen::Tcp(address) => {
            let refused = |error| StartError::NoListener {
                at: address.to_string(),
                error,
            };
            let listener = TcpListener::bind(address)
                .await
                .map_err(|error| refused(in_use(*address, error)))?;
            let at: SocketAddr = listener.local_addr().map_err(refused)?;
            Ok((Listener::Tcp(listener), format!("http://{at}{PATH}")))
        }
        Listen::Unix(path) => {
            let refused = |error| StartError::NoListener {
                at: path.display().to_string(),
                error,
            };
            let listener = bind_unix(path).map_err(refused)?;
            Ok((
                Listener::Unix(listener, path.clone()),
                format!("unix:{} (http://localhost{PATH})", path.display()),
            ))
        }
    }
}

/// The same error; where a process listens there already, with its pid.
fn in_use(address: SocketAddr, error: io::Error) -> io::Error {
    let listener = match error.kind() {
        io::ErrorKind::AddrInUse => tcp::listener_on(address.port()),
        _ => None,
    };
    match listener {
        Some(pid) => io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "{} (pid {pid}) listens there; choose another port with `--listen`, or end that process",
                mcp_sessiond_process::name_of(pid)
            ),
        ),
        None => error,
    }
}

/// Whether there is nothing, or a socket at which no process listens any more.
fn is_free(path: &Path) -> io::Result<()> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is something that is not a socket",
        )),
        _ => Ok(()),
    }
}

/// Binds a socket of mode 0600.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    is_free(path)?;
    let bound = mcp_sessiond_process::socket::Listener::bind(path)?;
    UnixListener::from_std(bound.into())
}

async fn accept(listener: &Listener, router: Router, shared: &Arc<Shared>) {
    let settings = &shared.settings;
    // Where every caller has to show a token, it does so in each request. Else the kernel has to
    // say who has connected.
    let (asks_kernel, peer_wait) = (matches!(settings.proof, Proof::Kernel), settings.peer_wait);
    let places = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let (router, shared) = (router.clone(), shared.clone());
        match listener {
            Listener::Tcp(listener) => match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    if asks_kernel && !is_ours(&stream) {
                        // Nothing is read from it, so that it costs nothing.
                        let _ = stream.try_write(NOT_OURS);
                        shared.counts.connection(Connection::AnotherUser);
                        continue;
                    }
                    let place = places.take().await;
                    tokio::spawn(async move {
                        shared
                            .counts
                            .connection(serve_connection(stream, router, place, peer_wait).await);
                    });
                }
                Err(error) => pause(&error).await,
            },
            Listener::Unix(listener, _) => match listener.accept().await {
                Ok((stream, _)) => {
                    let ours = nix::unistd::geteuid().as_raw();
                    if !stream.peer_cred().is_ok_and(|peer| peer.uid() == ours) {
                        shared.counts.connection(Connection::AnotherUser);
                        continue;
                    }
                    let place = places.take().await;
                    tokio::spawn(async move {
                        shared
                            .counts
                            .connection(serve_connection(stream, router, place, peer_wait).await);
                    });
                }
                Err(error) => pause(&error).await,
            },
        }
    }
}

/// Whether the kernel says that a process of our own user is at the other end.
fn is_ours(stream: &TcpStream) -> bool {
    let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else {
        return false;
    };
    peer.ip().to_canonical().is_loopback() && tcp::is_ours(peer, own).unwrap_or(false)
}

async fn pause(error: &io::Error) {
    // A client that has hung up already needs no connection.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        warn(format_args!("a connection was not accepted: {error}"));
        sleep(PAUSE).await;
    }
}

async fn serve_connection(
    stream: impl Socket,
    router: Router,
    place: ConnectionSlot,
    peer_wait: Duration,
) -> Connection {
    let inner = TowerToHyperService::new(router);
    let client = &place.client;
    let service = hyper::service::service_fn({
        let client = client.clone();
        move |mut request: Request<Incoming>| {
            let has_body = !request.body().is_end_stream();
            let under_way = client.begin(&request, has_body);
            request.extensions_mut().insert(client.clone());
            let called = inner.call(request.map(|body| RequestBody::new(body, &client)));
            async move {
                let response = called.await?;
                Ok::<_, std::convert::Infallible>(response.map(|body| ResponseBody {
                    body,
                    _under_way: under_way,
                }))
            }
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // `Client::over` knows how long the next head may take.
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(PING_WAIT)
        .keep_alive_timeout(PING_WAIT);
    let stream = TokioIo::new(HalfClose::new(stream, client.clone()));
    let mut connection = pin!(builder.serve_connection(stream, service));
    tokio::select! {
        biased;
        _ = &mut connection => {}
        () = client.over(peer_wait) => if client.is_http2() && client.has_asked() {
            connection.as_mut().graceful_shutdown();
            drop(timeout(GOODBYE, connection).await);
        },
    }
    match client.has_asked() {
        true => Connection::Accepted,
        false => Connection::NoRequest,
    }
}
