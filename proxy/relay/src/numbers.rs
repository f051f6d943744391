//! Numbers that stand for requests in the receiver's namespace, and what is remembered of each
//! request.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::Millis;

/// Numbers at and above this one are not given out: not every peer has integers of more than 31
/// bits.
const END: u64 = 1 << 31;
/// The last numbers below [`END`] are for our own pings, so that pings don't change the numbers of
/// other requests.
const PINGS: u64 = 1 << 10;
/// The first of them. Ids at and above this one are not used as numbers.
const FIRST_PING: u64 = END - PINGS;
/// How many progress tokens are remembered in one direction. Those of open requests stay beyond
/// that.
pub(super) const TOKENS: usize = 1024;

/// The numbers of one direction. None is given out twice.
#[derive(Default)]
pub(super) struct Numbers {
    next: u64,
}

impl Numbers {
    /// The number for a request: its own id where that is a small integer above all former ones, so
    /// that the ids of a first connection stay as they are.
    pub(super) fn take(&mut self, id: &str) -> u64 {
        let own = if id.bytes().all(|byte| byte.is_ascii_digit()) {
            id.parse().ok()
        } else {
            None
        };
        match own.filter(|own| (self.next..FIRST_PING).contains(own)) {
            Some(own) => self.give(own),
            None => self.ours(),
        }
    }

    /// A number for a request of our own.
    pub(super) fn ours(&mut self) -> u64 {
        let next = self.next.max(1);
        // After two billion requests only the numbers from [`END`] on are left.
        let number = if (FIRST_PING..END).contains(&next) {
            END
        } else {
            next
        };
        self.give(number)
    }

    fn give(&mut self, number: u64) -> u64 {
        self.next = number + 1;
        number
    }

    /// The number of our ping after this many former ones.
    pub(super) fn of_ping(before: u64) -> u64 {
        END - 1 - before % PINGS
    }

    /// Whether this is the number of a ping of ours.
    pub(super) fn is_ping(number: u64) -> bool {
        (FIRST_PING..END).contains(&number)
    }
}

/// A method's name, as it is displayed: at most 64 characters, and no control characters.
pub(super) fn display_method(method: &str) -> Box<str> {
    method
        .chars()
        .filter(|each| !each.is_control())
        .take(64)
        .collect::<String>()
        .into()
}

/// A request that was not answered.
pub(super) struct Open<K> {
    /// The id that the sender gave it, as raw text.
    pub id: Box<str>,
    /// The method, as it is displayed.
    pub method: Box<str>,
    /// The connection of the host, or the incarnation of the backend, that asks.
    pub asker: u64,
    /// When it came.
    pub made: Millis,
    /// When the sender cancelled it.
    pub cancelled: Option<Millis>,
    /// Whether it was handed out, and what else is known.
    pub kind: K,
}

/// What is known of an answer, whether it arrives or not.
pub(super) struct AnswerInfo {
    pub method: Box<str>,
    pub came: Millis,
    pub took: u64,
    pub bytes: usize,
    pub failed: bool,
}

/// The progress tokens of one asker: the number that stands for each, and its raw text.
#[derive(Default)]
pub(super) struct Tokens(BTreeMap<u64, Box<str>>);

impl Tokens {
    /// Remembers a token. Beyond the maximum it forgets the oldest token whose request is not open
    /// any more.
    pub(super) fn insert(&mut self, number: u64, token: &str, is_open: impl Fn(u64) -> bool) {
        self.0.insert(number, token.into());
        if self.0.len() > TOKENS
            && let Some(oldest) = self
                .0
                .keys()
                .copied()
                .find(|of| *of != number && !is_open(*of))
        {
            self.0.remove(&oldest);
        }
    }

    /// The token that a number stands for.
    pub(super) fn get(&self, number: u64) -> Option<&str> {
        self.0.get(&number).map(|token| &**token)
    }

    /// The asker is gone.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
