//! Mutexes that go on after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex although a thread that held it may have panicked: what stands behind a mutex of
/// this project is whole after each single step, and one failed call must not fail all others.
pub trait Lock<T: ?Sized> {
    /// Waits until nobody else holds it.
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T: ?Sized> Lock<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
