//! systemd's notify protocol: the child says that it is ready, alive, about to stop, or how it is.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::net::UnixDatagram;

/// What a child may say. What else it says is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Ready,
    Alive,
    Stopping,
    Status(String),
}

/// Where one child's notices arrive.
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
    // Removed with the socket.
    _folder: TempDir,
}

impl NotifySocket {
    pub(crate) fn open() -> io::Result<Self> {
        // Only its owner gets in.
        let folder = tempfile::Builder::new().prefix("soloist-").tempdir()?;
        let path = folder.path().join("notify");
        Ok(Self {
            socket: UnixDatagram::bind(&path)?,
            path,
            _folder: folder,
        })
    }

    /// For the child's `NOTIFY_SOCKET`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next message's notices.
    pub(crate) async fn next(&self) -> io::Result<Vec<Notice>> {
        let mut message = vec![0; 4096];
        let read = self.socket.recv(&mut message).await?;
        Ok(parse(&String::from_utf8_lossy(&message[..read])))
    }
}

fn parse(message: &str) -> Vec<Notice> {
    let notice = |line: &str| match line.split_once('=')? {
        ("READY", "1") => Some(Notice::Ready),
        ("WATCHDOG", "1") => Some(Notice::Alive),
        ("STOPPING", "1") => Some(Notice::Stopping),
        ("STATUS", status) => Some(Notice::Status(status.to_owned())),
        _ => None,
    };
    message.lines().filter_map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_passed_over() {
        let message = "READY=1\nSTATUS=at 12 % = fine\nMAINPID=7\nWATCHDOG=trigger\nnonsense\nSTOPPING=1\nWATCHDOG=1";
        let status = Notice::Status("at 12 % = fine".into());
        let expected = [Notice::Ready, status, Notice::Stopping, Notice::Alive];
        assert_eq!(parse(message), expected);
    }

    #[tokio::test]
    async fn a_message_arrives_where_the_variable_says() {
        let socket = NotifySocket::open().unwrap();
        let child = std::os::unix::net::UnixDatagram::unbound().unwrap();
        child.send_to(b"READY=1", socket.path()).unwrap();
        assert_eq!(socket.next().await.unwrap(), [Notice::Ready]);
    }
}
