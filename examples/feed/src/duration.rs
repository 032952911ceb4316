//! Durations as people write them: `15s`, `750ms`, `1m30s`.

use std::time::Duration;

use jiff::SignedDuration;

/// Reads a duration. A bare number is refused: nobody knows its unit.
///
/// # Errors
/// When it is no duration, or a negative one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write it as 15s, 750ms or 1m30s");
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| format!("the duration {text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_its_unit() {
        assert_eq!(parse("750ms"), Ok(Duration::from_millis(750)));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["", "15", "-1s", "soon"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
