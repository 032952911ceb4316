//! A lease that is a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::patient::doctor;

#[test]
fn a_folder_that_others_can_write_to_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let store = format!("file:{}/lease", folder.path().display());
    let found = doctor(&["--store", &store]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says("× its folder can be used", &["--store file:PATH"]);
}

#[test]
fn a_file_that_is_no_lease_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lease");
    fs::write(&path, "my diary").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let found = doctor(&["--store", &format!("file:{}", path.display())]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says("× it can be read", &["--store file:PATH"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "my diary");
}

#[test]
fn a_good_folder_is_good_and_so_is_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}/lease", folder.path().display());
    let found = doctor(&["--store", &store]);
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says("✓ it can be read", &["nobody has it"]);
    found.assert_says("✓ its kernel is new enough", &[]);
    found.assert_says("✓ processes can be seen", &[]);
}
