//! A process of another user's: `stranger UID SOCKET` becomes that user, connects, says hello, and
//! tells how many bytes it was answered with.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use mcp_sessiond_proto::hello::{Codec, HELLO_LEN, Hello};
use nix::unistd::{Gid, Uid, setgid, setuid};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(uid), Some(socket)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: stranger UID SOCKET"));
    };
    let uid: u32 = uid.parse().map_err(io::Error::other)?;
    // nix has no such call on macOS, where a group more changes nothing in this test.
    #[cfg(target_os = "linux")]
    nix::unistd::setgroups(&[])?;
    setgid(Gid::from_raw(uid))?;
    setuid(Uid::from_raw(uid))?;
    let mut stream = UnixStream::connect(socket)?;
    // The daemon may have hung up already.
    let _ = stream.write_all(&Hello::client(Codec::MessagePack).encode());
    let mut answer = Vec::new();
    let _ = stream.take(HELLO_LEN as u64).read_to_end(&mut answer);
    writeln!(io::stdout(), "{} bytes", answer.len())
}
