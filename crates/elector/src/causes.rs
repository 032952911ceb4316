//! What lies behind an error.

use std::error::Error;
use std::io;

/// The first cause of this type, the error itself among them.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        // An I/O error's own cause is not what it wraps, but the cause of that.
        if let Some(inner) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            && let Some(found) = find::<E>(inner)
        {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
