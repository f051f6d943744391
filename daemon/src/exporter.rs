//! `metrics.address`: the metrics over plain HTTP, for a scraper. It reads one request a
//! connection, and answers it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::rpc::Daemon;

/// Connections at once. Whoever comes beyond that is hung up on.
const CONNECTIONS_MAX: usize = 16;

/// How long one connection may take, from its first byte to the last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that a request's head may have.
const HEAD_MAX: usize = 8 * 1024;

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long it is until an address is tried again that somebody else has.
const RETRY: Duration = Duration::from_secs(5);

/// Serves the metrics at this address, until it is dropped. Sessions don't depend on it: what can't
/// be had is told and tried again.
pub async fn serve(address: SocketAddr, daemon: Arc<Daemon>) {
    let mut is_told = false;
    loop {
        let served = match TcpListener::bind(address).await {
            Ok(listener) => {
                is_told = false;
                let at = listener.local_addr().unwrap_or(address);
                tracing::info!(address = %at, "metrics are served");
                accept(&listener, &daemon).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served
            && !std::mem::replace(&mut is_told, true)
        {
            tracing::error!(%address, %error, "the metrics can't be served; trying again");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn accept(listener: &TcpListener, daemon: &Arc<Daemon>) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let is_loopback = listener.local_addr()?.ip().is_loopback();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free, or the client has gone again.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let daemon = daemon.clone();
        tokio::spawn(async move {
            // Whoever hangs up, or is slow, has itself to blame.
            let _ =
                tokio::time::timeout(CONNECTION_TIMEOUT, converse(stream, &daemon, is_loopback))
                    .await;
            drop(place);
        });
    }
}

async fn converse(mut stream: TcpStream, daemon: &Daemon, is_loopback: bool) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let request = match &head {
        Some(head) => Request::of(head, is_loopback),
        None => Request::Refused("431 Request Header Fields Too Large"),
    };
    let (status, body) = match request {
        Request::Metrics { .. } => ("200 OK", daemon.metrics().await),
        Request::Refused(status) => (status, format!("{status}\n")),
    };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if request != (Request::Metrics { head_only: true }) {
        answer.push_str(&body);
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Bytes that nobody has read would reset the connection, and with it the answer.
    let mut rest = [0; 512];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// The head of a request. None: it is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= HEAD_MAX {
            return Ok(None);
        }
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&chunk[..read]),
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Metrics { head_only: bool },
    Refused(&'static str),
}

impl Request {
    fn of(head: &str, is_loopback: bool) -> Self {
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || words.next().is_some()
        {
            return Self::Refused("400 Bad Request");
        }
        let headers = lines.filter_map(|line| line.split_once(':'));
        let mut hosts = headers.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
        // A page in a browser may have its own name lead to us, and may not read what it gets.
        if is_loopback && !hosts.all(|(_, host)| is_local(host.trim())) {
            return Self::Refused("403 Forbidden");
        }
        let path = target.unwrap_or_default().split('?').next();
        match method {
            _ if path != Some("/metrics") => Self::Refused("404 Not Found"),
            Some("GET") => Self::Metrics { head_only: false },
            Some("HEAD") => Self::Metrics { head_only: true },
            _ => Self::Refused("405 Method Not Allowed"),
        }
    }
}

/// Whether a host is an address of this machine alone, or `localhost`.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    address.map_or_else(
        |_| name.eq_ignore_ascii_case("localhost"),
        |address| address.is_loopback(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let metrics = Request::Metrics { head_only: false };
        for (head, asked) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n\r\n",
                metrics,
            ),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", metrics),
            (
                "HEAD /metrics HTTP/1.1\r\nhost: [::1]:9464\r\n\r\n",
                Request::Metrics { head_only: true },
            ),
            ("GET /metrics HTTP/1.1\r\nHost: LocalHost\r\n\r\n", metrics),
            (
                "GET /metrics HTTP/1.1\r\nHost: evil.example:9464\r\n\r\n",
                Request::Refused("403 Forbidden"),
            ),
            (
                "GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n",
                Request::Refused("403 Forbidden"),
            ),
            ("GET / HTTP/1.1\r\n\r\n", Request::Refused("404 Not Found")),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                Request::Refused("405 Method Not Allowed"),
            ),
            ("GET /metrics\r\n\r\n", Request::Refused("400 Bad Request")),
            ("\r\n\r\n", Request::Refused("400 Bad Request")),
        ] {
            assert_eq!(Request::of(head, true), asked, "{head}");
        }
        let elsewhere = "GET /metrics HTTP/1.1\r\nHost: db.example\r\n\r\n";
        assert_eq!(Request::of(elsewhere, false), metrics);
    }
}
