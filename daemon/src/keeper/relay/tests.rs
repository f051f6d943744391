//! The relay under test.
