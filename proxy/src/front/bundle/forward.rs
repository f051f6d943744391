//! Lines between the bundle and one backend's keeper.

use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_sessiond_bundle::{Receipt, Said};
use mcp_sessiond_proto::Json;
use mcp_sessiond_relay::Oversized;
use nix::sys::socket::{MsgFlags, send};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::leave::{Farewells, Owed};
use crate::front::open::{Open, refusals};
use crate::id_prefix::Apart;
use crate::lines::{Line, Lines, Outlet};
use crate::notices::span;
use crate::server::attach::{Attaching, Attachment, FRESH};
use crate::server::kept::Door;
use crate::server::shared::place::Place;
use crate::server::shared::{Looking, Shared};
use crate::signals::GivenMask;
use crate::stderr::Voice;
use crate::waits::{PATIENCE, PAUSE, PAUSE_MAX};

/// How long the host's messages wait for a keeper that was lost, before they are refused: as in
/// front of a single server.
const HOLD: Duration = Duration::from_secs(2);

/// Says things about one server, of several by its name.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Option<String>,
    pub(super) voice: Voice,
}

impl Named {
    pub(super) fn say(&self, what: &dyn std::fmt::Display) {
        match &self.name {
            Some(name) => self.voice.say(&format_args!("{name}: {what}")),
            None => self.voice.say(what),
        }
    }
}

/// Carries lines between the bundle and a keeper, and attaches again whenever the keeper is lost
/// and there is something to be said to it.
pub(super) struct Carrying {
    /// None while it is with a thread that attaches.
    pub(super) door: Option<Box<dyn Attaching>>,
    pub(super) open: Open,
    pub(super) wanted: mpsc::Receiver<Bytes>,
    pub(super) said: mpsc::Sender<Said>,
    pub(super) voice: Named,
    pub(super) leaving: watch::Receiver<bool>,
    pub(super) farewells: Farewells,
    /// How the server is told from all others, and from those that were lost before it: a keeper
    /// has failed what was asked on a former connection, and another keeper numbers its requests
    /// anew. None: it is the first one, and the host sees it alone.
    pub(super) apart: Option<Apart>,
}

/// Why a connection is over.
enum Over {
    /// The bundle has hung up.
    HungUp,
    /// The keeper is lost; whether it has said that it ends on purpose.
    Lost { farewell: bool },
}

impl Carrying {
    pub(super) async fn run(self, first: Attachment, owed: Owed) {
        self.run_with(first, None, owed).await;
    }

    /// The same with a server that all hosts share. Whether this one can, its first line says.
    pub(super) async fn run_shared(
        mut self,
        shared: Shared,
        looking: Looking,
        door: Door,
        mask: GivenMask,
    ) {
        let Some(first) = self.wanted.recv().await else {
            return;
        };
        // Dropped with this.
        let Ok((_present, wanted)) = StdStream::pair() else {
            return;
        };
        let mut place = Place::new(shared, looking, first.clone(), mask, door).while_wanted(wanted);
        let attempt = tokio::task::spawn_blocking(move || {
            let attached = place.attach(None, Instant::now() + PATIENCE);
            (place, attached)
        });
        let attempt = tokio::select! {
            attempt = attempt => attempt,
            () = self.said.closed() => return,
        };
        let Ok((place, attached)) = attempt else {
            return;
        };
        self.door = Some(Box::new(place));
        match attached {
            Ok(attachment) => {
                let owed = self.farewells.owed();
                self.run_with(attachment, Some(first), owed).await;
            }
            Err(why) => {
                self.voice.say(&why);
                self.answer(&refusals(&first, &why.to_string())).await;
            }
        }
    }

    async fn run_with(mut self, first: Attachment, mut waiting: Option<Bytes>, first_owed: Owed) {
        let (mut attachment, mut owed) = (first, first_owed);
        loop {
            if let Some(news) = self.door.as_mut().and_then(|door| door.news()) {
                self.voice.say(&news);
            }
            self.tell(&attachment);
            let Ok(Over::Lost { farewell }) = self.carry(attachment, waiting.take(), owed).await
            else {
                return;
            };
            self.apart = Some(Apart::mint());
            let answers = self.open.lose();
            self.answer(&answers).await;
            // A stopped server stays stopped until it is used.
            if farewell && self.open.unanswered().is_none() {
                match self.wanted.recv().await {
                    None => return,
                    line => waiting = line,
                }
            }
            match self.again(&mut waiting).await {
                Some(found) => (attachment, owed) = (found, self.farewells.owed()),
                None => return,
            }
            self.voice
                .say(&self.door.as_ref().map_or(FRESH, |door| door.back()));
        }
    }

    /// What the user should know of how this server came to be.
    fn tell(&self, attachment: &Attachment) {
        let attached = &attachment.attached;
        if attached.exited {
            self.voice
                .say(&"this server begins afresh: the previous one has exited");
        } else if attached.resumed {
            self.voice.say(&format_args!(
                "resumed the server that has been running for {}; `mcp-sessiond restart` gives a fresh one",
                span(attached.age_ms)
            ));
        }
        if attached.lost > 0 {
            self.voice.say(&format_args!(
                "{} messages were on their way when the former connection ended, and may not have arrived",
                attached.lost
            ));
        }
    }

    /// `waiting` goes first, after an `initialize` that was not answered. The keeper is `owed` a
    /// farewell.
    async fn carry(
        &mut self,
        attachment: Attachment,
        waiting: Option<Bytes>,
        owed: Owed,
    ) -> std::io::Result<Over> {
        let Attachment {
            reader,
            lines,
            beside,
            ..
        } = attachment;
        let beside = beside.map(Arc::new);
        if let Some(beside) = &beside {
            self.voice.voice.repeat(beside)?;
        }
        reader.set_nonblocking(true)?;
        let (reader, mut writer) = UnixStream::from_std(reader)?.into_split();
        let mut reader = Lines::from_parts(reader, lines);
        let mut outlet = Outlet::default();
        let apart = self.apart.clone();
        let to_server = |line: Bytes| {
            apart
                .as_ref()
                .map_or_else(|| Some(line.clone()), |apart| apart.to_server(&line))
        };
        let unanswered = self.open.unanswered().cloned();
        let mut first: VecDeque<Bytes> = unanswered
            .into_iter()
            .chain(waiting)
            .filter_map(to_server)
            .collect();
        let mut farewell = false;
        // None once the host has left.
        let mut owed = Some(owed);
        loop {
            while outlet.is_empty()
                && let Some(line) = first.pop_front()
            {
                self.open.from_host(&line);
                outlet.put(line);
            }
            let is_empty = outlet.is_empty();
            tokio::select! {
                biased;
                line = reader.next() => match line {
                    Ok(Some(Line::Whole(line))) if line.is_empty() => farewell = true,
                    Ok(Some(line)) => {
                        let line = match line {
                            Line::Whole(line) => line,
                            Line::Oversized { head, tail } => match Oversized::of_server(&head, &tail) {
                                Oversized::Failed(answer) => answer,
                                // Too large by the id that the keeper has given it.
                                Oversized::Refused(answer) => {
                                    first.push_back(answer);
                                    continue;
                                }
                                Oversized::Dropped => continue,
                            },
                        };
                        self.open.from_keeper(&line);
                        let line = apart.as_ref().map_or_else(|| line.clone(), |apart| apart.to_host(&line));
                        let receipt = confirmation(beside.clone());
                        if self.said.send(Said { line, receipt }).await.is_err() {
                            say_goodbye(beside.as_deref());
                            return Ok(Over::HungUp);
                        }
                    }
                    Ok(None) | Err(_) => return Ok(Over::Lost { farewell }),
                },
                written = outlet.write(&mut writer), if !is_empty => {
                    if written.is_err() {
                        return Ok(Over::Lost { farewell });
                    }
                }
                line = self.wanted.recv(), if is_empty => match line {
                    Some(line) => if let Some(line) = to_server(line) {
                        self.open.from_host(&line);
                        outlet.put(line);
                    },
                    None => {
                        say_goodbye(beside.as_deref());
                        return Ok(Over::HungUp);
                    }
                },
                () = left(&mut self.leaving), if owed.is_some() => {
                    say_goodbye(beside.as_deref());
                    owed = None;
                }
            }
        }
    }

    /// Attaches again, however long it takes. When it takes too long, what is asked for is refused
    /// meanwhile, `waiting` first.
    async fn again(&mut self, waiting: &mut Option<Bytes>) -> Option<Attachment> {
        let began = Instant::now();
        let mut pause = PAUSE;
        let mut said = String::new();
        loop {
            let mut door = self.door.take()?;
            let initialized = self.open.initialized().and_then(as_json);
            let attempt = tokio::task::spawn_blocking(move || {
                let attached = door.attach(initialized, Instant::now() + PATIENCE);
                (door, attached)
            });
            let (door, attached) = attempt.await.ok()?;
            self.door = Some(door);
            let why = match attached {
                Ok(attachment) => return Some(attachment),
                Err(why) => why.to_string(),
            };
            if began.elapsed() >= HOLD {
                if said != why {
                    self.voice.say(&format_args!(
                        "the server can't be started again: {why}; trying on"
                    ));
                    said.clone_from(&why);
                }
                if let Some(unanswered) = self.open.unanswered().cloned() {
                    self.open.forget();
                    self.answer(&refusals(&unanswered, &why)).await;
                }
                let lines = waiting
                    .take()
                    .into_iter()
                    .chain(std::iter::from_fn(|| self.wanted.try_recv().ok()));
                let refused: Vec<u8> = lines.flat_map(|line| refusals(&line, &why)).collect();
                self.answer(&refused).await;
            }
            if self.said.is_closed() {
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Tells the bundle these answers of ours, a line each.
    async fn answer(&self, answers: &[u8]) {
        for answer in answers
            .split(|byte| *byte == b'\n')
            .filter(|answer| !answer.is_empty())
        {
            // Where nobody hears them, nobody waits for them.
            let _ = self
                .said
                .send(Said::once(Bytes::copy_from_slice(answer)))
                .await;
        }
    }
}

/// Waits until the host has closed its end.
async fn left(leaving: &mut watch::Receiver<bool>) {
    // Its sender is the front's.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

fn as_json(line: &Bytes) -> Option<Json> {
    Json::new(String::from_utf8(line.to_vec()).ok()?).ok()
}

/// Tells the keeper that a message was passed on. This must never make anybody wait.
fn confirmation(beside: Option<Arc<StdStream>>) -> Receipt {
    Receipt::new(move || {
        if let Some(beside) = beside {
            let _ = send(beside.as_raw_fd(), &[1], MsgFlags::MSG_DONTWAIT);
        }
    })
}

/// Tells the keeper that this end is orderly, whatever follows.
pub(super) fn say_goodbye(beside: Option<&StdStream>) {
    if let Some(beside) = beside {
        let _ = send(beside.as_raw_fd(), &[0], MsgFlags::MSG_DONTWAIT);
    }
}
