//! What bundles of others are tested for, and this one, too. Each test
//! names the case of toolhive's `pkg/vmcp` (at commit e25de16) that it is modelled on.

mod calls;
mod cancelled;
mod close;
mod fake;
mod lists;
mod routes;
mod starts;
mod world;
