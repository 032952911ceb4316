use tokio::sync::OnceCell;

use crate::{ControlPlane, skip};

/// One control plane for all tests of a test binary, or `None` where `suite` has to be [skipped](skip).
///
/// A static is never dropped: the processes are killed when the test process ends, and the folder is swept
/// up by the next control plane. Each test takes a [namespace](ControlPlane::namespace) of its own.
///
/// # Panics
///
/// When the control plane does not start.
pub async fn shared(suite: &str) -> Option<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    if skip(suite) {
        return None;
    }
    let start = || async {
        ControlPlane::start()
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    };
    Some(PLANE.get_or_init(start).await)
}
