//! What this crate logs while a test runs.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, registry};

use crate::LOG_TARGET;

/// The lines logged since it was made, on this thread.
pub(crate) struct Logged {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Logged {
    pub(crate) fn new() -> Self {
        let lines = Arc::default();
        let subscriber = registry().with(Capture(Arc::clone(&lines)));
        Self {
            lines,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The lines so far, with their levels. They are not told again.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().expect("lines"))
    }
}

struct Capture(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
                write!(self.0, "{value:?}").expect("a string");
            }
        }
        let meta = event.metadata();
        // Whatever the server would see at its usual level, whoever logs it.
        if meta.target() == LOG_TARGET || *meta.level() <= tracing::Level::WARN {
            let mut message = Message(format!("{} ", meta.level()));
            event.record(&mut message);
            self.0.lock().expect("lines").push(message.0);
        }
    }
}
