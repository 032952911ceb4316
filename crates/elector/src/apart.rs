//! Reading files apart from the runtime's threads, also where no thread can be made any more (`ulimit -u`, the pids limit of a container): the
//! runtime's own way of it panics there.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

/// Does it on a thread of its own; where there can be none, here and now.
///
/// # Errors
/// When the work has panicked.
pub(crate) async fn apart<T, F>(work: F) -> Result<T, RecvError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let runtime = Handle::current();
    // A thread that cannot be made takes with it what it was given.
    let work = Arc::new(Mutex::new(Some((work, answer))));
    let taken = Arc::clone(&work);
    let thread = thread::Builder::new().name("lease-files".into());
    let spawned = thread.spawn(move || {
        let _runtime = runtime.enter();
        do_once(&taken);
    });
    if spawned.is_err() {
        do_once(&work);
    }
    drop(work);
    answered.await
}

type Work<T, F> = Mutex<Option<(F, oneshot::Sender<T>)>>;

fn do_once<T, F: FnOnce() -> T>(work: &Work<T, F>) {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((work, answer)) = work {
        let _ = answer.send(work());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_done_in_the_runtime_and_a_panic_is_told() {
        let done = apart(|| (Handle::try_current().is_ok(), thread::current().id())).await;
        let (in_runtime, thread) = done.unwrap();
        assert!(in_runtime);
        assert_ne!(thread, thread::current().id());
        let panicked = apart(|| -> () { panic!("as the test wants it") });
        assert!(panicked.await.is_err());
    }
}
