//! The keeper: a small process that holds one backend's pipes, so that nothing else has to stay up for it.

pub mod relay;
