//! One line of the output.

use std::io::Write;

use soloist_worker::{Term, Token};

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The message's position.
    pub position: u64,
    /// The token of the term that wrote it.
    pub token: Token,
    /// That term.
    pub term: Term,
    /// The message's bytes.
    pub payload: Vec<u8>,
}

/// Why a text is no line of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Too few words or too many.
    #[error("it is not `position token term payload`")]
    Words,
    /// One of the first three is no number.
    #[error("its {0} is not a whole number")]
    Number(&'static str),
    /// The payload is not written in hexadecimal digits.
    #[error("its payload is not in pairs of hexadecimal digits")]
    Hex,
}

impl Line {
    /// Reads a line, without the newline at its end.
    ///
    /// # Errors
    /// When it is not one that an output writes.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let mut words = line.split(|&byte| byte == b' ');
        let mut next = || words.next().ok_or(LineError::Words);
        let [position, token, term, payload] = [next()?, next()?, next()?, next()?];
        if words.next().is_some() {
            return Err(LineError::Words);
        }
        Ok(Self {
            position: number(position, "position")?,
            token: Token::new(number(token, "token")?),
            term: Term::new(number(term, "term")?),
            payload: decode(payload).ok_or(LineError::Hex)?,
        })
    }
}

/// Adds a line to the buffer.
pub(super) fn write(buffer: &mut Vec<u8>, position: u64, token: Token, term: Term, payload: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // Writing to a vector does not fail.
    let _ = write!(buffer, "{position} {} {} ", token.get(), term.get());
    let digits = payload.iter().flat_map(|byte| {
        let [high, low] = [byte >> 4, byte & 0xf];
        [DIGITS[usize::from(high)], DIGITS[usize::from(low)]]
    });
    buffer.extend(digits);
    buffer.push(b'\n');
}

fn number(word: &[u8], name: &'static str) -> Result<u64, LineError> {
    let text = str::from_utf8(word).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or(LineError::Number(name))
}

fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let pairs = pairs.iter();
    pairs
        .map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?))
        .collect()
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for payload in [&b""[..], b"\x00\x7f\xff"] {
            let mut buffer = Vec::new();
            write(&mut buffer, 12, Token::new(17), Term::new(3), payload);
            let line = buffer.strip_suffix(b"\n").unwrap();
            let line = Line::parse(line).unwrap();
            assert_eq!((line.position, line.token.get()), (12, 17));
            assert_eq!((line.term.get(), &line.payload[..]), (3, payload));
        }
    }

    #[test]
    fn a_line_that_is_none_says_why() {
        for (line, error) in [
            ("", LineError::Words),
            ("1 2 3", LineError::Words),
            ("1 2 3 00 00", LineError::Words),
            ("x 2 3 00", LineError::Number("position")),
            ("1 -2 3 00", LineError::Number("token")),
            ("1 2 3.0 00", LineError::Number("term")),
            ("1 2 3 000", LineError::Hex),
            ("1 2 3 0G", LineError::Hex),
        ] {
            assert_eq!(Line::parse(line.as_bytes()), Err(error), "{line}");
        }
    }
}
