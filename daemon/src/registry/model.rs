//! The registry against its rules, over random interleavings.
