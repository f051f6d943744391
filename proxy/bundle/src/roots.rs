//! The host's roots: several servers that ask for them at the same time are one question to the host.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::owned::{Id, Message, Outcome};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::connection::push;
use crate::lock::lock;

/// The request for them.
pub(crate) const ROOTS: &str = "roots/list";

/// For how long a question of one backend is taken for that of another one.
const ONCE: Duration = Duration::from_secs(2);

/// The question that the host has yet to answer.
#[derive(Debug, Default)]
pub(crate) struct Roots(Mutex<Option<Question>>);

#[derive(Debug)]
struct Question {
    /// What the host calls it, and when it was asked.
    id: Id,
    asked: Instant,
    /// Who waits for the answer, and by which id of its own.
    waiting: Vec<(mpsc::WeakSender<Bytes>, Id)>,
}

impl Roots {
    /// A backend asks. `id` is what the host would call that. True: the host is to be asked.
    pub(crate) fn ask(&self, backend: &mpsc::Sender<Bytes>, own: Id, id: Id) -> bool {
        let mut open = lock(&self.0);
        let waiter = (backend.downgrade(), own);
        match &mut *open {
            Some(question) if question.asked.elapsed() < ONCE => {
                question.waiting.push(waiter);
                false
            }
            _ => {
                let mut waiting = open.take().map_or_else(Vec::new, |former| former.waiting);
                waiting.push(waiter);
                let asked = Instant::now();
                *open = Some(Question { id, asked, waiting });
                true
            }
        }
    }

    /// The host has answered. False: something else.
    pub(crate) fn answer(&self, id: &Id, outcome: &Outcome) -> bool {
        let answered = lock(&self.0).take_if(|question| question.id == *id);
        let Some(Question { waiting, .. }) = answered else {
            return false;
        };
        for (backend, id) in waiting {
            let outcome = outcome.clone();
            if let Some(backend) = backend.upgrade() {
                push(&backend, Message::Answer { id, outcome }.write());
            }
        }
        true
    }
}
