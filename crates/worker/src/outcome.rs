//! Whether work that has ended was done.

/// How a stream, a server or anything else has ended, for [`Worker::finish`](crate::Worker::finish).
pub trait Outcome {
    /// Whether all that was begun is done. If not, the time ran out, and the exit code says so.
    fn is_complete(&self) -> bool;
}

impl Outcome for () {
    fn is_complete(&self) -> bool {
        true
    }
}

#[cfg(feature = "source")]
impl Outcome for crate::delivery::Summary {
    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}

#[cfg(feature = "server")]
impl Outcome for crate::server::Drained {
    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}
