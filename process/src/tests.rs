//! Real processes: shells that say their pid, wait for a line, and end. Nothing here sleeps.

mod exits;
#[cfg(target_os = "linux")]
mod health;
#[cfg(target_os = "linux")]
mod linux;
mod session;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::walk::name_of;
use super::*;

/// What the innermost process of a tree runs: it says its pid, and stays until its standard input
/// has a line or ends.
const STAY: &str = "echo $$; read line";

/// The same in perl, which connects to the socket that it is given before.
const CALL: &str = r#"use IO::Socket::UNIX; $| = 1; my $s = IO::Socket::UNIX->new(Peer => shift); print "$$\n"; <STDIN>"#;

/// Runs what a test does, a closure, in a process of its own. Beside others, each process that they
/// start has this one's descriptors until it has become another program, and memory is everybody's.
pub(crate) fn alone<Test: FnOnce()>(test: Test) {
    const ALONE: &str = "MCP_SESSIOND_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let of_test = std::any::type_name::<Test>()
        .strip_suffix("::{{closure}}")
        .and_then(|path| Some(path.split_once("::")?.1))
        .expect("a closure of a test of this crate");
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", of_test])
        .env(ALONE, "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{of_test}, alone: {said}");
}

/// A tree of processes, of which the innermost says its pid.
struct Tree {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Tree {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            stdin: child.stdin.take(),
            stdout,
            child,
        }
    }

    fn shell(script: &str) -> Self {
        Self::spawn(Command::new("sh").args(["-c", script]))
    }

    /// The pid that a process says next.
    fn said(&mut self) -> u32 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{line:?} is no pid"))
    }

    /// The next process that says its pid.
    fn pinned(&mut self) -> PinnedProcess {
        PinnedProcess::open(self.said()).expect("it waits for us")
    }

    /// Has the innermost process go on to what it does next.
    #[cfg(target_os = "linux")]
    fn go_on(&mut self) {
        let stdin = self.stdin.as_mut().expect("piped");
        stdin.write_all(b"\n").expect("it reads");
    }

    /// Ends the tree, and waits until its root is reaped.
    fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until a watch has something to report.
fn until_readable(watch: &ExitWatch) {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::NONE).expect("poll"), 1);
}

/// Kills a child without reaping it, and waits until it is a zombie.
fn make_zombie(child: &mut Child) {
    let mut watch = ExitWatch::new().expect("a watch");
    watch
        .add(PinnedProcess::open(child.id()).expect("alive"))
        .expect("watched");
    child.kill().expect("ours to kill");
    until_readable(&watch);
}

#[test]
fn this_process_knows_itself() {
    let me = PinnedProcess::myself().expect("alive");
    assert_eq!(me.id().pid, std::process::id());
    assert!(me.is_alive());
    assert_eq!(
        PinnedProcess::open(std::process::id()).expect("alive").id(),
        me.id()
    );
    assert_eq!(
        PinnedProcess::reopen(&me.id())
            .expect("readable")
            .expect("alive")
            .id(),
        me.id()
    );
    assert_eq!(PinnedProcess::open(0).err(), Some(Gone));
    assert_eq!(PinnedProcess::open(u32::MAX).err(), Some(Gone));
}

#[test]
fn another_identity_is_another_process() {
    let me = PinnedProcess::myself().expect("alive").id();
    let others = [
        ProcessId {
            start: StartTime(me.start.0 + 1),
            ..me
        },
        ProcessId {
            inode: Some(me.inode.unwrap_or(0) + 1),
            ..me
        },
    ];
    for other in others {
        assert!(PinnedProcess::reopen(&other).expect("readable").is_none());
    }
}

#[test]
fn a_peer_is_known_by_its_socket() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let me = PinnedProcess::myself().expect("alive").id();
    for socket in [&ours, &theirs] {
        assert_eq!(peer(socket).expect("it is us").process().id(), me);
        assert!(is_ours(socket));
    }
}

#[test]
#[ignore = "needs perl"]
fn a_peer_that_has_exited_is_nobody() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut tree, socket) = caller(directory.path());
    let pid = tree.said();
    assert_eq!(peer(&socket).expect("alive").process().id().pid, pid);
    tree.end();
    assert!(matches!(peer(&socket), Err(PeerError::Gone)));
}

/// A process that has connected to us, says its pid and stays, and our end of the connection.
fn caller(directory: &Path) -> (Tree, UnixStream) {
    let path = directory.join("socket");
    let listener = UnixListener::bind(&path).expect("bound");
    let tree = Tree::spawn(Command::new("perl").args(["-e", CALL]).arg(&path));
    (tree, listener.accept().expect("it calls").0)
}

/// The tree is this test, `sh -c` (which has something left to do, so it can't replace itself), and
/// the instance.
#[test]
fn the_walk_goes_past_a_shell_with_a_command() {
    let mut tree = Tree::shell(&format!("sh -c '{STAY}'; :"));
    let instance = tree.pinned();
    let walk = find_host(&instance, &Table::default());
    assert_eq!(walk.host.expect("verified").id().pid, std::process::id());
    let roles: Vec<(u32, Role)> = walk
        .steps
        .iter()
        .map(|step| (step.pid, step.role))
        .collect();
    let expected = [
        (instance.id().pid, Role::Instance),
        (tree.child.id(), Role::Launcher),
        (std::process::id(), Role::Host),
    ];
    assert_eq!(roles, expected);
    assert_eq!(walk.steps[2].name, name_of(std::process::id()));
}

#[test]
fn the_walk_goes_past_a_script_but_not_past_a_shell_that_reads_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("run.sh");
    std::fs::write(&script, format!("sh -c '{STAY}'\n:\n")).expect("written");
    let mut tree = Tree::spawn(Command::new("bash").arg(&script));
    let walk = find_host(&tree.pinned(), &Table::default());
    assert_eq!(walk.host.expect("verified").id().pid, std::process::id());

    let mut tree = Tree::spawn(&mut Command::new("bash"));
    let shell = tree.child.id();
    let commands = format!("sh -c '{STAY}'\n");
    tree.stdin
        .as_mut()
        .expect("piped")
        .write_all(commands.as_bytes())
        .expect("read");
    let walk = find_host(&tree.pinned(), &Table::default());
    assert_eq!(
        walk.host.expect("verified").id().pid,
        shell,
        "{:?}",
        walk.steps
    );
}

#[test]
fn the_walk_has_an_end() {
    let mut script = STAY.to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    for depth in 0..20 {
        let path = directory.path().join(depth.to_string());
        std::fs::write(&path, format!("{script}\n:\n")).expect("written");
        script = format!("sh {}", path.display());
    }
    let mut tree = Tree::shell(&format!("{script}\n:\n"));
    let instance = tree.pinned();
    let walk = find_host(&instance, &Table::default());
    assert_eq!(walk.host.err(), Some(HostDoubt::TooManyLaunchers));
    assert_eq!(
        ancestor(&instance, std::process::id())
            .expect("read")
            .map(|found| found.pid()),
        Some(std::process::id())
    );
}

#[test]
fn an_orphan_has_no_host() {
    let mut tree = Tree::shell(&format!("exec 3<&0; sh -c '{STAY}' <&3 &"));
    // Its children have another parent before it can be waited for.
    let _ = tree.child.wait();
    let orphan = tree.pinned();
    let walk = find_host(&orphan, &Table::default());
    let doubt = walk.host.expect_err("an orphan");
    assert!(
        matches!(doubt, HostDoubt::PidOne | HostDoubt::Adopter(_)),
        "{doubt}: {:?}",
        walk.steps
    );
    assert_eq!(walk.steps.last().map(|step| step.role), Some(Role::Ended));
    if doubt == HostDoubt::PidOne {
        // In a container it may be the host after all, if it is ours.
        let table = Table {
            pid1_is_host: true,
            ..Table::default()
        };
        match find_host(&orphan, &table).host {
            Ok(host) => assert_eq!(host.id().pid, 1),
            Err(doubt) => assert_eq!(doubt, HostDoubt::OtherUser),
        }
    }
}

#[test]
fn only_the_peer_and_its_ancestors_can_be_named() {
    let mut tree = Tree::shell(&format!("sh -c '{STAY}'; :"));
    let mut other = Tree::shell(STAY);
    let (process, stranger) = (tree.pinned(), other.pinned());
    let pid_of = |named| instance(&process, named, &Table::default()).map(|found| found.id().pid);
    let (own, test) = (process.id().pid, std::process::id());
    assert_eq!(pid_of(None), Ok(own));
    assert_eq!(pid_of(Some(own)), Ok(own));
    assert_eq!(pid_of(Some(tree.child.id())), Ok(tree.child.id()));
    assert_eq!(
        pid_of(Some(test)),
        Err(NotAnInstance::Host(test)),
        "the test is the host"
    );
    let above = find_host(
        &PinnedProcess::open(test).expect("this very process"),
        &Table::default(),
    )
    .host;
    if let Ok(above) = above {
        assert_eq!(
            pid_of(Some(above.pid())),
            Err(NotAnInstance::Host(above.pid()))
        );
    }
    for pid in [0, 1, stranger.id().pid, u32::MAX] {
        assert_eq!(pid_of(Some(pid)), Err(NotAnInstance::Stranger(pid)));
    }
    assert_eq!(
        ancestor(&process, test)
            .expect("read")
            .map(|found| found.pid()),
        Some(test)
    );
    assert!(
        ancestor(&process, own).expect("read").is_none()
            && ancestor(&process, stranger.pid()).expect("read").is_none()
    );
    tree.end();
    assert!(
        instance(&process, Some(test), &Table::default()).is_err(),
        "the dead speak for nobody"
    );
}

#[test]
fn the_traits_of_a_process_are_those_it_was_started_with() {
    let directory = tempfile::tempdir().expect("a directory");
    let read = |change: &dyn Fn(&mut Command) -> &mut Command| {
        let mut command = Command::new("sh");
        command
            .args(["-c", STAY, "server", "--db", "prod"])
            .env_clear()
            .env("A", "1")
            .env("B", "2");
        command.current_dir("/");
        change(&mut command);
        let mut tree = Tree::spawn(&mut command);
        let process = tree.pinned();
        traits_of(&process, &Table::default(), None).expect("read")
    };
    let usual = read(&|command| command);
    assert_eq!(usual.doubt, None);
    assert_eq!(
        usual,
        read(&|command| command),
        "a second start is the same server"
    );
    assert_eq!(usual, read(&|command| command.env("INVOCATION_ID", "7")));
    assert_eq!(
        usual,
        read(&|command| command.env_remove("A").env("A", "1"))
    );
    assert_ne!(usual.core, read(&|command| command.arg("-x")).core);
    assert_ne!(usual.place, read(&|command| command.env("B", "3")).place);
    assert_ne!(
        usual.place,
        read(&|command| command.current_dir(directory.path())).place
    );
    let conversation = read(&|command| command.env("CLAUDE_CODE_SESSION_ID", "7"));
    assert_ne!(usual.conversation, conversation.conversation);
}

#[test]
fn nothing_is_read_from_a_zombie() {
    let mut tree = Tree::shell(STAY);
    let process = tree.pinned();
    make_zombie(&mut tree.child);
    let traits = traits_of(&process, &Table::default(), None).expect("read");
    assert_eq!((traits.core, traits.doubt), (None, Some(KeyDoubt::Gone)));
    assert_eq!(
        find_host(&process, &Table::default()).host.err(),
        Some(HostDoubt::Changed)
    );
}

#[test]
fn the_boot_id_is_one_id() {
    let id = boot_id().expect("boot id");
    assert_eq!(id.len(), 36, "{id}");
    assert_eq!(boot_id().expect("boot id"), id);
}

/// What was not tried must not look as if it had gone well.
pub(crate) fn needs_root(what: &str) {
    assert!(
        nix::unistd::geteuid().is_root(),
        "{what} needs root: run the tests as root"
    );
}

#[test]
fn a_variable_is_set_by_a_host_that_was_not_started_with_the_same() {
    let mut child = Command::new("cat")
        .env("MCP_SESSIOND_CHAT", "one")
        .env("MCP_SESSIOND_NO_CHAT", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat");
    // Its environment can be read a moment after spawn(2) has returned.
    let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take());
    input.write_all(b"x").expect("written");
    let echoed = output.as_mut().expect("a pipe").read_exact(&mut [0]);
    echoed.expect("it runs");
    let child_process = PinnedProcess::open(child.id()).expect("it lives");
    let own = PinnedProcess::own().expect("this one");
    let is_set = |name| is_set_by(&own, &child_process, name).expect("it can be read");
    assert!(is_set("MCP_SESSIOND_CHAT"));
    // What it was started with itself, nothing, and what is not there.
    for name in ["PATH", "MCP_SESSIOND_NO_CHAT", "MCP_SESSIOND_CHATS"] {
        assert!(!is_set(name), "{name}");
    }
    drop(input);
    child.wait().expect("it ends");
}
