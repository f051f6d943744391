//! Lengths of time on the command line.

use std::time::Duration;

/// In whole ms.
pub(crate) fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A number and its unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let unit_ms = match &text[end..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        _ => return Err("a number followed by ms, s, m, h or d, such as `30m`".into()),
    };
    let number: u64 = text[..end]
        .parse()
        .map_err(|_| "it must begin with a number, such as `30m`".to_owned())?;
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| "less than that".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in [
            ("0ms", 0),
            ("5s", 5_000),
            ("30m", 1_800_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in [
            "",
            "5",
            "m",
            "-1s",
            "1.5h",
            "5 s",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
