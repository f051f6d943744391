//! What a person at a terminal is told while a command waits.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::Duration;

/// For how long nobody wonders what is going on.
const SHORT: Duration = Duration::from_secs(1);

/// Waits. When it takes longer than a second, and standard error is a terminal, a line says what is
/// waited for.
pub(crate) async fn wait_until<T>(what: impl Display, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if io::stderr().is_terminal() {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(SHORT) => {}
        }
        let _ = writeln!(io::stderr(), "waiting until {what}");
    }
    work.await
}
