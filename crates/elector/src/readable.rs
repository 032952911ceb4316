//! Waiting for a file descriptor of ours to become readable.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that tokio watches.
pub(crate) type Readable = AsyncFd<OwnedFd>;

/// Has tokio watch `fd`.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<Readable> {
    // Its successor is `unsafe` because of types whose descriptor may change under tokio. An `OwnedFd` keeps
    // its descriptor open and the same until it is dropped, which is all that is asked for.
    #[allow(deprecated)]
    AsyncFd::with_interest(fd, Interest::READABLE)
}
