//! The notify socket itself: a file where one can be made, else a name in the kernel (an abstract socket, as `@name`).
//!
//! A file is for programs that know no abstract sockets, and for those in another network namespace. Its folder's name is
//! random and its owner alone can change it; the modes are the same whatever the umask is. What a killed soloist left is
//! cleared away by the next.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rustix::net::sockopt::set_socket_passcred;
use rustix::process::geteuid;
use soloist_elector::random;
use tokio::net::UnixDatagram;
use tracing::debug;

const PREFIX: &str = "soloist-notify";
const FILE: &str = "socket";
/// A folder without a socket may be one that is just being made.
const YOUNG: Duration = Duration::from_secs(60);

/// A socket with an address.
pub(super) struct Bound {
    pub(super) socket: UnixDatagram,
    pub(super) address: OsString,
    // Removed with the socket.
    _folder: Option<Folder>,
}

/// A folder for one socket. It is removed without being opened, so also where no descriptor is left.
struct Folder(PathBuf);

impl Folder {
    fn create(parent: &Path) -> io::Result<Self> {
        let boot = boot().ok_or_else(|| io::Error::other("the boot has no id in /proc"))?;
        let name = format!("{}{:016x}", prefix(boot), random::bits64()?);
        let folder = parent.join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join(FILE));
        let _ = fs::remove_dir(&self.0);
    }
}

impl Bound {
    pub(super) fn open() -> io::Result<Self> {
        for folder in folders() {
            match Self::in_folder(&folder) {
                Ok(bound) => return Ok(bound),
                Err(error) => debug!(folder = %folder.display(), %error, "no notify socket here"),
            }
        }
        Self::without_file()
    }

    fn in_folder(parent: &Path) -> io::Result<Self> {
        if geteuid().is_root() && !is_open_to_all(parent) {
            return Err(io::Error::other(
                "a child that becomes another user could not enter it",
            ));
        }
        let folder = Folder::create(parent)?;
        fs::set_permissions(&folder.0, Permissions::from_mode(0o711))?;
        let path = folder.0.join(FILE);
        let socket = StdDatagram::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        Self::new(socket, path.into(), Some(folder))
    }

    fn without_file() -> io::Result<Self> {
        let name = format!("{PREFIX}-{:032x}", random::bits128()?);
        let address = SocketAddr::from_abstract_name(&name)?;
        let socket = StdDatagram::bind_addr(&address)?;
        Self::new(socket, format!("@{name}").into(), None)
    }

    fn new(socket: StdDatagram, address: OsString, folder: Option<Folder>) -> io::Result<Self> {
        set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixDatagram::from_std(socket)?,
            address,
            _folder: folder,
        })
    }
}

/// Where a socket may be, the best first.
fn folders() -> impl Iterator<Item = PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute());
    let fixed = ["/run".into(), std::env::temp_dir(), "/dev/shm".into()];
    runtime.into_iter().chain(fixed)
}

fn is_open_to_all(folder: &Path) -> bool {
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0);
    folder.ancestors().all(is_open)
}

/// Folders may be shared with other machines, whose sockets look deserted from here: so they bear the machine's name, as long as
/// it runs.
fn prefix(boot: &str) -> String {
    format!("{PREFIX}-{boot}-")
}

/// Read once: later there may be no descriptor left for it.
fn boot() -> Option<&'static str> {
    static BOOT: LazyLock<Option<String>> = LazyLock::new(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(boot.get(..8)?.to_owned())
    });
    BOOT.as_deref()
}

/// Removes the sockets of this user's soloists that were killed. Blocks.
pub(crate) fn clear_leftovers() {
    let Some(prefix) = boot().map(prefix) else {
        return;
    };
    for folder in folders() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
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
        debug!(folder = %folder.display(), "the notify socket of a soloist that is gone is removed");
    }
}

/// Nobody has it open any more.
fn is_deserted(socket: &Path) -> bool {
    let connect = StdDatagram::unbound().and_then(|probe| probe.connect(socket));
    connect.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn say(bound: &Bound, message: &[u8]) {
        use std::os::unix::ffi::OsStrExt;
        let child = StdDatagram::unbound().unwrap();
        match bound.address.as_bytes() {
            [b'@', name @ ..] => {
                let address = SocketAddr::from_abstract_name(name).unwrap();
                child.send_to_addr(message, &address).unwrap();
            }
            path => {
                child.send_to(message, OsStr::from_bytes(path)).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_message_arrives_where_the_variable_says() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let sockets = [Bound::in_folder(folder.path()), Bound::without_file()];
        for bound in sockets.map(Result::unwrap) {
            say(&bound, b"READY=1");
            let mut buffer = [0; 16];
            let read = bound.socket.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..read], b"READY=1");
        }
    }

    #[tokio::test]
    async fn the_next_start_removes_what_a_killed_one_left_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let lives = Bound::in_folder(folder.path()).unwrap();
        let killed = Bound::in_folder(folder.path()).unwrap();
        let left = PathBuf::from(&killed.address);
        // As after SIGKILL: the socket is closed, and its file stays.
        let Bound {
            socket, _folder, ..
        } = killed;
        std::mem::forget(_folder);
        drop(socket);
        let being_made = folder.path().join(format!("{PREFIX}-young"));
        fs::create_dir(&being_made).unwrap();
        for entry in fs::read_dir(folder.path()).unwrap() {
            clear(&entry.unwrap().path());
        }
        assert!(!left.parent().unwrap().exists());
        assert!(being_made.exists());
        say(&lives, b"x");
    }
}
