use std::fs;
use std::io::{Seek, SeekFrom};
use std::time::Instant;

use super::*;

struct Place {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Place {
    fn with(content: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output");
        fs::write(&path, content).unwrap();
        Self {
            path,
            _directory: directory,
        }
    }

    fn open(&self, token: u64) -> Result<Output, OutputError> {
        Output::open(&self.path, Token::new(token), Term::new(3))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }
}

#[test]
fn messages_are_written_one_to_a_line_and_go_on_after_a_restart() {
    let place = Place::with("");
    let mut output = place.open(17).unwrap();
    assert_eq!(output.last(), 0);
    output.append(1, b"\x0a\xff").unwrap();
    // Nothing waits in a buffer for the end of the process.
    assert_eq!(place.text(), "1 17 3 0aff\n");
    output.sync().unwrap();
    drop(output);
    let mut output = place.open(18).unwrap();
    assert_eq!(output.last(), 1);
    output.append_all([(2, &b"a"[..]), (3, b"b")]).unwrap();
    assert_eq!(place.text(), "1 17 3 0aff\n2 18 3 61\n3 18 3 62\n");
}

#[test]
fn a_torn_last_line_is_cut_off() {
    for torn in ["2", "2 17 3", "2 17 3 0a0", "2 17 3 0aff"] {
        let place = Place::with(&format!("1 17 3 0aff\n{torn}"));
        let mut output = place.open(17).unwrap();
        assert_eq!(output.last(), 1, "{torn}");
        output.append(2, b"\x00").unwrap();
        assert_eq!(place.text(), "1 17 3 0aff\n2 17 3 00\n");
    }
    let place = Place::with("1 17");
    assert_eq!(place.open(17).unwrap().last(), 0);
    assert_eq!(place.text(), "");
}

#[test]
fn a_message_that_is_not_the_next_one_is_refused() {
    let place = Place::with("1 17 3 0aff\n");
    let mut output = place.open(17).unwrap();
    for position in [0, 1, 3, u64::MAX] {
        let error = output.append(position, b"x").unwrap_err();
        assert!(matches!(error, OutputError::OutOfOrder { last: 1, .. }));
    }
    let error = output.append_all([(2, &b"a"[..]), (4, b"b")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the message at 4 does not follow the one at 2, the last in the output"
    );
    assert_eq!(place.text(), "1 17 3 0aff\n");
    output.append(2, b"x").unwrap();
}

#[test]
fn a_second_opener_is_refused() {
    let place = Place::with("");
    let first = place.open(17).unwrap();
    let error = place.open(18).unwrap_err();
    assert!(matches!(error, OutputError::Held { .. }));
    assert!(error.to_string().starts_with("two at once"), "{error}");
    drop(first);
    place.open(18).unwrap();
}

#[test]
fn an_opener_with_an_older_token_is_refused() {
    let place = Place::with("1 17 3 0aff\n");
    let error = place.open(16).unwrap_err();
    assert!(error.to_string().contains("token 17, and ours is 16"));
    place.open(17).unwrap();
}

#[test]
fn a_file_that_is_no_output_is_left_alone() {
    let place = Place::with("Dear diary,\n");
    let error = place.open(1).unwrap_err();
    assert!(error.to_string().contains("is this the right file?"));
    assert_eq!(place.text(), "Dear diary,\n");
    let error = Output::open("/", Token::new(1), Term::new(1)).unwrap_err();
    assert!(error.to_string().starts_with("cannot open the output /"));
}

#[test]
fn the_end_of_a_large_file_is_found_without_reading_it() {
    let place = Place::with("");
    let mut file = OpenOptions::new().write(true).open(&place.path).unwrap();
    // A hole that would take minutes to read.
    file.seek(SeekFrom::Start(1 << 38)).unwrap();
    file.write_all(b"\n7 17 3 0aff\n8 17").unwrap();
    let begun = Instant::now();
    assert_eq!(place.open(17).unwrap().last(), 7);
    assert!(begun.elapsed().as_secs() < 30);
}

#[test]
fn a_line_longer_than_one_read_is_found_whole() {
    let payload = vec![0xab; 1 << 20];
    let place = Place::with("");
    let mut output = place.open(1).unwrap();
    output.append(1, &payload).unwrap();
    drop(output);
    assert_eq!(place.open(1).unwrap().last(), 1);
    let mut output = place.open(1).unwrap();
    output.append(2, &payload).unwrap();
    drop(output);
    assert_eq!(place.open(1).unwrap().last(), 2);
}
