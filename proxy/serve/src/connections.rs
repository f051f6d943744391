//! The connections of clients: how many there are, which one goes when there is no room for another,
//! and when one ends on which nothing is asked.
//!
//! A connection on which no request was let in is a *stranger's*. It has to send a whole head within
//! `http.peer_wait_ms`, and is the first to go. One on which a request was let in may then be idle
//! for [`IDLE`], as the pools of HTTP clients keep theirs for up to 90 s and race with a server that
//! closes earlier.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use hyper::{Method, Request, Version};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long a connection may be idle on which a request was let in.
const IDLE: Duration = Duration::from_secs(120);

/// The places for connections.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    most: usize,
    taken: Mutex<Taken>,
    /// Notified when a place is free, or one may be taken from who is idle now.
    freed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Taken {
    clients: HashMap<u64, Arc<Client>>,
    next: u64,
}

/// A place for a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    number: u64,
    pub(crate) client: Arc<Client>,
}

impl ConnectionSlots {
    /// So many places.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
            freed: Arc::default(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection. If there is none, the stranger goes that has come first;
    /// if there are no strangers, the connection that is idle for longest. If a request is under way
    /// on all of them, this waits.
    pub(crate) async fn take(self: &Arc<Self>) -> ConnectionSlot {
        loop {
            if let Some(place) = self.try_take() {
                return place;
            }
            self.freed.notified().await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken();
        if taken.clients.len() >= self.most {
            let ranks = taken.clients.iter();
            let ranks = ranks.filter_map(|(number, client)| Some((client.rank()?, *number)));
            let (_, first) = ranks.min()?;
            if let Some(client) = taken.clients.remove(&first) {
                client.is_to_end.notify_one();
            }
        }
        let (number, client) = (taken.next, Arc::new(Client::new(self.freed.clone())));
        taken.next += 1;
        taken.clients.insert(number, client.clone());
        Some(ConnectionSlot {
            places: self.clone(),
            number,
            client,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.places.taken().clients.remove(&self.number).is_some() {
            self.places.freed.notify_one();
        }
    }
}

/// The client at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    state: Mutex<State>,
    /// Notified when what [`Client::over`] waits for has changed.
    changed: Notify,
    /// Notified when the connection has to make room.
    is_to_end: Notify,
    /// Who reads the client's input, and waits because it has ended.
    reader: AtomicWaker,
    /// That of [`ConnectionSlots`].
    freed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// Whether a request was let in.
    let_in: bool,
    has_asked: bool,
    is_http2: bool,
    /// Requests whose response is not sent in full.
    requests: usize,
    /// Those of them that are POSTs.
    posts: usize,
    /// Requests whose body is not read in full.
    unread: usize,
    connected: Instant,
    /// When it has connected, or the last request ended.
    since: Instant,
    /// When the first byte of a head came that is not whole.
    head: Option<Instant>,
}

impl Client {
    fn new(freed: Arc<Notify>) -> Self {
        let state = State {
            let_in: false,
            has_asked: false,
            is_http2: false,
            requests: 0,
            posts: 0,
            unread: 0,
            connected: Instant::now(),
            since: Instant::now(),
            head: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            is_to_end: Notify::new(),
            reader: AtomicWaker::new(),
            freed,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is let in: the client is no stranger.
    pub(crate) fn let_in(&self) {
        self.state().let_in = true;
    }

    /// Whether a request has come.
    pub(crate) fn has_asked(&self) -> bool {
        self.state().has_asked
    }

    /// Whether it speaks HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.state().is_http2
    }

    /// Bytes came.
    pub(crate) fn sent(&self) {
        let mut state = self.state();
        // Frames of HTTP/2 may be answers to pings.
        let is_begun = state.head.is_some() || state.is_http2;
        if state.requests == 0 && !is_begun {
            state.head = Some(Instant::now());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The head of this request has come, which has a body or not.
    pub(crate) fn begin<B>(self: &Arc<Self>, request: &Request<B>, has_body: bool) -> UnderWay {
        let is_post = request.method() == Method::POST;
        let mut state = self.state();
        (state.has_asked, state.head) = (true, None);
        state.is_http2 = request.version() == Version::HTTP_2;
        state.requests += 1;
        state.posts += usize::from(is_post);
        state.unread += usize::from(has_body);
        drop(state);
        self.changed.notify_one();
        UnderWay {
            client: self.clone(),
            is_post,
        }
    }

    /// The body of a request was read in full, or will not be.
    pub(crate) fn body_read(&self) {
        self.state().unread -= 1;
    }

    /// Whether the client waits for the answer to a POST.
    pub(crate) fn waits(&self) -> bool {
        self.state().posts > 0
    }

    /// Whether all bodies were read in full.
    pub(crate) fn is_read(&self) -> bool {
        self.state().unread == 0
    }

    /// Has this waker woken when the client waits for nothing any more.
    pub(crate) fn wake_when_answered(&self, waker: &Waker) {
        self.reader.register(waker);
    }

    /// Wakes who waits for that.
    pub(crate) fn answered(&self) {
        self.reader.wake();
    }

    /// Returns when the connection has to end: it makes room, or nothing was asked on it for too
    /// long.
    pub(crate) async fn over(&self, peer_wait: Duration) {
        let mut is_to_end = false;
        loop {
            // A request may have begun since it was chosen.
            if is_to_end && self.rank().is_some() {
                return;
            }
            let until = self.state().until(peer_wait);
            let passed = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.is_to_end.notified() => is_to_end = true,
                () = self.changed.notified() => {}
                () = passed => return,
            }
        }
    }

    /// Which connection goes before which, the least one first. None: a request is under way.
    fn rank(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        match (state.let_in, state.requests) {
            (false, _) => Some((false, state.connected)),
            (true, 0) => Some((true, state.since)),
            (true, _) => None,
        }
    }
}

impl State {
    /// Until when the next request has to come. None: one is under way.
    fn until(&self, peer_wait: Duration) -> Option<Instant> {
        match (self.requests, self.head) {
            (0, Some(began)) => Some(began + peer_wait),
            (0, None) if self.let_in => Some(self.since + IDLE),
            (0, None) => Some(self.since + peer_wait),
            _ => None,
        }
    }
}

/// A request whose response is not sent in full, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    client: Arc<Client>,
    is_post: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.client.state();
        state.requests -= 1;
        state.posts -= usize::from(self.is_post);
        state.since = Instant::now();
        let is_idle = state.requests == 0;
        drop(state);
        self.client.changed.notify_one();
        self.client.reader.wake();
        if is_idle {
            self.client.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get() -> Request<()> {
        Request::new(())
    }

    fn places(most: usize) -> Arc<ConnectionSlots> {
        ConnectionSlots::new(most)
    }

    /// Whether the connection has to end now.
    async fn has_to_end(client: &Client) -> bool {
        tokio::time::timeout(Duration::ZERO, client.over(Duration::MAX / 4))
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_go_first_then_who_is_idle_and_never_who_waits() {
        let places = places(3);
        let asking = places.take().await;
        asking.client.let_in();
        let under_way = asking.client.begin(&get(), false);
        let idle = places.take().await;
        idle.client.let_in();
        drop(idle.client.begin(&get(), false));
        let stranger = places.take().await;
        drop(stranger.client.begin(&get(), false));

        let new = places.take().await;
        assert!(has_to_end(&stranger.client).await, "the stranger goes");
        assert!(!has_to_end(&idle.client).await && !has_to_end(&asking.client).await);
        new.client.let_in();
        let _waits = new.client.begin(&get(), false);
        let _newest = places.take().await;
        assert!(has_to_end(&idle.client).await, "then who is idle");
        _newest.client.let_in();
        let _too = _newest.client.begin(&get(), false);
        assert!(places.try_take().is_none(), "all others wait for an answer");
        drop(under_way);
        assert!(places.try_take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_free_is_taken_by_who_waits_for_it() {
        let places = places(1);
        let first = places.take().await;
        first.client.let_in();
        let _under_way = first.client.begin(&get(), false);
        let second = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        // So that it waits.
        tokio::task::yield_now().await;
        drop(first);
        let second = second.await.expect("taken");
        assert_eq!(second.number, 1);
        // A request that has ended frees a place, too: its connection is idle now.
        second.client.let_in();
        let under_way = second.client.begin(&get(), false);
        let third = tokio::spawn({
            let places = places.clone();
            async move { places.take().await.number }
        });
        tokio::task::yield_now().await;
        drop(under_way);
        assert_eq!(third.await.expect("taken"), 2);
        assert!(has_to_end(&second.client).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_lives_for_two_minutes_only_after_a_request_that_was_let_in() {
        let peer_wait = Duration::from_secs(15);
        let lived = async |client: Arc<Client>| {
            let began = Instant::now();
            client.over(peer_wait).await;
            began.elapsed()
        };
        let silent = Arc::new(Client::new(Arc::default()));
        assert_eq!(lived(silent).await, peer_wait);
        let refused = Arc::new(Client::new(Arc::default()));
        drop(refused.begin(&get(), true));
        assert_eq!(lived(refused).await, peer_wait);
        let admitted = Arc::new(Client::new(Arc::default()));
        admitted.sent();
        let under_way = admitted.begin(&get(), false);
        admitted.let_in();
        drop(under_way);
        assert_eq!(lived(admitted.clone()).await, IDLE);
        // A head that is never whole.
        admitted.sent();
        assert_eq!(lived(admitted).await, peer_wait);
        // Answers to pings of HTTP/2 begin no head.
        let second = Arc::new(Client::new(Arc::default()));
        second.sent();
        let mut request = get();
        *request.version_mut() = Version::HTTP_2;
        drop(second.begin(&request, false));
        second.let_in();
        second.sent();
        assert_eq!(lived(second).await, IDLE);
    }
}
