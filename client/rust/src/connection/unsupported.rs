//! Where there is no daemon to be reached: on an operating system that has none.

use std::time::Duration;

use super::{Absent, Connection};
use crate::directory::Directory;
use crate::error::ConnectError;
use crate::start::Start;

pub(crate) async fn connect_within(
    _: &Directory,
    _: &Start,
    _: Absent,
    _: Duration,
) -> Result<Connection, ConnectError> {
    Err(ConnectError::Unsupported)
}
