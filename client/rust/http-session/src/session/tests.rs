//! The session among clients, servers, kills and a storage, in any order.

mod fuzz;
mod model;

use super::*;
