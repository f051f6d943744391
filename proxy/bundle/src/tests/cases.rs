//! What bundles of others are tested for, and this one, too. `docs/bundle-cases.md` has the list.

mod calls;
mod cancelled;
mod close;
mod fake;
mod lists;
mod routes;
mod starts;
mod world;
