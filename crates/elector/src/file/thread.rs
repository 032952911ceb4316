//! The store's own thread: disks block, and a thread that is made when it is needed may be one too many by then
//! (`ulimit -u`, the pids limit of a container).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Nobody waits for so many: each is given up long before.
const MOST_WAITING: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Runs one job after the other. Ends when it is dropped and has done what it was given.
#[derive(Debug)]
pub(super) struct StoreThread {
    jobs: SyncSender<Job>,
}

impl StoreThread {
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(MOST_WAITING);
        thread::Builder::new()
            .name("lease-file".into())
            .spawn(move || {
                for job in waiting {
                    // Its owner learns of a panic by hearing nothing; the next one's job is done all the same.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            })?;
        Ok(Self { jobs })
    }

    /// Tells whether there was room for it.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.jobs.try_send(Box::new(job)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_that_panics_does_not_keep_the_next_one_from_being_done() {
        let thread = StoreThread::start().unwrap();
        assert!(thread.run(|| panic!("as the test wants it")));
        let (done, wait) = channel();
        assert!(thread.run(move || done.send(()).unwrap()));
        wait.recv().unwrap();
    }

    #[test]
    fn jobs_do_not_pile_up_behind_one_that_hangs() {
        let thread = StoreThread::start().unwrap();
        let (let_go, hang) = channel::<()>();
        assert!(thread.run(move || {
            let _ = hang.recv();
        }));
        let taken = (0..MOST_WAITING + 2).filter(|_| thread.run(|| {})).count();
        assert!(taken <= MOST_WAITING + 1, "{taken}");
        drop(let_go);
    }
}
