//! What can be shown on Linux alone: pids chosen, users and namespaces, command lines overwritten.

use std::os::unix::process::CommandExt;

use nix::sys::signal::Signal;

use super::*;

/// An upgrade replaces the executable of a running server; the next one has the same path.
#[test]
fn a_replaced_executable_is_the_same_program() {
    alone(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("server");
        let start = || {
            std::fs::copy("/bin/sh", &program).expect("copied");
            Tree::spawn(Command::new(&program).args(["-c", STAY]))
        };
        let mut tree = start();
        let process = tree.pinned();
        let before = traits_of(&process, &Table::default(), None).expect("read");
        std::fs::remove_file(&program).expect("removed");
        assert_eq!(
            traits_of(&process, &Table::default(), None).expect("read"),
            before
        );
        assert_eq!(before.program, "server");
        let mut upgraded = start();
        assert_eq!(
            traits_of(&upgraded.pinned(), &Table::default(), None).expect("read"),
            before
        );
    });
}

/// perl overwrites its command line in place when `$0` is set.
#[test]
#[ignore = "needs perl"]
fn a_title_makes_the_key_doubtful() {
    let stay = r#"$0 = shift; $| = 1; print "$$\n"; <STDIN>"#;
    let mut tree =
        Tree::spawn(Command::new("perl").args(["-e", stay, "my server", "--db", "prod"]));
    let traits = traits_of(&tree.pinned(), &Table::default(), None).expect("read");
    assert_eq!(
        (traits.core, traits.doubt),
        (None, Some(KeyDoubt::Rewritten))
    );
    assert!(traits.place.is_some());

    let long = "x".repeat(300);
    let mut tree = Tree::spawn(Command::new("perl").args(["-e", stay, &long]));
    let doubt = traits_of(&tree.pinned(), &Table::default(), None)
        .expect("read")
        .doubt;
    assert_eq!(
        doubt,
        Some(KeyDoubt::Rewritten),
        "it has written past the end of its arguments"
    );
}

#[test]
#[ignore = "needs root"]
fn who_has_a_pid_later_is_another_process() {
    needs_root("choosing the next pid (CAP_CHECKPOINT_RESTORE)");
    let directory = tempfile::tempdir().expect("a directory");
    let (mut first, socket) = caller(directory.path());
    let before = first.pinned();
    first.end();
    let pid = before.id().pid;
    let mut second = start_with_pid(pid);
    let after = second.pinned();
    assert_eq!(after.id().pid, pid);
    assert_ne!(after.id(), before.id());
    assert!(
        PinnedProcess::reopen(&before.id())
            .expect("readable")
            .is_none()
    );
    assert!(!before.is_alive());
    assert!(after.is_alive());
    // Where the kernel knows only the pid, the later one is asked, and can't answer: it does not
    // have the connection.
    match peer(&socket) {
        Err(PeerError::Gone) => {}
        Ok(Peer::Claimed(challenge)) => {
            assert_eq!(challenge.process().id(), after.id());
            assert!(matches!(answered(challenge, &socket), Err(PeerError::Gone)));
        }
        found => panic!("{found:?}"),
    }
    if let Some(inode) = after.id().inode {
        assert_ne!(
            Some(inode),
            before.id().inode,
            "it differs even where the start time does not"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn another_user_is_no_host() {
    needs_root("starting processes of another user");
    let mut command = Command::new("sh");
    let mut tree = Tree::spawn(
        command
            .args(["-c", &format!("sh -c '{STAY}'; :")])
            .uid(65_534),
    );
    let instance = tree.pinned();
    assert_eq!(
        find_host(&instance, &Table::default()).host.err(),
        Some(HostDoubt::OtherUser)
    );
    assert!(
        ancestor(&instance, tree.child.id())
            .expect("read")
            .is_none()
    );
}

#[test]
#[ignore = "needs root"]
fn what_is_in_another_pid_namespace_has_no_host_and_is_no_peer() {
    needs_root("making a pid namespace");
    let mut tree = Tree::spawn(Command::new("unshare").args(["--pid", "--fork", "sh", "-c", STAY]));
    assert_eq!(tree.said(), 1, "that is what it is called in there");
    let unshare = tree.child.id();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
    let pid = children
        .expect("readable")
        .trim()
        .parse()
        .expect("one child");
    let instance = PinnedProcess::open(pid).expect("it waits for us");
    assert_eq!(
        find_host(&instance, &Table::default()).host.err(),
        Some(HostDoubt::OtherNamespace)
    );

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("bound");
    let mut command = Command::new("unshare");
    let mut tree = Tree::spawn(
        command
            .args(["--pid", "--fork", "perl", "-e", CALL])
            .arg(&path),
    );
    let (socket, _) = listener.accept().expect("it calls");
    assert_eq!(tree.said(), 1);
    assert!(matches!(peer(&socket), Err(PeerError::OtherNamespace)));
}

/// What connects, says its pid, and writes back what it is sent, `part` bytes at a time: itself
/// (`self`), by a child that has inherited the connection (`child`), or the first half itself and
/// the other half by a child (`both`).
const ANSWER: &str = r#"
    use IO::Socket::UNIX; $| = 1;
    my ($path, $who, $part) = @ARGV;
    my $s = IO::Socket::UNIX->new(Peer => $path);
    print "$$\n";
    $s->recv(my $asked, 16, MSG_WAITALL) // die;
    my $write = sub { while (length(my $bytes = substr($_[0], 0, $part, ""))) { syswrite $s, $bytes } };
    my $own = $who eq "self" ? $asked : $who eq "both" ? substr($asked, 0, 8, "") : "";
    $write->($own);
    if ($who ne "self") { my $child = fork // die; if (!$child) { $write->($asked); exit 0 } waitpid $child, 0 }
    <STDIN>"#;

/// A process that answers so, our end of its connection, and the challenge.
fn asked(directory: &Path, who: &str, part: usize) -> (Tree, UnixStream, Challenge) {
    let path = directory.join("socket");
    let listener = UnixListener::bind(&path).expect("bound");
    let mut command = Command::new("perl");
    command.args(["-MSocket", "-e", ANSWER]).arg(&path);
    let mut tree = Tree::spawn(command.args([who, &part.to_string()]));
    let (mut socket, _) = listener.accept().expect("it calls");
    std::fs::remove_file(&path).expect("removed");
    let challenge = Challenge::new(socket.as_fd(), tree.pinned()).expect("asked");
    socket.write_all(challenge.bytes()).expect("sent");
    (tree, socket, challenge)
}

/// What comes of a challenge.
fn answered(challenge: Challenge, stream: &UnixStream) -> Result<PinnedProcess, PeerError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().build().expect("a runtime");
    runtime.block_on(async {
        let stream = stream.try_clone().expect("a descriptor");
        stream.set_nonblocking(true).expect("set");
        let stream = tokio::net::UnixStream::from_std(stream).expect("registered");
        challenge.answered(&stream).await
    })
}

#[test]
#[ignore = "needs perl"]
fn who_writes_a_challenge_back_is_believed() {
    let directory = tempfile::tempdir().expect("a directory");
    for part in [1, 7, 16] {
        let (tree, socket, challenge) = asked(directory.path(), "self", part);
        let process = challenge.process().id();
        let found = answered(challenge, &socket).expect("it is the one");
        assert_eq!(found.id(), process);
        tree.end();
    }
}

#[test]
#[ignore = "needs perl"]
fn who_writes_for_another_process_is_not_believed() {
    let directory = tempfile::tempdir().expect("a directory");
    for who in ["child", "both"] {
        let (tree, socket, challenge) = asked(directory.path(), who, 5);
        let asked = challenge.process().id().pid;
        match answered(challenge, &socket) {
            Err(PeerError::AnotherWriter { connected, writer }) => {
                assert_eq!(connected, asked);
                assert_ne!(writer, asked, "{who}");
            }
            found => panic!("{who}: {found:?}"),
        }
        tree.end();
    }
}

#[test]
fn a_challenge_takes_no_other_answer() {
    let me = || PinnedProcess::myself().expect("alive");
    let asked = |answer: &dyn Fn(&[u8; 16]) -> Vec<u8>| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let challenge = Challenge::new(ours.as_fd(), me()).expect("asked");
        theirs
            .write_all(&answer(challenge.bytes()))
            .expect("written");
        drop(theirs);
        answered(challenge, &ours)
    };
    assert!(asked(&|bytes| bytes.to_vec()).is_ok());
    let found = asked(&|_| vec![0; 16]);
    assert!(matches!(found, Err(PeerError::WrongAnswer)), "{found:?}");
    let found = asked(&|bytes| bytes[..15].to_vec());
    assert!(
        matches!(found, Err(PeerError::Gone)),
        "it hung up: {found:?}"
    );
}

/// What is sent before the question is not the answer, and neither is what follows it.
#[test]
fn a_challenge_reads_its_answer_and_no_more() {
    let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
    let me = PinnedProcess::myself().expect("alive");
    let challenge = Challenge::new(ours.as_fd(), me.clone()).expect("asked");
    let answer = [challenge.bytes().as_slice(), b"hello"].concat();
    theirs.write_all(&answer).expect("written");
    answered(challenge, &ours).expect("it is us");
    ours.set_nonblocking(false).expect("set");
    let mut rest = [0; 5];
    ours.read_exact(&mut rest).expect("the rest");
    assert_eq!(&rest, b"hello");

    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    theirs.write_all(b"sent ahead").expect("written");
    let challenge = Challenge::new(ours.as_fd(), me).expect("asked");
    theirs.write_all(challenge.bytes()).expect("written");
    let found = answered(challenge, &ours);
    assert!(found.is_err(), "{found:?}");
}

/// A process that exits after its answer may have lent its pid to nobody yet; but it is gone.
#[test]
#[ignore = "needs perl"]
fn who_has_answered_and_exited_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tree, socket, challenge) = asked(directory.path(), "self", 16);
    let mut readable = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut readable, PollTimeout::NONE).expect("its answer");
    tree.end();
    let found = answered(challenge, &socket);
    assert!(matches!(found, Err(PeerError::Gone)), "{found:?}");
}

/// What listens, locks a byte of a file, says its pid, and gives the lock up at the next line.
const LISTEN: &str = r#"
    use IO::Socket::UNIX; use Fcntl qw(:DEFAULT :flock :seek); $| = 1;
    my ($path, $locks, $byte) = @ARGV;
    my $listener = IO::Socket::UNIX->new(Local => $path, Listen => 5) or die;
    sysopen my $file, $locks, O_RDWR | O_CREAT or die;
    fcntl($file, F_SETLK, pack("s s x4 q q i x4", F_WRLCK, SEEK_SET, $byte, 1, 0)) or die;
    print "$$\n"; <STDIN>; close $file; print "$$\n"; <STDIN>"#;

#[test]
#[ignore = "needs perl"]
fn who_listens_is_known_by_its_lock_also_while_it_is_stopped() {
    const BYTE: u32 = 0xfedc_ba98;
    let directory = tempfile::tempdir().expect("a directory");
    let [path, locks] = ["socket", "locks"].map(|name| directory.path().join(name));
    let mut command = Command::new("perl");
    let command = command.args(["-e", LISTEN]).args([&path, &locks]);
    let mut tree = Tree::spawn(command.arg(BYTE.to_string()));
    let process = tree.pinned();
    let socket = UnixStream::connect(&path).expect("it listens");
    process.signal(Signal::SIGSTOP).expect("ours");
    let holds = |byte| listening::holder(&locks, byte).expect("readable");
    assert_eq!(holds(BYTE), Some(process.id().pid));
    assert_eq!(holds(BYTE - 1), None);
    let below = ListenerLock::take(&locks, BYTE - 1).expect("nobody else has it");
    assert_eq!(below.others().expect("known"), [process.id().pid].into());
    drop(below);
    let found = listener(&socket, &locks, BYTE).expect("it is known");
    assert_eq!(found.id(), process.id());
    process.signal(Signal::SIGCONT).expect("ours");
    tree.go_on();
    assert_eq!(tree.said(), process.id().pid);
    assert_eq!(holds(BYTE), None);
    // Where the socket is not enough, that is the end of it.
    match listener(&socket, &locks, BYTE) {
        Ok(found) => assert!(peers_are_known().expect("a pair") && found.id() == process.id()),
        Err(PeerError::NoLock(pid)) => assert_eq!(pid, process.id().pid),
        Err(error) => panic!("{error}"),
    }
    let own = ListenerLock::take(&locks, BYTE).expect("nobody else has it");
    assert!(ListenerLock::take(&locks, BYTE - 1).is_ok());
    drop(own);
}

/// Starts a shell that has this free pid, by saying which pid comes next until nobody else comes
/// first.
fn start_with_pid(pid: u32) -> Tree {
    const ATTEMPTS: usize = 1_000;
    for _ in 0..ATTEMPTS {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("root may");
        let tree = Tree::shell(STAY);
        if tree.child.id() == pid {
            return tree;
        }
    }
    panic!("pid {pid} was not given again in {ATTEMPTS} attempts");
}
