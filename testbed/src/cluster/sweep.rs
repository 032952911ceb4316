//! What is left of a cluster whose owner was killed is ended at once by a process that waits for just that; and by the next owner, should that
//! process be killed too.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{Error, plane::folder::LOCK};

const SCRIPT: &str = include_str!("sweep.sh");

/// What the names of all cgroups of the cluster in this folder begin with.
pub(crate) fn cgroup_prefix(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("soloist-testbed-{name}-")
}

/// Sweeps what belongs to this folder, but not the folder itself.
pub(crate) fn now(folder: &Path) {
    let mut sweep = Command::new("sh");
    sweep
        .args(["-c", SCRIPT, "sweep", ""])
        .arg(cgroup_prefix(folder));
    let _ = sweep
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// A process that sweeps, the folder included, once its owner no longer holds the lock in it.
#[derive(Debug)]
pub(crate) struct Sweeper(Child);

impl Sweeper {
    pub(crate) fn start(folder: &Path) -> Result<Self, Error> {
        let mut wait = Command::new("flock");
        wait.arg(folder.join(LOCK))
            .args(["sh", "-c", SCRIPT, "sweep"]);
        wait.arg(folder).arg(cgroup_prefix(folder)).current_dir("/");
        wait.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Not what ends the owner's process group or terminal.
        wait.process_group(0);
        let child = wait.spawn().map_err(|source| Error::Spawn {
            program: "flock (util-linux)".to_owned(),
            source,
        })?;
        Ok(Self(child))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
