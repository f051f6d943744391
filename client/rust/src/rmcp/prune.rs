//! Room in a session whose owner has used up its memory.

use crate::error::SessionError;
use crate::session::Session;

/// How many events stay in such a session: many small ones, and where that does not help, few.
const KEPT: [u64; 2] = [256, 16];

/// Makes a call. Where there is no memory for it, the oldest events of the session go first;
/// whoever comes for one is told how many are lost.
pub(super) async fn with_room<T, F>(
    session: &Session,
    call: impl Fn() -> F,
) -> Result<T, SessionError>
where
    F: Future<Output = Result<T, SessionError>>,
{
    let mut made = call().await;
    for keep in KEPT {
        match &made {
            Err(SessionError::Refused(error)) if error.is_of_memory() => {
                session.prune(keep).await?;
                made = call().await;
            }
            _ => break,
        }
    }
    made
}
