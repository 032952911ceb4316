//! `soloist install`: this very program, copied to where a Pod's other containers find it. An image with nothing else in it has no cp.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::Builder;

/// For everyone to run: the other container has another user.
const MODE: u32 = 0o755;

/// Puts the program at `path`, or into the folder that is there. Who looks sees all of it or what was there before.
pub(crate) fn install(path: &Path) -> anyhow::Result<PathBuf> {
    let target = match path.is_dir() {
        true => path.join("soloist"),
        false => path.to_owned(),
    };
    let folder = match target.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => bail!("{} cannot be a file", path.display()),
    };
    if !folder.is_dir() {
        bail!(
            "there is no folder {}: mount a volume there, such as an emptyDir, or make it",
            folder.display()
        );
    }
    let failed = || {
        format!(
            "cannot write {} as user {}",
            target.display(),
            rustix::process::getuid().as_raw()
        )
    };
    // Not by its path, behind which an update may have put another one.
    let mut program = File::open("/proc/self/exe").context("cannot read this program")?;
    let mut copy = Builder::new()
        .prefix(".soloist-")
        .permissions(Permissions::from_mode(0o700))
        .tempfile_in(folder)
        .with_context(failed)?;
    io::copy(&mut program, copy.as_file_mut()).with_context(failed)?;
    copy.as_file()
        .set_permissions(Permissions::from_mode(MODE))
        .with_context(failed)?;
    copy.as_file().sync_all().with_context(failed)?;
    copy.persist(&target)
        .map_err(|error| error.error)
        .with_context(failed)?;
    Ok(target)
}
