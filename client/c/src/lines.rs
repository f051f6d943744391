//! The client's log lines: recorded by the handle's thread, and passed to the program by the thread
//! that has made the call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mcp_sessiond_client::LOG_TARGET;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use crate::values::mcp_sessiond_level::{self, MCP_SESSIOND_INFO, MCP_SESSIOND_WARN};

/// How many lines wait for a call at most: a call has one or two, so more are those of calls whose
/// time was over.
const WAITING_MAX: usize = 32;

/// A line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) level: mcp_sessiond_level,
    pub(crate) text: String,
}

/// The lines that nobody has been given yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<VecDeque<Line>>>);

impl Lines {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Line) {
        let mut waiting = self.waiting();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(line);
    }

    /// The one that has waited longest.
    pub(crate) fn next(&self) -> Option<Line> {
        self.waiting().pop_front()
    }

    /// What was said last.
    pub(crate) fn last(&self) -> Option<String> {
        self.waiting().back().map(|line| line.text.clone())
    }

    /// Does the rest of this thread's work with the lines going here.
    pub(crate) fn receive<T>(&self, work: impl FnOnce() -> T) -> T {
        // One for all, made once: another one would take locks of tracing's, which a fork could
        // leave locked.
        static RECEIVER: OnceLock<Dispatch> = OnceLock::new();
        let receiver = RECEIVER.get_or_init(|| Dispatch::new(Receiver));
        HERE.set(Some(self.clone()));
        tracing::dispatcher::with_default(receiver, work)
    }
}

thread_local! {
    /// Where the lines of this thread go.
    static HERE: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

struct Receiver;

impl Subscriber for Receiver {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == LOG_TARGET && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let level = if *event.metadata().level() == Level::INFO {
            MCP_SESSIOND_INFO
        } else {
            MCP_SESSIOND_WARN
        };
        let mut message = Message(String::new());
        event.record(&mut message);
        HERE.with_borrow(|lines| {
            if let Some(lines) = lines {
                lines.push(Line {
                    level,
                    text: message.0,
                });
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
