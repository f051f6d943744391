//! Standard input and output in a runtime. Others may have them, too, so that their flags are not
//! changed: whether they wait is said with each call. Where a descriptor can't be used so (a file, a
//! terminal, a pipe before Linux 6.4 and on macOS) a thread copies its bytes.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use mcp_sessiond_process::sys::{read_at_once, watched, write_at_once};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, recv, sendmsg, shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::lines::{CHUNK, is_transient, read_chunk};

/// A call of the system that does not wait.
const NO_WAIT: MsgFlags = MsgFlags::MSG_DONTWAIT;

/// A descriptor, and how it is used without waiting.
#[derive(Debug)]
struct Descriptor {
    file: File,
    interest: Interest,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// By a flag of recvmsg(2) and sendmsg(2).
    Socket(AsyncFd<OwnedFd>),
    /// By a flag of preadv2(2) and pwritev2(2).
    Pipe(AsyncFd<OwnedFd>),
    /// By our end of a pair of sockets. A thread copies between the other end and the descriptor.
    Copied(AsyncFd<OwnedFd>, Option<JoinHandle<()>>),
}

impl Descriptor {
    fn new(file: File, interest: Interest) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let own = || watched(file.try_clone()?.into(), interest);
        let way = if kind.is_socket() {
            Way::Socket(own()?)
        } else if kind.is_fifo() {
            Way::Pipe(own()?)
        } else {
            copied(&file, interest)?
        };
        Ok(Self {
            file,
            interest,
            way,
        })
    }

    /// Calls `at_once`, whose second argument says whether it is a pipe, until it has not to wait.
    /// Cancel-safe.
    async fn call(
        &mut self,
        mut at_once: impl FnMut(&OwnedFd, bool) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let (fd, is_pipe) = match &self.way {
                Way::Socket(fd) | Way::Copied(fd, _) => (fd, false),
                Way::Pipe(fd) => (fd, true),
            };
            let mut ready = fd.ready(self.interest).await?;
            match at_once(fd.get_ref(), is_pipe) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_pipe && can_only_wait(&error) => {
                    drop(ready);
                    self.way = copied(&self.file, self.interest)?;
                }
                done => return done,
            }
        }
    }
}

/// Whether the kernel can't use this descriptor without waiting, or a filter of a container does not
/// know the call.
fn can_only_wait(error: &io::Error) -> bool {
    let why = error.raw_os_error().map(Errno::from_raw);
    let no_call = [
        Errno::EOPNOTSUPP,
        Errno::ENOSYS,
        Errno::EPERM,
        Errno::EINVAL,
    ];
    why.is_some_and(|why| no_call.contains(&why))
}

fn copied(file: &File, interest: Interest) -> io::Result<Way> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let mut file = file.try_clone()?;
    let reads = interest.is_readable();
    let copying = move || {
        // What ends it is seen at our end.
        if reads {
            copy(&mut file, &mut theirs);
        } else {
            copy(&mut theirs, &mut file);
        }
        let _ = theirs.shutdown(Shutdown::Both);
    };
    let name = if reads { "input" } else { "output" };
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(copying)?;
    let ours = watched(ours.into(), interest)?;
    Ok(Way::Copied(ours, Some(thread)))
}

/// Until the end of either.
fn copy(from: &mut (impl io::Read + AsFd), to: &mut (impl io::Write + AsFd)) {
    let mut chunk = vec![0; CHUNK];
    while let Some(read) = read_chunk(from, &mut chunk) {
        let mut left = &chunk[..read];
        while !left.is_empty() {
            match to.write(left) {
                Ok(written @ 1..) => left = &left[written..],
                Err(error) if is_transient(&error, to, PollFlags::POLLOUT) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}

/// Standard input.
#[derive(Debug)]
pub(crate) struct Input(Descriptor);

impl Input {
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        Descriptor::new(file, Interest::READABLE).map(Self)
    }

    /// Reads what there is, or waits for it: how many bytes, 0 at the end. Cancel-safe.
    ///
    /// # Errors
    /// Those of the descriptor.
    pub(crate) async fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let read = |fd: &OwnedFd, is_pipe| match is_pipe {
            true => read_at_once(fd.as_fd(), chunk),
            false => Ok(recv(fd.as_raw_fd(), chunk, NO_WAIT)?),
        };
        self.0.call(read).await
    }

    /// The descriptor.
    pub(crate) fn into_file(self) -> File {
        self.0.file
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output(Descriptor);

impl Output {
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        Descriptor::new(file, Interest::WRITABLE).map(Self)
    }

    /// Writes as much as there is room for, or waits for room. Cancel-safe.
    ///
    /// # Errors
    /// Those of the descriptor: nobody reads it any more.
    pub(crate) async fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let write = |fd: &OwnedFd, is_pipe| match is_pipe {
            true => write_at_once(fd.as_fd(), pieces),
            false => Ok(sendmsg::<()>(fd.as_raw_fd(), pieces, &[], NO_WAIT, None)?),
        };
        self.0.call(write).await
    }

    /// Waits until a thread that copies has written all.
    pub(crate) async fn finish(&mut self) {
        if let Way::Copied(ours, copying) = &mut self.0.way
            && let Some(copying) = copying.take()
        {
            let _ = shutdown(ours.as_raw_fd(), nix::sys::socket::Shutdown::Write);
            let _ = tokio::task::spawn_blocking(move || copying.join()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Linux lets nobody use a pipe without waiting that was spliced (splice(2), `pipe_clear_nowait`),
    /// and says so at the next call only.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn pipes_that_were_spliced_are_copied_by_a_thread_from_then_on() {
        let (input, mut host) = io::pipe().expect("a pipe");
        let (mut reader, output) = io::pipe().expect("a pipe");
        let mut ours = Input::new(OwnedFd::from(input.try_clone().expect("a descriptor")).into())
            .expect("input");
        let mut out = Output::new(OwnedFd::from(output.try_clone().expect("a descriptor")).into())
            .expect("output");
        let mut chunk = [0; 8];
        host.write_all(b"a").expect("a reader");
        assert_eq!(ours.read(&mut chunk).await.expect("readable"), 1);
        assert!(matches!(ours.0.way, Way::Pipe(_)));
        host.write_all(b"b").expect("a reader");
        let spliced = io::copy(&mut input.take(1), &mut &output).expect("splice(2)");
        assert_eq!(spliced, 1);
        host.write_all(b"c").expect("a reader");
        assert_eq!(ours.read(&mut chunk).await.expect("readable"), 1);
        assert_eq!(chunk[0], b'c');
        assert!(matches!(ours.0.way, Way::Copied(..)));
        let pieces = [IoSlice::new(b"d")];
        assert_eq!(out.write(&pieces).await.expect("writable"), 1);
        assert!(matches!(out.0.way, Way::Copied(..)));
        out.finish().await;
        drop((out, output));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "bd");
    }
}
