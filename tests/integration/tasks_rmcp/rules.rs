//! What SEP-2663 demands of servers, a case for each rule.

mod callers;
mod cancelled;
mod created;
mod got;
mod negotiated;
mod refused;
mod updated;
