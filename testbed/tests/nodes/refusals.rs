//! Where nodes cannot run.

use std::{os::unix::process::CommandExt, process::Command};

use testbed::{Binaries, Kind, skip_nodes};

use crate::SUITE;

fn up(change: impl FnOnce(&mut Command)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("testbed");
    std::fs::copy(env!("CARGO_BIN_EXE_testbed"), &program).unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), all).unwrap();
    let mut command = Command::new(program);
    command
        .args(["up", "--nodes", "2", "--name", "refused"])
        .env("TMPDIR", folder.path())
        .current_dir(folder.path());
    change(&mut command);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn who_is_not_root_is_told_so_before_anything_starts() {
    if skip_nodes(SUITE) {
        return;
    }
    // The cache is in a home that an ordinary user cannot enter: it is given one where all is there.
    let cache = tempfile::tempdir().unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(cache.path(), all).unwrap();
    for kind in Kind::OF_A_CONTROL_PLANE.into_iter().chain(Kind::OF_NODES) {
        let path = Binaries::path(kind);
        let folder = cache
            .path()
            .join(path.parent().unwrap().file_name().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(kind.name()), "").unwrap();
    }
    let errors = up(|command| {
        command
            .env("SOLOIST_TESTBED_CACHE", cache.path())
            .uid(65532)
            .gid(65532);
    });
    assert!(errors.contains("nodes need root"), "{errors}");
}

#[test]
fn a_machine_without_runc_is_told_what_to_install() {
    if skip_nodes(SUITE) {
        return;
    }
    let programs = tempfile::tempdir().unwrap();
    for name in ["etcd", "setpriv", "go"] {
        std::fs::write(programs.path().join(name), "").unwrap();
    }
    let errors = up(|command| {
        command.env("PATH", programs.path());
    });
    assert!(errors.contains("apt-get install runc`"), "{errors}");
    assert!(errors.contains("apt-get install nftables`"), "{errors}");
}
