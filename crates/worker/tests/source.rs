//! A queue that is consumed by the worker's order, whatever the transport.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use soloist_worker::source::{Drain, End, Intake, Source, SourceError};
use soloist_worker::{Part, Shutdown, Worker};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(20);

/// What a test puts in, and what has become of it.
struct Queue {
    messages: tokio::sync::Mutex<mpsc::UnboundedReceiver<u64>>,
    /// A message is handled for as long as there is no permit.
    may_handle: Semaphore,
    log: Mutex<Vec<String>>,
    fails_at: Option<u64>,
    panics_at: Option<u64>,
}

impl Queue {
    fn new() -> (mpsc::UnboundedSender<u64>, Self) {
        let (sender, messages) = mpsc::unbounded_channel();
        let queue = Self {
            messages: messages.into(),
            may_handle: Semaphore::new(0),
            log: Mutex::default(),
            fails_at: None,
            panics_at: None,
        };
        (sender, queue)
    }

    fn note(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
    }
}

impl Source for &Queue {
    type Message = u64;
    type Receipt = u64;
    type Error = String;

    async fn next(&self) -> Result<Option<u64>, String> {
        Ok(self.messages.lock().await.recv().await)
    }

    async fn handle(&self, message: u64) -> Result<u64, String> {
        self.may_handle.acquire().await.unwrap().forget();
        assert_ne!(Some(message), self.panics_at, "the handler broke");
        match Some(message) == self.fails_at {
            true => Err("the disk is full".to_owned()),
            false => Ok(message),
        }
    }

    async fn ack(&self, receipts: &[u64]) -> Result<(), String> {
        self.note(format!("acknowledged {receipts:?}"));
        Ok(())
    }

    async fn drain(&self) -> Result<Drain, String> {
        self.note("told to end");
        Ok(Drain::StopReading)
    }
}

#[tokio::test]
async fn a_shutdown_tells_the_queue_finishes_what_is_in_hand_and_acknowledges_it() {
    let (sender, queue) = Queue::new();
    let shutdown = Shutdown::new(LIMIT);
    let intake = Intake::new(&queue).concurrency(NonZeroUsize::new(2).unwrap());
    let progress = intake.progress();
    for message in 1..=5 {
        sender.send(message).unwrap();
    }
    let stop = async {
        while progress.received() < 2 {
            tokio::task::yield_now().await;
        }
        shutdown.begin();
        while queue.log.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        queue.may_handle.add_permits(5);
    };
    let ran = async { tokio::join!(intake.run(&shutdown), stop) };
    let (ended, ()) = timeout(LIMIT, ran).await.unwrap();
    let summary = ended.unwrap();
    assert!(summary.is_complete());
    assert_eq!(summary.end, End::Drained);
    assert_eq!((summary.received, summary.acknowledged), (2, 2));
    let log = queue.log.lock().unwrap();
    assert_eq!(log[0], "told to end");
    assert!(log.last().unwrap().contains("2]"), "{log:?}");
}

#[tokio::test]
async fn the_end_of_the_queue_is_the_end() {
    let (sender, queue) = Queue::new();
    queue.may_handle.add_permits(5);
    sender.send(1).unwrap();
    drop(sender);
    let ended = Intake::new(&queue).run(&Shutdown::new(LIMIT)).await;
    assert_eq!(ended.unwrap().end, End::Finished);
    assert_eq!(*queue.log.lock().unwrap(), ["acknowledged [1]"]);
}

#[tokio::test]
async fn an_error_and_a_panic_are_told_and_what_came_before_is_acknowledged() {
    for is_panic in [false, true] {
        let (sender, mut queue) = Queue::new();
        match is_panic {
            true => queue.panics_at = Some(2),
            false => queue.fails_at = Some(2),
        }
        queue.may_handle.add_permits(5);
        for message in 1..=3 {
            sender.send(message).unwrap();
        }
        let ended = Intake::new(&queue).run(&Shutdown::new(LIMIT)).await;
        match ended.unwrap_err() {
            SourceError::Panicked { message, .. } => {
                assert!(
                    is_panic && message.contains("the handler broke"),
                    "{message}"
                );
            }
            error => assert_eq!(error.to_string(), "handle failed: the disk is full"),
        }
        assert_eq!(*queue.log.lock().unwrap(), ["acknowledged [1]"]);
    }
}

/// Always has a message, and handles it at once.
#[derive(Default)]
struct Flood(AtomicU64);

impl Source for Flood {
    type Message = u64;
    type Receipt = u64;
    type Error = String;

    async fn next(&self) -> Result<Option<u64>, String> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            // Long after everything else should have had its turn.
            2_000_000 => Err("nothing else ran".to_owned()),
            number => Ok(Some(number)),
        }
    }

    async fn handle(&self, message: u64) -> Result<u64, String> {
        Ok(message)
    }

    async fn ack(&self, _: &[u64]) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test]
async fn a_stream_that_never_runs_dry_starves_neither_its_task_nor_its_thread() {
    let shutdown = Shutdown::new(LIMIT);
    let (turns, mut turn) = mpsc::unbounded_channel();
    let beside = tokio::spawn(async move {
        for number in 0..20 {
            tokio::task::yield_now().await;
            turns.send(number).unwrap();
        }
    });
    let same_task = async {
        while turn.recv().await.is_some() {}
        shutdown.begin();
    };
    // Wide enough that it never has to wait for an acknowledgement.
    let window = NonZeroUsize::new(4_000_000).unwrap();
    let intake = Intake::new(Flood::default()).window(window);
    let (ended, ()) = tokio::join!(intake.run(&shutdown), same_task);
    assert!(ended.unwrap().is_complete());
    beside.await.unwrap();
}

/// Breaks where `next` is called for the second time.
struct Broken<'a>(&'a Queue, AtomicU64);

impl Source for Broken<'_> {
    type Message = u64;
    type Receipt = u64;
    type Error = String;

    async fn next(&self) -> Result<Option<u64>, String> {
        assert_eq!(self.1.fetch_add(1, Ordering::Relaxed), 0, "next broke");
        Ok(Some(1))
    }

    async fn handle(&self, message: u64) -> Result<u64, String> {
        Ok(message)
    }

    async fn ack(&self, receipts: &[u64]) -> Result<(), String> {
        self.0.ack(receipts).await
    }
}

#[tokio::test]
async fn a_panic_in_next_is_told_and_what_came_before_is_acknowledged() {
    let (_sender, queue) = Queue::new();
    let intake = Intake::new(Broken(&queue, AtomicU64::new(0)));
    let ended = timeout(LIMIT, intake.run(&Shutdown::new(LIMIT))).await;
    match ended.unwrap().unwrap_err() {
        SourceError::Panicked { method, message } => {
            assert_eq!(method, "next");
            assert!(message.contains("next broke"), "{message}");
        }
        error => panic!("{error}"),
    }
    assert_eq!(*queue.log.lock().unwrap(), ["acknowledged [1]"]);
}

#[tokio::test]
async fn a_queue_is_a_part_of_a_child_and_ends_with_it_in_order() {
    let (sender, queue) = Queue::new();
    let queue: &'static Queue = Box::leak(Box::new(queue));
    let worker = Worker::from_env().unwrap();
    let intake = Intake::new(queue);
    let progress = intake.progress();
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run([Part::source("orders", intake)]).await }
    });
    sender.send(1).unwrap();
    let received = async {
        while progress.received() < 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, received).await.unwrap();
    worker.process().begin();
    queue.may_handle.add_permits(1);
    let code = timeout(LIMIT, running).await.expect("it ends").unwrap();
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
    let log = queue.log.lock().unwrap().clone();
    assert!(log.contains(&"told to end".to_owned()), "{log:?}");
    assert!(log.contains(&"acknowledged [1]".to_owned()), "{log:?}");
}
