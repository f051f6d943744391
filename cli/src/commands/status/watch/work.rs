//! What takes its time, each on a thread of its own: looking, reading keys and logs, and what the
//! user orders.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::event::{Event, read};
use mcp_sessiond_proto::KeeperName;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::model::{Action, Row, Snapshot};
use crate::commands::{logs, restart, stop};
use crate::hosts::names::EntryNames;
use crate::inventory::listing::{COLUMNS, Listing};
use crate::inventory::{Inventory, Server};
use crate::runtime::block_on;

/// How long after a look the next one begins.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the reader of a log may take to end.
const END_WAIT: Duration = Duration::from_millis(200);

/// What an action has come to, in a sentence.
pub(super) type Outcome = Result<String, String>;

/// The looks, one after the other.
pub(super) struct Poller {
    seen: UnboundedReceiver<Snapshot>,
    hurry: Sender<()>,
}

impl Poller {
    pub(super) fn start() -> Self {
        let (show, seen) = unbounded_channel();
        let (hurry, hurried) = channel();
        std::thread::spawn(move || look(&show, &hurried));
        Self { seen, hurry }
    }

    /// What the next one has seen. None: there will be none.
    pub(super) async fn next(&mut self) -> Option<Snapshot> {
        self.seen.recv().await
    }

    /// Has it looked again at once.
    pub(super) fn hurry(&self) {
        let _ = self.hurry.send(());
    }
}

fn look(show: &UnboundedSender<Snapshot>, hurried: &Receiver<()>) {
    let mut names = EntryNames::default();
    loop {
        let seen = match block_on(Listing::read_with(&mut names)) {
            Ok(Ok(listing)) => seen(&listing),
            Ok(Err(failure)) => Snapshot {
                trouble: Some(failure.to_string()),
                ..Snapshot::default()
            },
            Err(error) => Snapshot {
                trouble: Some(error.to_string()),
                ..Snapshot::default()
            },
        };
        if show.send(seen).is_err() {
            return;
        }
        match hurried.recv_timeout(PAUSE) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn seen(listing: &Listing) -> Snapshot {
    let mut servers = listing.inventory.servers.iter();
    let row = |cells| {
        let server = servers.next();
        Row {
            keeper: server.map(|server| server.keeper),
            called: server.map(Server::display_name),
            cells,
        }
    };
    Snapshot {
        rows: listing.rows(Some(COLUMNS)).into_iter().map(row).collect(),
        notes: listing.notes(),
        trouble: listing.daemon_fault(),
        has_daemon: listing.inventory.connection.is_some(),
    }
}

/// The keys that are pressed, and changes of the terminal's size.
pub(super) fn keys() -> UnboundedReceiver<Event> {
    let (pressed, keys) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = read() {
            if pressed.send(event).is_err() {
                break;
            }
        }
    });
    keys
}

/// Does what was ordered, to this server and no other.
pub(super) fn start_action(action: Action, keeper: KeeperName, say: UnboundedSender<Outcome>) {
    std::thread::spawn(move || {
        let outcome = block_on(on_server(keeper, async |inventory, server| match action {
            Action::Restart => restart::one(inventory, server).await,
            Action::Stop => stop::one(inventory, server).await,
        }));
        let _ = say.send(outcome.unwrap_or_else(|error| Err(error.to_string())));
    });
}

/// The lines of a server's log: first the last ones, and then those that come.
pub(super) struct Log {
    lines: UnboundedReceiver<Vec<String>>,
    reader: JoinHandle<()>,
}

impl Log {
    /// The next lines. None: there will be no more.
    pub(super) async fn next(&mut self) -> Option<Vec<String>> {
        self.lines.recv().await
    }
}

impl Drop for Log {
    /// Gives the reader the time to end what it has started, such as `journalctl`.
    fn drop(&mut self) {
        self.lines.close();
        let until = Instant::now() + END_WAIT;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Begins to read the log of a server.
pub(super) fn log(keeper: KeeperName) -> Log {
    let (show, lines) = unbounded_channel();
    let reader = std::thread::spawn(move || {
        let read = on_server(keeper, async |inventory, server| {
            let shown = logs::watch(server, &inventory.directory, |lines| {
                show.send(lines).is_ok()
            });
            tokio::select! {
                () = shown => {}
                () = show.closed() => {}
            }
            Ok(String::new())
        });
        if let Ok(Err(why)) = block_on(read) {
            let _ = show.send(vec![why]);
        }
    });
    Log { lines, reader }
}

/// Looks for the server as it is now, and does something with it.
async fn on_server(
    keeper: KeeperName,
    work: impl AsyncFnOnce(&Inventory, &Server) -> Outcome,
) -> Outcome {
    let inventory = Inventory::read()
        .await
        .map_err(|failure| failure.to_string())?;
    match inventory
        .servers
        .iter()
        .find(|server| server.keeper == keeper)
    {
        Some(server) => work(&inventory, server).await,
        None => Err("the server has ended meanwhile".to_owned()),
    }
}
