//! The exit codes: those of sysexits.h by their names there, and one of `token load`.

/// Resume is disabled, or no daemon answers.
pub(crate) const RESUME_DISABLED: u8 = 4;
/// Bad usage or configuration (EX_USAGE).
pub(crate) const USAGE: u8 = 64;
/// The data was refused (EX_DATAERR).
pub(crate) const DATA_ERROR: u8 = 65;
/// There is no such server, file, session or key (EX_NOINPUT).
pub(crate) const NO_INPUT: u8 = 66;
/// No daemon, or no service manager (EX_UNAVAILABLE).
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something failed that has no code of its own (EX_SOFTWARE).
pub(crate) const SOFTWARE: u8 = 70;
/// There is no such operating-system resource, or the system refused a call (EX_OSERR).
pub(crate) const OS_ERROR: u8 = 71;
/// A file could not be written (EX_CANTCREAT).
pub(crate) const CANT_CREATE: u8 = 73;
/// It may work later (EX_TEMPFAIL).
pub(crate) const TEMPORARY: u8 = 75;
