//! A bundle and its backends in one process: no socket, no host, no daemon. Time is tokio's, and
//! passes when everybody waits.

mod cases;
mod decorators;
mod edits;
mod lists;
mod starts;
mod traffic;
mod world;
