//! Which user is at the other end of a TCP connection over loopback.
//!
//! This asks the kernel, by sock_diag(7), for both addresses and both ports: so the answer is about
//! this very connection, not a later one from the same port. Only a socket that has connected and
//! that a process holds counts, whose output may have ended: for a closed one the kernel names root
//! as the owner.

use std::io;
use std::net::SocketAddr;

use crate::descriptors;

/// Whether the process at the other end belongs to our own user, right now.
///
/// # Errors
/// Where the kernel does not tell: on macOS, and in a sandbox that forbids the question.
pub fn is_ours(peer: SocketAddr, own: SocketAddr) -> io::Result<bool> {
    let owner = owner(peer, own)?;
    Ok(owner == Some(nix::unistd::geteuid().as_raw()))
}

/// Whether a process holds the other end, right now, whoever's it is.
///
/// # Errors
/// As [`is_ours`].
pub fn is_held(peer: SocketAddr, own: SocketAddr) -> io::Result<bool> {
    Ok(owner(peer, own)?.is_some())
}

/// The pid of a process that listens on this port, if the kernel shows one to this user.
#[must_use]
pub fn listener_on(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let holds = |pid: &u32| {
        descriptors::names_in(*pid)
            .any(|name| inodes.iter().any(|inode| name.as_os_str() == &**inode))
    };
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    processes.filter_map(pid).find(holds)
}

/// What `/proc/PID/fd` calls the sockets of a table of `/proc/net` that listen on a port.
fn listening(table: &str, port: u16) -> Vec<String> {
    /// TCP_LISTEN of linux/tcp_states.h.
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let lines = table.lines().skip(1);
    lines
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (own, state) = (fields.nth(1)?, fields.nth(1)?);
            let inode = fields.nth(5)?;
            (own.ends_with(&port) && state == LISTEN).then(|| format!("socket:[{inode}]"))
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn owner(_: SocketAddr, _: SocketAddr) -> io::Result<Option<u32>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
use diag::owner;

#[cfg(target_os = "linux")]
mod diag {
    use std::io;
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
        socket,
    };

    /// SOCK_DIAG_BY_FAMILY of linux/sock_diag.h.
    const BY_FAMILY: u16 = 20;
    /// NLM_F_REQUEST of linux/netlink.h.
    const REQUEST: u16 = 1;
    /// NLMSG_ERROR of linux/netlink.h.
    const ERROR: u16 = 2;
    /// The states in which a socket has connected, of linux/tcp_states.h: TCP_ESTABLISHED,
    /// TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING. In the others it
    /// may be one that listens there, or that is about to connect from there.
    const CONNECTED: [u8; 6] = [1, 4, 5, 8, 9, 11];
    /// Bytes of nlmsghdr.
    const HEADER: usize = 16;
    /// Bytes of nlmsghdr and inet_diag_req_v2.
    const ASKED: usize = HEADER + 56;
    /// The offsets of the owner and the inode in nlmsghdr and inet_diag_msg: after four bytes,
    /// inet_diag_sockid and three numbers.
    const UID: usize = HEADER + 4 + 48 + 12;
    const INODE: usize = UID + 4;

    /// The user who owns the socket.
    pub(super) fn owner(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
        let kind = SockType::Datagram;
        let asker = socket(
            AddressFamily::Netlink,
            kind,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        let asked = asked(peer, own);
        sendto(
            asker.as_raw_fd(),
            &asked,
            &NetlinkAddr::new(0, 0),
            MsgFlags::empty(),
        )?;
        let mut said = [0; 512];
        let length = recv(asker.as_raw_fd(), &mut said, MsgFlags::empty())?;
        read(&said[..length])
    }

    fn asked(peer: SocketAddr, own: SocketAddr) -> [u8; ASKED] {
        // A dual-stack socket shows an IPv4 peer as an IPv6 address; the kernel has it as IPv4.
        let canonical =
            |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (peer, own) = (canonical(peer), canonical(own));
        let family = if peer.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let mut asked = [0; ASKED];
        let mut put = |at: usize, bytes: &[u8]| asked[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(ASKED as u32).to_ne_bytes());
        put(4, &BY_FAMILY.to_ne_bytes());
        put(6, &REQUEST.to_ne_bytes());
        put(HEADER, &[family as u8, 6]);
        // Ask for all states; `read` tells which one it is.
        put(HEADER + 4, &u32::MAX.to_ne_bytes());
        let id = HEADER + 8;
        put(id, &peer.port().to_be_bytes());
        put(id + 2, &own.port().to_be_bytes());
        for (at, address) in [(id + 4, peer.ip()), (id + 20, own.ip())] {
            match address {
                IpAddr::V4(address) => put(at, &address.octets()),
                IpAddr::V6(address) => put(at, &address.octets()),
            }
        }
        // No cookie: any socket with these addresses.
        put(id + 40, &[0xff; 8]);
        asked
    }

    fn read(said: &[u8]) -> io::Result<Option<u32>> {
        let number = |at: usize| {
            let bytes = said.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes
                .map(u32::from_ne_bytes)
                .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
        };
        let kind = said
            .get(4..6)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u16::from_ne_bytes);
        if kind == Some(ERROR) {
            let error = io::Error::from_raw_os_error(-number(HEADER)?.cast_signed());
            // There is no such socket (any more).
            return if error.kind() == io::ErrorKind::NotFound {
                Ok(None)
            } else {
                Err(error)
            };
        }
        if kind != Some(BY_FAMILY) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let has_connected = said
            .get(HEADER + 1)
            .is_some_and(|state| CONNECTED.contains(state));
        let is_held = has_connected && number(INODE)? != 0;
        Ok(if is_held { Some(number(UID)?) } else { None })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_open_connection_is_its_users_and_a_closed_one_is_nobodys() {
        crate::tests::alone(|| {
            for at in ["127.0.0.1:0", "[::1]:0"] {
                let listener = TcpListener::bind(at).expect("bound");
                let client = TcpStream::connect(listener.local_addr().expect("an address"))
                    .expect("connected");
                let (accepted, peer) = listener.accept().expect("accepted");
                let own = accepted.local_addr().expect("an address");
                assert!(is_ours(peer, own).expect("told"), "{at}");
                client
                    .shutdown(std::net::Shutdown::Write)
                    .expect("shut down");
                assert!(
                    is_ours(peer, own).expect("told") && is_held(peer, own).expect("told"),
                    "{at}: half closed"
                );
                drop(client);
                assert!(!is_held(peer, own).expect("told"));
                assert_eq!(
                    owner(peer, own).expect("told"),
                    None,
                    "hung up: not even root's"
                );
                // A socket listens at this address, but none has connected from it.
                drop(accepted);
                let listening = listener.local_addr().expect("an address");
                assert_eq!(owner(listening, peer).expect("told"), None);
            }
        });
    }

    #[test]
    fn the_process_that_listens_on_a_port_is_found() {
        crate::tests::alone(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            let port = listener.local_addr().expect("an address").port();
            // One that has connected from there does not count.
            let client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            assert_eq!(listener_on(port), Some(std::process::id()));
            let of_client = client.local_addr().expect("an address").port();
            assert_eq!(listener_on(of_client), None);
            drop((listener, client));
            assert_eq!(listener_on(port), None);
        });
    }

    #[test]
    fn an_ipv4_connection_to_a_dual_stack_socket_is_found() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return;
        };
        let port = listener.local_addr().expect("an address").port();
        let _client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let (accepted, peer) = listener.accept().expect("accepted");
        assert!(is_ours(peer, accepted.local_addr().expect("an address")).expect("told"));
    }
}
