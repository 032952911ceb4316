use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    (directory, path)
}

#[test]
fn what_was_written_is_known_after_a_restart() {
    let (_directory, path) = place();
    let production = Production {
        rate: 50,
        moment: SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456),
        base: 12,
    };
    let store = Store::open(&path).unwrap();
    assert_eq!((store.token(), store.acked()), (Token::new(0), 0));
    assert_eq!(store.production(), None);
    store.write_token(Token::new(9)).unwrap();
    store.write_production(production).unwrap();
    assert_eq!(store.ack(5).unwrap(), 5);
    assert_eq!(store.ack(3).unwrap(), 5);
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!((store.token(), store.acked()), (Token::new(9), 5));
    assert_eq!(store.production(), Some(production));
}

#[test]
fn a_store_in_use_is_refused_with_advice() {
    let (_directory, path) = place();
    let _first = Store::open(&path).unwrap();
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let (_directory, path) = place();
    let text = "Dear diary, ".repeat(2000);
    fs::write(&path, &text).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
    assert!(error.to_string().contains("move it away"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_damaged_store_is_refused() {
    let (_directory, path) = place();
    let store = Store::open(&path).unwrap();
    store.write_token(Token::new(3)).unwrap();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    bytes[9..4000].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
}

#[test]
fn a_store_in_no_directory_says_so() {
    let (directory, _) = place();
    let path = directory.path().join("nowhere/store");
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.contains("its directory must exist"), "{error}");
    assert!(error.contains("nowhere/store"), "{error}");
}

#[test]
fn a_store_that_cannot_be_written_says_so() {
    let (_directory, path) = place();
    drop(Store::open(&path).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    // Who may write everywhere (root) may also write here.
    if fs::OpenOptions::new().write(true).open(&path).is_err() {
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
    }
}
