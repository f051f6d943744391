//! Standard input and output in a runtime. Others may have them, too, so that their flags are not
//! changed: whether they wait is said with each call. Where a descriptor can't be used so (a file, a
//! terminal, a pipe before Linux 6.4 and on macOS) a thread copies its bytes.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use bytes::BytesMut;
use mcp_sessiond_process::sys::{read_at_once, receive_at_once, when_readable, write_at_once};
use nix::errno::Errno;
use nix::poll::PollFlags;
use tokio::io::unix::AsyncFd;

use crate::lines::{CHUNK, is_transient, read_chunk};
use crate::socket::{self, send_at_once};

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

/// Our end of a pair of sockets. A thread copies between the other end and the descriptor: from it, if
/// it `reads`.
fn copied(file: &File, reads: bool) -> io::Result<(UnixStream, JoinHandle<()>)> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let mut file = file.try_clone()?;
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
    Ok((ours, thread))
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
pub(crate) struct Input {
    file: File,
    fd: AsyncFd<OwnedFd>,
    is_pipe: bool,
}

impl Input {
    /// To be called in a runtime.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let is_pipe = kind.is_fifo();
        let fd: OwnedFd = match is_pipe || kind.is_socket() {
            true => file.try_clone()?.into(),
            false => copied(&file, true)?.0.into(),
        };
        let fd = when_readable(fd)?;
        Ok(Self { file, fd, is_pipe })
    }

    /// Reads what there is into this room, or waits for it: how many bytes, 0 at the end.
    /// Cancel-safe.
    ///
    /// # Errors
    /// Those of the descriptor.
    pub(crate) async fn read(&mut self, room: &mut BytesMut) -> io::Result<usize> {
        if self.is_pipe {
            match socket::read(&self.fd, room, read_at_once).await {
                Err(error) if can_only_wait(&error) => {
                    self.fd = when_readable(copied(&self.file, true)?.0.into())?;
                    self.is_pipe = false;
                }
                done => return done,
            }
        }
        socket::read(&self.fd, room, receive_at_once).await
    }

    /// The descriptor.
    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    way: Way,
}

/// How standard output is written to.
#[derive(Debug)]
enum Way {
    Pipe,
    Socket,
    /// By our end of a pair of sockets, while a thread copies.
    Copied(UnixStream, Option<JoinHandle<()>>),
}

impl Output {
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let way = if kind.is_fifo() {
            Way::Pipe
        } else if kind.is_socket() {
            Way::Socket
        } else {
            Way::copied(&file)?
        };
        Ok(Self { file, way })
    }

    /// Writes as much as there is room for, or waits for room. Cancel-safe.
    ///
    /// # Errors
    /// Those of the descriptor: nobody reads it any more.
    pub(crate) async fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Way::Pipe = self.way {
            let to = self.file.as_fd();
            match socket::write(to, || write_at_once(to, pieces)).await {
                Err(error) if can_only_wait(&error) => self.way = Way::copied(&self.file)?,
                done => return done,
            }
        }
        let to = match &self.way {
            Way::Copied(ours, _) => ours.as_fd(),
            Way::Pipe | Way::Socket => self.file.as_fd(),
        };
        socket::write(to, || send_at_once(to, pieces)).await
    }

    /// Waits until a thread that copies has written all.
    pub(crate) async fn finish(&mut self) {
        if let Way::Copied(ours, copying) = &mut self.way
            && let Some(copying) = copying.take()
        {
            let _ = ours.shutdown(Shutdown::Write);
            let _ = tokio::task::spawn_blocking(move || copying.join()).await;
        }
    }
}

impl Way {
    fn copied(file: &File) -> io::Result<Self> {
        let (ours, thread) = copied(file, false)?;
        Ok(Self::Copied(ours, Some(thread)))
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
        let mut room = BytesMut::with_capacity(8);
        host.write_all(b"a").expect("a reader");
        assert_eq!(ours.read(&mut room).await.expect("readable"), 1);
        assert!(ours.is_pipe);
        host.write_all(b"b").expect("a reader");
        let spliced = io::copy(&mut input.take(1), &mut &output).expect("splice(2)");
        assert_eq!(spliced, 1);
        host.write_all(b"c").expect("a reader");
        assert_eq!(ours.read(&mut room).await.expect("readable"), 1);
        assert_eq!(&room[..], b"ac");
        assert!(!ours.is_pipe);
        let pieces = [IoSlice::new(b"d")];
        assert_eq!(out.write(&pieces).await.expect("writable"), 1);
        assert!(matches!(out.way, Way::Copied(..)));
        out.finish().await;
        drop((out, output));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "bd");
    }
}
