//! The notify socket itself: a file where one can be made, else a name in the kernel (an abstract socket, as `@name`).
//!
//! A file is for programs that know no abstract sockets, and for those in another network namespace. Its folder's owner alone can
//! change it; the modes are the same whatever the umask is.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::path::Path;

use rustix::net::sockopt::set_socket_passcred;
use rustix::process::geteuid;
use soloist_elector::random;
use tokio::net::UnixDatagram;
use tracing::debug;

use crate::socket_folder::{SocketFolder, folders};

pub(crate) const PREFIX: &str = "soloist-notify";

/// A socket with an address.
pub(super) struct Bound {
    pub(super) socket: UnixDatagram,
    pub(super) address: OsString,
    // Removed with the socket.
    _folder: Option<SocketFolder>,
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
        let folder = SocketFolder::create(parent, PREFIX, "")?;
        folder.open_to_all()?;
        let path = folder.socket();
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

    fn new(
        socket: StdDatagram,
        address: OsString,
        folder: Option<SocketFolder>,
    ) -> io::Result<Self> {
        set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixDatagram::from_std(socket)?,
            address,
            _folder: folder,
        })
    }
}

fn is_open_to_all(folder: &Path) -> bool {
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0);
    folder.ancestors().all(is_open)
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
}
