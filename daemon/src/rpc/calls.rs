//! The calls of one connection. They are carried out in the connection's task, and most end at
//! their first poll: only one that does not costs a deadline, and a place among those that can be
//! cancelled.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _};
use mcp_sessiond_proto::service::{SessiondRequest, SessiondResponse};
use tarpc::{ClientMessage, Request, Response, ServerError, context};

/// So many calls are carried out before their answers are written and other connections have their
/// turn: enough that a write costs little beside them, and few enough that the first answer does
/// not wait for long.
const AT_ONCE: usize = 64;

/// What a peer gets that has too many calls under way.
const TOO_MANY: &str =
    "too many calls of this connection are under way; wait until some of them have ended";

type Answer = Result<SessiondResponse, ServerError>;

/// A call that did not end at once: its id, and its answer, if somebody still waits for that.
type Open = BoxFuture<'static, (u64, Option<Answer>)>;

pub(super) struct Calls<W, F> {
    /// Where requests come from and answers go to.
    wire: W,
    /// Carries out a call.
    handler: F,
    /// How many may be under way.
    most: usize,
    open: FuturesUnordered<Open>,
    /// How to cancel those.
    cancels: HashMap<u64, AbortHandle>,
    /// What the peer does not take yet. While there are any, nothing is read (backpressure).
    answers: VecDeque<Response<SessiondResponse>>,
    /// The peer sends nothing more.
    has_ended: bool,
}

/// How far the calls are.
enum Progress {
    /// Some are not answered.
    Busy,
    /// All are answered.
    Idle,
    /// And no more will come.
    Over,
}

impl<W, F, Call> Calls<W, F>
where
    W: Stream<Item = io::Result<ClientMessage<SessiondRequest>>>
        + Sink<Response<SessiondResponse>, Error = io::Error>
        + Unpin,
    F: FnMut(context::Context, SessiondRequest) -> Call,
    Call: Future<Output = Answer> + Send + 'static,
{
    pub(super) fn new(wire: W, most: usize, handler: F) -> Self {
        Self {
            wire,
            handler,
            most,
            open: FuturesUnordered::new(),
            cancels: HashMap::new(),
            answers: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Carries them out until the peer sends no more, or the daemon takes no more, and all of them
    /// are answered.
    ///
    /// # Errors
    /// When the connection breaks, or the peer does not keep to the protocol.
    pub(super) async fn run(mut self, draining: impl Future<Output = ()>) -> io::Result<()> {
        let mut draining = pin!(draining);
        std::future::poll_fn(|task| match self.poll(task) {
            Ok(Progress::Over) => Poll::Ready(Ok(())),
            Ok(Progress::Idle) => draining.as_mut().poll(task).map(Ok),
            Ok(Progress::Busy) => Poll::Pending,
            Err(error) => {
                // What was answered before that is sent, if it can be.
                let _ = self.wire.poll_flush_unpin(task);
                Poll::Ready(Err(error))
            }
        })
        .await
    }

    fn poll(&mut self, task: &mut Context<'_>) -> io::Result<Progress> {
        for _ in 0..AT_ONCE {
            while let Poll::Ready(Some((id, answer))) = self.open.poll_next_unpin(task) {
                self.cancels.remove(&id);
                self.answers.extend(answer.map(|message| Response {
                    request_id: id,
                    message,
                }));
            }
            self.hand_over(task)?;
            let reads = self.answers.is_empty() && !self.has_ended;
            let read = if reads {
                self.wire.poll_next_unpin(task)
            } else {
                Poll::Pending
            };
            match read {
                Poll::Ready(Some(message)) => match message? {
                    ClientMessage::Request(request) => self.begin(request, task),
                    ClientMessage::Cancel { request_id, .. } => {
                        self.cancels
                            .get(&request_id)
                            .into_iter()
                            .for_each(AbortHandle::abort);
                    }
                    // The codecs make no others.
                    _ => {}
                },
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending => {
                    let is_written = self.wire.poll_flush_unpin(task)?.is_ready();
                    if is_written && !self.answers.is_empty() {
                        continue;
                    }
                    return Ok(match (is_written && self.open.is_empty(), self.has_ended) {
                        (true, true) => Progress::Over,
                        (true, false) => Progress::Idle,
                        (false, _) => Progress::Busy,
                    });
                }
            }
        }
        let _ = self.wire.poll_flush_unpin(task)?;
        task.waker().wake_by_ref();
        Ok(Progress::Busy)
    }

    /// Gives answers to the wire, as far as it takes them.
    fn hand_over(&mut self, task: &mut Context<'_>) -> io::Result<()> {
        while !self.answers.is_empty() && self.wire.poll_ready_unpin(task)?.is_ready() {
            if let Some(answer) = self.answers.pop_front() {
                self.wire.start_send_unpin(answer)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, request: Request<SessiondRequest>, task: &mut Context<'_>) {
        let Request {
            id,
            context,
            message,
        } = request;
        // A call of this id is under way: its answer is the answer to both.
        if self.cancels.contains_key(&id) {
            return;
        }
        if self.open.len() >= self.most {
            let refused = ServerError::new(io::ErrorKind::WouldBlock, TOO_MANY.into());
            self.answers.push_back(Response {
                request_id: id,
                message: Err(refused),
            });
            return;
        }
        let mut call = Box::pin((self.handler)(context, message));
        if let Poll::Ready(message) = call.as_mut().poll(task) {
            self.answers.push_back(Response {
                request_id: id,
                message,
            });
            return;
        }
        let (cancel, cancelled) = AbortHandle::new_pair();
        self.cancels.insert(id, cancel);
        let remaining = context.deadline.saturating_duration_since(Instant::now());
        let limited = tokio::time::timeout(remaining, Abortable::new(call, cancelled));
        self.open
            .push(async move { (id, limited.await.ok().and_then(Result::ok)) }.boxed());
    }
}
