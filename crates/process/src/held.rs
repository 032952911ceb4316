//! Signals that come before anyone listens.

use crate::inherited;
use crate::signal::Signal;
use crate::sys::{self, SignalSet};

/// What a fault of the program itself sends. Blocked, it could not be told from a hang.
const FAULTS: [i32; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// Signals wait in the kernel until [`HeldSignals::release`]. Threads that are started meanwhile never get any.
#[derive(Debug)]
#[must_use = "nobody hears a signal until they are released"]
pub struct HeldSignals(());

/// Holds back all signals of the calling thread. To be called right after [`crate::guard::run_if_guard`]: the first process
/// of a container would lose them otherwise, for the kernel drops what such a process neither blocks nor listens to.
///
/// The child gets the mask that was there before.
pub fn hold_signals() -> HeldSignals {
    // Remembered first.
    inherited::found();
    sys::block(FAULTS.into_iter().fold(SignalSet::ALL, SignalSet::without));
    HeldSignals(())
}

impl HeldSignals {
    /// Lets them come, on the same thread. Those that are listened to come whether or not the process was started with them
    /// blocked.
    pub fn release(self, heard: impl IntoIterator<Item = Signal>) {
        let found = inherited::found().blocked();
        let heard = heard.into_iter().map(Signal::number);
        sys::block(heard.fold(found, SignalSet::without));
    }
}
