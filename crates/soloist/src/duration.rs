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
    fn durations_are_read_with_their_unit_and_never_without() {
        for (text, millis) in [
            ("15s", 15_000),
            ("750ms", 750),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("2h", 7_200_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "15", "s", "-1s", "abc", "1x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
