//! What names one process, for good.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names one process among all that ever ran since the system started. Together with the boot id,
/// among all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid, which is given again once the process is gone.
    pub pid: u32,
    /// When it started. Not enough either: a pid can be had again within one clock tick (measured).
    pub start: StartTime,
    /// A number that is never given again: on Linux the inode of the pidfd, where the kernel has
    /// pidfs (6.9); on macOS the kernel's unique id of the process. Absent on older kernels.
    pub inode: Option<u64>,
}

impl ProcessId {
    /// What belongs to the user, and to no process, has this in the place of its owner. No process
    /// has pid 0.
    pub const USER: Self = Self {
        pid: 0,
        start: StartTime(0),
        inode: None,
    };
}

/// When a process started: on Linux in clock ticks since the system started (field 22 of
/// /proc/PID/stat), on macOS in microseconds since the Unix epoch.
///
/// As text it is what token files are named by: a plain number on Linux,
/// `<seconds>.<microseconds, 6 digits>` on macOS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct StartTime(pub u64);

#[cfg(target_os = "macos")]
const MICROSECONDS: u64 = 1_000_000;

impl fmt::Display for StartTime {
    #[cfg(target_os = "linux")]
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }

    #[cfg(target_os = "macos")]
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}.{:06}",
            self.0 / MICROSECONDS,
            self.0 % MICROSECONDS
        )
    }
}

/// A text that is no [`StartTime`] as this system writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not how the start time of a process is written here")]
pub struct StartTimeError;

impl FromStr for StartTime {
    type Err = StartTimeError;

    /// Takes exactly what `Display` writes: no sign, no leading zero.
    fn from_str(text: &str) -> Result<Self, StartTimeError> {
        let start = Self(number(text).ok_or(StartTimeError)?);
        if start.to_string() == text {
            Ok(start)
        } else {
            Err(StartTimeError)
        }
    }
}

#[cfg(target_os = "linux")]
fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

#[cfg(target_os = "macos")]
fn number(text: &str) -> Option<u64> {
    let (seconds, microseconds) = text.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(MICROSECONDS)?
        .checked_add(microseconds.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_start_time_is_written_in_one_way() {
        assert_eq!("12345".parse(), Ok(StartTime(12_345)));
        assert_eq!(
            StartTime(u64::MAX).to_string().parse(),
            Ok(StartTime(u64::MAX))
        );
        for bad in [
            "",
            "+1",
            "01",
            "-1",
            " 1",
            "1.000001",
            "18446744073709551616",
        ] {
            assert_eq!(bad.parse::<StartTime>(), Err(StartTimeError), "{bad:?}");
        }
    }

    #[test]
    #[cfg(target_os = "macos")]
    fn a_start_time_is_written_in_one_way() {
        assert_eq!("1762.000042".parse(), Ok(StartTime(1_762_000_042)));
        assert_eq!(StartTime(1_762_000_042).to_string(), "1762.000042");
        for bad in [
            "",
            "1762",
            "1762.42",
            "01762.000042",
            "1762.0000420",
            "1762.+00042",
        ] {
            assert_eq!(bad.parse::<StartTime>(), Err(StartTimeError), "{bad:?}");
        }
    }
}
