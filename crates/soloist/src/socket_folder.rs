//! A folder for one Unix socket, wherever a hardened Pod has room for one. Its name is random, and nobody but its owner can change
//! it. What a killed soloist left is cleared away by the next.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;
use soloist_elector::random;
use tracing::debug;

const FILE: &str = "socket";
/// A folder without a socket may be one that is just being made.
const YOUNG: Duration = Duration::from_secs(60);

/// It is removed without being opened, so also where no descriptor is left.
#[derive(Debug)]
pub(crate) struct SocketFolder(PathBuf);

impl SocketFolder {
    /// Only its owner can enter it.
    pub(crate) fn create(parent: &Path, kind: &str, detail: &str) -> io::Result<Self> {
        let prefix = prefix(kind)?;
        let folder = parent.join(format!("{prefix}{detail}{:016x}", random::bits64()?));
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }

    /// Whoever knows the socket's path may try to use it.
    pub(crate) fn open_to_all(&self) -> io::Result<()> {
        fs::set_permissions(&self.0, Permissions::from_mode(0o711))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join(FILE)
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.0);
    }
}

/// How the names of this kind begin. Folders may be shared with other machines, whose sockets look deserted from here: so they bear
/// the machine's name, as long as it runs.
pub(crate) fn prefix(kind: &str) -> io::Result<String> {
    let boot = boot().ok_or_else(|| io::Error::other("the boot has no id in /proc"))?;
    Ok(format!("{kind}-{boot}-"))
}

/// Read once: later there may be no descriptor left for it.
fn boot() -> Option<&'static str> {
    static BOOT: LazyLock<Option<String>> = LazyLock::new(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(boot.get(..8)?.to_owned())
    });
    BOOT.as_deref()
}

/// Where a socket may be, the best first.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute());
    let fixed = ["/run".into(), std::env::temp_dir(), "/dev/shm".into()];
    runtime.into_iter().chain(fixed)
}

/// Removes the sockets of this user's soloists that were killed. Blocks.
pub(crate) fn clear_leftovers(kinds: &[&str]) {
    let prefixes: Vec<String> = kinds.iter().filter_map(|kind| prefix(kind).ok()).collect();
    for folder in folders() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_ours = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let ours = entries.filter(|entry| is_ours(&entry.file_name().to_string_lossy()));
        ours.for_each(|entry| clear(&entry.path()));
    }
}

fn clear(folder: &Path) {
    let is_own = |meta: &fs::Metadata| meta.uid() == geteuid().as_raw();
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return;
    };
    if !meta.is_dir() || !is_own(&meta) {
        return;
    }
    let socket = folder.join(FILE);
    let left = match fs::symlink_metadata(&socket) {
        Ok(meta) => meta.file_type().is_socket() && is_deserted(&socket),
        Err(_) => {
            let age = |made: SystemTime| SystemTime::now().duration_since(made).ok();
            let age = meta.modified().ok().and_then(age);
            age.is_some_and(|age| age > YOUNG)
        }
    };
    if left {
        let _ = fs::remove_file(&socket);
        let _ = fs::remove_dir(folder);
        debug!(folder = %folder.display(), "the socket of a soloist that is gone is removed");
    }
}

/// Nobody has it open any more, of whatever type it was.
fn is_deserted(socket: &Path) -> bool {
    let connect = UnixDatagram::unbound().and_then(|probe| probe.connect(socket));
    connect.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const KIND: &str = "soloist-test";

    #[test]
    fn the_next_start_removes_what_a_killed_one_left_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let create = || SocketFolder::create(parent.path(), KIND, "").unwrap();
        let (heard, streams) = (create(), create());
        let _heard = UnixDatagram::bind(heard.socket()).unwrap();
        let _streams = UnixListener::bind(streams.socket()).unwrap();
        let (killed, killed_too) = (create(), create());
        drop(UnixDatagram::bind(killed.socket()).unwrap());
        drop(UnixListener::bind(killed_too.socket()).unwrap());
        let being_made = create();
        for entry in fs::read_dir(parent.path()).unwrap() {
            clear(&entry.unwrap().path());
        }
        assert!(!killed.0.exists() && !killed_too.0.exists());
        assert!(being_made.0.exists());
        assert!(heard.socket().exists() && streams.socket().exists());
    }
}
