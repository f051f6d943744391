//! What drives the calls: the caller's tokio runtime, or where it has none, one of this crate's
//! own, in a thread of its own.

use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle};

use crate::error::ConnectError;

thread_local! {
    /// This thread waits in [`block_on`]: a runtime of the caller's on it does nothing meanwhile.
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Waits in this thread for a call of this crate: for servers that are not async. An async function
/// awaits the call instead, since its runtime does nothing while its thread waits.
///
/// ```no_run
/// use mcp_sessiond_client::{Options, Sessiond, block_on};
///
/// let sessiond = Sessiond::init(Options::default());
/// let token = block_on(sessiond.load());
/// ```
pub fn block_on<T>(call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        let was = BLOCKED.replace(true);
        let polled = call.as_mut().poll(&mut context);
        BLOCKED.set(was);
        match polled {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What comes of this, whatever executor polls it.
///
/// # Errors
/// [`ConnectError::NoRuntime`]
pub(crate) async fn driven<T, E: From<ConnectError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    Driven {
        handle: None,
        work: Box::pin(work),
    }
    .await
}

/// Work that finds a runtime around it each time that it is polled.
struct Driven<F> {
    /// Our own, where it takes that.
    handle: Option<Handle>,
    work: Pin<Box<F>>,
}

impl<T, E: From<ConnectError>, F: Future<Output = Result<T, E>>> Future for Driven<F> {
    type Output = Result<T, E>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.handle.is_none() && (BLOCKED.get() || Handle::try_current().is_err()) {
            self.handle = Some(own().map_err(ConnectError::NoRuntime)?);
        }
        let Self { handle, work } = &mut *self;
        let _within = handle.as_ref().map(Handle::enter);
        work.as_mut().poll(context)
    }
}

/// The runtime of this crate's own, which is started when it is needed first. A thread that can't
/// be started now may be later.
fn own() -> io::Result<Handle> {
    static OWN: OnceLock<Handle> = OnceLock::new();
    if let Some(handle) = OWN.get() {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("mcp-sessiond".into())
        .spawn(move || {
            runtime.block_on(std::future::pending::<()>());
        })?;
    // Where two threads were first, the one that was late has a thread too many, which sleeps.
    Ok(OWN.get_or_init(|| handle).clone())
}
