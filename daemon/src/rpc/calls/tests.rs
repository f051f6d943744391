use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::task::noop_waker;
use tarpc::trace;
use tokio::sync::Semaphore;

use super::*;

/// How many calls of the connection may be under way.
const MOST: usize = 3;

/// A connection whose other side is the test.
struct Wire {
    requests: mpsc::UnboundedReceiver<ClientMessage<SessiondRequest>>,
    answers: mpsc::Sender<Response<SessiondResponse>>,
}

impl Stream for Wire {
    type Item = io::Result<ClientMessage<SessiondRequest>>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.requests
            .poll_next_unpin(task)
            .map(|request| request.map(Ok))
    }
}

fn gone(_: mpsc::SendError) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl Sink<Response<SessiondResponse>> for Wire {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answers.poll_ready(task).map_err(gone)
    }

    fn start_send(mut self: Pin<&mut Self>, answer: Response<SessiondResponse>) -> io::Result<()> {
        self.answers.start_send(answer).map_err(gone)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A peer, and the calls of its connection. `Ping` ends at once, `Stats` when the gate has a permit
/// for it.
struct Peer {
    requests: Option<mpsc::UnboundedSender<ClientMessage<SessiondRequest>>>,
    answers: mpsc::Receiver<Response<SessiondResponse>>,
    gate: Arc<Semaphore>,
    run: Pin<Box<dyn Future<Output = io::Result<()>>>>,
}

impl Peer {
    /// `room`: how many answers it takes without being asked for them.
    fn new(room: usize, draining: impl Future<Output = ()> + 'static) -> Self {
        let (requests, incoming) = mpsc::unbounded();
        let (outgoing, answers) = mpsc::channel(room);
        let gate = Arc::new(Semaphore::new(0));
        let wire = Wire {
            requests: incoming,
            answers: outgoing,
        };
        let passes = gate.clone();
        let calls = Calls::new(wire, MOST, move |_, request| {
            let gate = passes.clone();
            async move {
                if matches!(request, SessiondRequest::Stats {}) {
                    gate.acquire_owned().await.expect("it stays open").forget();
                }
                Ok(SessiondResponse::Ping(()))
            }
        });
        Self {
            requests: Some(requests),
            answers,
            gate,
            run: Box::pin(calls.run(draining)),
        }
    }

    fn says(&self, message: ClientMessage<SessiondRequest>) {
        self.requests
            .as_ref()
            .expect("it still speaks")
            .unbounded_send(message)
            .expect("it is read");
    }

    fn asks(&self, id: u64, message: SessiondRequest) {
        let mut context = context::current();
        context.deadline = Instant::now() + Duration::from_secs(10);
        self.says(ClientMessage::Request(Request {
            context,
            id,
            message,
        }));
    }

    fn cancels(&self, request_id: u64) {
        self.says(ClientMessage::Cancel {
            trace_context: trace::Context::default(),
            request_id,
        });
    }

    /// Lets the calls go as far as they can.
    fn runs(&mut self) -> Poll<io::Result<()>> {
        // What it asks to be woken for at once, it does at once.
        for _ in 0..10 {
            let run = self
                .run
                .as_mut()
                .poll(&mut Context::from_waker(&noop_waker()));
            if run.is_ready() {
                return run;
            }
        }
        Poll::Pending
    }

    /// The answers so far: the ids, and whether each is a reply.
    fn answers(&mut self) -> Vec<(u64, bool)> {
        assert!(self.runs().is_pending(), "the connection goes on");
        let next = || {
            self.answers
                .try_recv()
                .ok()
                .map(|answer| (answer.request_id, answer.message.is_ok()))
        };
        std::iter::from_fn(next).collect()
    }
}

fn peer() -> Peer {
    Peer::new(100, std::future::pending())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_holds_up_no_other() {
    let mut peer = peer();
    peer.asks(1, SessiondRequest::Stats {});
    peer.asks(2, SessiondRequest::Ping {});
    assert_eq!(peer.answers(), [(2, true)]);
    peer.gate.add_permits(1);
    assert_eq!(peer.answers(), [(1, true)]);
}

#[tokio::test(start_paused = true)]
async fn one_call_more_than_may_be_under_way_is_refused_and_the_connection_goes_on() {
    let mut peer = peer();
    for id in 1..=4 {
        peer.asks(id, SessiondRequest::Stats {});
    }
    assert_eq!(peer.answers(), [(4, false)]);
    peer.gate.add_permits(1);
    assert_eq!(peer.answers(), [(1, true)]);
    peer.asks(5, SessiondRequest::Ping {});
    assert_eq!(peer.answers(), [(5, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_dropped_and_makes_room_and_gets_no_answer() {
    let mut peer = peer();
    for id in 1..=3 {
        peer.asks(id, SessiondRequest::Stats {});
    }
    peer.cancels(2);
    // Of no call, or of one that was answered.
    peer.cancels(77);
    assert_eq!(peer.answers(), []);
    peer.asks(4, SessiondRequest::Stats {});
    peer.gate.add_permits(3);
    assert_eq!(peer.answers(), [(1, true), (3, true), (4, true)]);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_under_way_is_not_begun_again() {
    let mut peer = peer();
    peer.asks(1, SessiondRequest::Stats {});
    peer.asks(1, SessiondRequest::Stats {});
    assert_eq!(peer.answers(), []);
    peer.gate.add_permits(2);
    assert_eq!(peer.answers(), [(1, true)]);
    assert_eq!(peer.gate.available_permits(), 1);
    peer.asks(1, SessiondRequest::Ping {});
    assert_eq!(
        peer.answers(),
        [(1, true)],
        "once it was answered, the id is free"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_and_gets_no_answer() {
    let mut peer = peer();
    peer.asks(1, SessiondRequest::Stats {});
    assert_eq!(peer.answers(), []);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(peer.answers(), []);
    peer.gate.add_permits(1);
    assert_eq!(peer.answers(), []);
    assert_eq!(peer.gate.available_permits(), 1, "it was dropped");
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_before_the_end_of_input_is_answered() {
    let mut peer = peer();
    peer.asks(1, SessiondRequest::Stats {});
    peer.asks(2, SessiondRequest::Ping {});
    drop(peer.requests.take());
    assert_eq!(peer.answers(), [(2, true)]);
    peer.gate.add_permits(1);
    assert!(matches!(peer.runs(), Poll::Ready(Ok(()))));
    assert_eq!(peer.answers.try_recv().expect("an answer").request_id, 1);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_about_to_exit_answers_what_is_under_way() {
    let mut peer = Peer::new(100, std::future::ready(()));
    peer.asks(1, SessiondRequest::Stats {});
    assert_eq!(peer.answers(), []);
    peer.gate.add_permits(1);
    assert!(matches!(peer.runs(), Poll::Ready(Ok(()))));
    assert_eq!(peer.answers.try_recv().expect("an answer").request_id, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_the_peer_reads_no_answers() {
    let mut peer = Peer::new(0, std::future::pending());
    for id in 1..=10 {
        peer.asks(id, SessiondRequest::Ping {});
    }
    let _ = peer.runs();
    let requests = peer.requests.take().expect("it still speaks");
    assert!(requests.len() >= 7, "{} of 10 are not read", requests.len());
    peer.requests = Some(requests);
    let mut answered = Vec::new();
    while answered.len() < 10 {
        answered.extend(peer.answers());
    }
    assert_eq!(answered, (1..=10).map(|id| (id, true)).collect::<Vec<_>>());
}

/// More than are carried out before others have their turn.
#[tokio::test(start_paused = true)]
async fn many_calls_that_come_at_once_are_all_answered_in_order() {
    let mut peer = Peer::new(1_000, std::future::pending());
    for id in 0..500 {
        peer.asks(id, SessiondRequest::Ping {});
    }
    assert_eq!(
        peer.answers(),
        (0..500).map(|id| (id, true)).collect::<Vec<_>>()
    );
}
