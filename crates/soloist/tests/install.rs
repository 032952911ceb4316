//! `soloist install`: the program brings itself to where others find it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");

fn install(path: &Path) -> Output {
    Command::new(SOLOIST)
        .arg("install")
        .arg(path)
        .output()
        .unwrap()
}

fn errors(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names_in(folder: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(folder).unwrap().map(name).collect()
}

#[test]
fn the_copy_is_the_whole_program_for_everyone_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("solo");
    let output = install(&path);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fs::read(&path).unwrap(), fs::read(SOLOIST).unwrap());
    assert_eq!(
        path.metadata().unwrap().permissions().mode() & 0o7777,
        0o755
    );
    assert!(
        Command::new(&path)
            .arg("--version")
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(names_in(folder.path()), ["solo"]);
}

#[test]
fn a_folder_gets_it_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = install(folder.path());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        folder.path().join("soloist").display().to_string()
    );
    assert_eq!(names_in(folder.path()), ["soloist"]);
}

#[test]
fn a_copy_that_is_running_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("soloist");
    assert!(install(&path).status.success());
    let lease = format!("file:{}", folder.path().join("lease").display());
    let mut running = Command::new(&path)
        .args(["run", "--store", &lease, "--", "sleep", "60"])
        .spawn()
        .unwrap();
    let replaced = install(&path);
    let still_ran = running.try_wait().unwrap().is_none();
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(still_ran);
    assert!(
        replaced.status.success(),
        "{}",
        String::from_utf8_lossy(&replaced.stderr)
    );
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let output = install(&missing.join("soloist"));
    assert_eq!(output.status.code(), Some(1));
    let errors = errors(&output);
    assert!(
        errors.contains(&format!("there is no folder {}", missing.display())),
        "{errors}"
    );
    assert!(errors.contains("emptyDir"), "{errors}");
}

#[test]
fn a_folder_that_may_not_be_written_is_named_with_the_user() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    fs::copy(SOLOIST, &program).unwrap();
    let path = folder.path().join("soloist");
    let output = Command::new(&program)
        .arg("install")
        .arg(&path)
        .uid(65532)
        .gid(65532)
        .output()
        .unwrap();
    let errors = errors(&output);
    assert!(
        errors.contains(&format!("cannot write {} as user 65532", path.display())),
        "{errors}"
    );
    assert!(!path.exists());
}
