//! What the tests' own process ignores (under nohup, in the background of a shell) all of its children would ignore.

use std::sync::Once;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Listens to what is ignored: whoever is executed then begins with the default.
///
/// # Panics
/// When signals cannot be listened to.
pub fn undo_ignored() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        let _runtime = runtime.enter();
        for kind in [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ] {
            if is_ignored(kind) {
                drop(signal(kind).expect("a signal that may be listened to"));
            }
        }
    });
}

fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.expect("Linux tells what is ignored").trim();
    let ignored = u64::from_str_radix(ignored, 16).expect("a number");
    ignored & 1 << (kind.as_raw_value() - 1) != 0
}
