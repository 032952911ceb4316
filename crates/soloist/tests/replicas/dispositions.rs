//! What the tests' own process ignores (under nohup, in the background of a shell) all of its children would ignore.

use std::sync::Once;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Listens to what is ignored: whoever is executed then begins with the default.
pub(crate) fn undo_ignored() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let _runtime = runtime.enter();
        for kind in [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ] {
            if is_ignored(kind) {
                drop(signal(kind).unwrap());
            }
        }
    });
}

fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & 1 << (kind.as_raw_value() - 1) != 0
}
