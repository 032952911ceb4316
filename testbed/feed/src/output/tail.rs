//! The end of an output, found without reading all of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The end of a file of lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The last whole line, without its newline.
    pub(super) line: Option<Vec<u8>>,
    /// Where it ends, newline included.
    pub(super) end: u64,
    /// Whether something without a newline stands after it.
    pub(super) is_torn: bool,
}

/// Reads backwards as far as need be.
pub(super) fn read(file: &File) -> io::Result<Tail> {
    const FIRST_READ: u64 = 4096;
    let length = file.metadata()?.len();
    let mut size = FIRST_READ;
    loop {
        let size_now = size.min(length);
        let from = length - size_now;
        let mut bytes = vec![0; usize::try_from(size_now).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, from)?;
        let newline = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte == b'\n');
        let last = newline(&bytes);
        let before = last.and_then(|last| newline(&bytes[..last]));
        if from > 0 && before.is_none() {
            size *= 4;
            continue;
        }
        let start = before.map_or(0, |before| before + 1);
        let end = from + last.map_or(0, |last| last as u64 + 1);
        return Ok(Tail {
            line: last.map(|last| bytes[start..last].to_vec()),
            end,
            is_torn: end < length,
        });
    }
}
