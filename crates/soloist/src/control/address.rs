//! Where the control socket is: a file that nobody else can open where one can be made, else a name in the kernel.
//!
//! Nobody has to say where: the kernel lists the sockets of a network namespace, and the name tells the boot and the mount
//! namespace. A command in the same container (`kubectl exec`, a hook) is in the same two.

use std::fs::{self, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::path::{Path, PathBuf};

use soloist_elector::random;
use tokio::net::UnixListener;
use tracing::debug;

use crate::socket_folder::{SocketFolder, folders, prefix};

pub(crate) const PREFIX: &str = "soloist-control";

pub(super) fn bind() -> io::Result<(UnixListener, Option<SocketFolder>)> {
    let here = mount_namespace()?;
    for folder in folders() {
        match in_folder(&folder, &here) {
            Ok((socket, folder)) => return Ok((listening(socket)?, Some(folder))),
            Err(error) => debug!(folder = %folder.display(), %error, "no control socket here"),
        }
    }
    let name = format!("{}{here}{:016x}", prefix(PREFIX)?, random::bits64()?);
    let socket = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    Ok((listening(socket)?, None))
}

fn in_folder(parent: &Path, here: &str) -> io::Result<(StdListener, SocketFolder)> {
    let folder = SocketFolder::create(parent, PREFIX, here)?;
    let path = folder.socket();
    let socket = StdListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok((socket, folder))
}

fn listening(socket: StdListener) -> io::Result<UnixListener> {
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

/// Its number, as a part of the names here.
fn mount_namespace() -> io::Result<String> {
    let link = fs::read_link("/proc/self/ns/mnt")?;
    let text = link.to_string_lossy();
    let number = text.trim_start_matches("mnt:[").trim_end_matches(']');
    Ok(format!("{number}-"))
}

/// The control sockets of our mount namespace: paths, or after a NUL the names of abstract ones.
pub(super) fn find() -> io::Result<Vec<PathBuf>> {
    let beginning = format!("{}{}", prefix(PREFIX)?, mount_namespace()?);
    let table = fs::read_to_string("/proc/net/unix")?;
    let address = |name: &str| match name.strip_prefix('@') {
        Some(name) => PathBuf::from(format!("\0{name}")),
        None => PathBuf::from(name),
    };
    let found = names(&table, &beginning);
    Ok(found.into_iter().map(address).collect())
}

/// Each once: an accepted connection has the name of the socket that it was accepted on.
fn names<'a>(table: &'a str, beginning: &str) -> Vec<&'a str> {
    let name = |line: &'a str| line.split_ascii_whitespace().nth(7);
    let is_ours = |name: &&str| {
        let file = name
            .strip_suffix("/socket")
            .and_then(|path| path.rsplit('/').next());
        let file = file.or_else(|| name.strip_prefix('@'));
        file.is_some_and(|file| file.starts_with(beginning))
    };
    let mut names: Vec<&str> = table.lines().filter_map(name).filter(is_ours).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_has_the_sockets_of_this_boot_and_mount_namespace() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 21 /run/soloist-control-0af3-40265-aa/socket
0000000000000000: 00000003 00000000 00000000 0001 03 22 /run/soloist-control-0af3-40265-aa/socket
0000000000000000: 00000002 00000000 00010000 0001 01 23 @soloist-control-0af3-40265-bb
0000000000000000: 00000002 00000000 00010000 0001 01 24 /run/soloist-control-0af3-40266-cc/socket
0000000000000000: 00000002 00000000 00010000 0001 01 25 /run/soloist-notify-0af3-dd/socket
0000000000000000: 00000002 00000000 00010000 0001 01 26 /run/dbus/socket
0000000000000000: 00000003 00000000 00000000 0001 03 27
";
        let found = names(table, "soloist-control-0af3-40265-");
        assert_eq!(
            found,
            [
                "/run/soloist-control-0af3-40265-aa/socket",
                "@soloist-control-0af3-40265-bb"
            ]
        );
    }

    #[tokio::test]
    async fn a_socket_is_found_where_it_was_bound_and_only_its_owner_can_open_it() {
        let (listener, folder) = bind().unwrap();
        let mine = listener.local_addr().unwrap();
        let path = mine.as_pathname().map(Path::to_owned);
        if let (Some(path), Some(_folder)) = (path, folder) {
            assert!(find().unwrap().contains(&path));
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let above = fs::metadata(path.parent().unwrap()).unwrap();
            assert_eq!(above.permissions().mode() & 0o777, 0o700);
        }
    }
}
