//! soloist without privileges.

mod common;

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use common::*;

#[tokio::test]
async fn it_works_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: all other tests have already run as an ordinary user");
        return;
    }
    let mut stage = Stage::new();
    let everyone = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(stage.dir.path(), everyone(0o755)).unwrap();
    std::fs::set_permissions(stage.report_path(), everyone(0o777)).unwrap();
    // The build directory need not be open to everyone.
    let helper = stage.dir.path().join("helper");
    std::fs::copy(HELPER, &helper).unwrap();
    let soloist = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&helper)
        .args(["soloist", "600000", "daemon"])
        .env("REPORT", stage.report_path())
        .spawn();
    let soloist = Soloist(soloist.unwrap());
    let guard = stage.hear_process("guard").await;
    let daemon = stage.hear_process("daemon").await;
    let child = stage.hear_process("ready").await;
    soloist.signal(Signal::KILL);
    child.gone().await;
    daemon.gone().await;
    guard.gone().await;
}
