//! Parts that are ready, drain, fail and hang together.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::UnixDatagram;
use tokio::time::{Instant, timeout};

use super::*;
use crate::environment::Environment;

const LIMIT: Duration = Duration::from_secs(10);

/// A worker, and what it says.
struct Stage {
    worker: Worker,
    listener: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn new(watchdog: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut environment = Environment::read(|_| None, 1).unwrap();
        environment.watchdog = watchdog;
        environment.notify_socket = Some(path.into());
        Self {
            worker: Worker::new(environment),
            listener,
            _folder: folder,
        }
    }

    async fn hear(&self) -> String {
        let mut message = [0; 4096];
        let heard = timeout(LIMIT, self.listener.recv(&mut message)).await;
        let length = heard.expect("a notice in time").unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    async fn hear_until(&self, wanted: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last: &String| last != wanted) {
            heard.push(self.hear().await);
        }
        heard
    }

    fn run(&self, parts: Vec<Part>) -> tokio::task::JoinHandle<String> {
        let worker = self.worker.clone();
        tokio::spawn(async move { format!("{:?}", worker.run(parts).await) })
    }
}

fn code(code: ExitCode) -> String {
    format!("{code:?}")
}

fn waits(name: &str) -> Part {
    Part::task(name, async |task| {
        task.shutdown().begun().await;
        Ok::<_, Failure>(())
    })
}

#[tokio::test]
async fn a_child_is_ready_when_all_its_parts_are() {
    let stage = Stage::new(None);
    let (go, may) = tokio::sync::oneshot::channel::<()>();
    let slow = Part::task("slow", async |task| {
        may.await?;
        task.ready();
        task.status("at work");
        task.shutdown().begun().await;
        Ok::<_, Failure>(())
    });
    let ran = stage.run(vec![waits("quick"), slow.ready_when_told()]);
    let before = stage
        .hear_until("STATUS=quick: running, slow: running")
        .await;
    assert!(
        !before.iter().any(|said| said.contains("READY")),
        "{before:?}"
    );
    go.send(()).unwrap();
    stage.hear_until("READY=1").await;
    stage
        .hear_until("STATUS=quick: running, slow: at work")
        .await;
    stage.worker.process().begin();
    assert_eq!(ran.await.unwrap(), code(ExitCode::SUCCESS));
}

#[tokio::test]
async fn a_part_that_fails_ends_the_others_in_order() {
    let stage = Stage::new(None);
    let tidied = Arc::new(AtomicBool::new(false));
    let seen = tidied.clone();
    let other = Part::task("other", async move |task| {
        task.shutdown().begun().await;
        seen.store(true, Ordering::Relaxed);
        Ok::<_, Failure>(())
    });
    let fails = Part::task("fails", async |_| Err::<(), _>("the disk is full"));
    let ran = stage.run(vec![other, fails]);
    assert_eq!(ran.await.unwrap(), code(ExitCode::FAILURE));
    assert!(tidied.load(Ordering::Relaxed), "it was not let end");
    stage
        .hear_until("STATUS=failed: fails: the disk is full")
        .await;
}

#[tokio::test]
async fn a_part_that_panics_is_told_by_its_name_and_ends_the_others() {
    let stage = Stage::new(None);
    let panics = Part::task("panics", async |task| {
        assert!(task.shutdown().is_begun(), "too early");
        Ok::<_, Failure>(())
    });
    let ran = stage.run(vec![waits("other"), panics]);
    assert_eq!(ran.await.unwrap(), code(ExitCode::FAILURE));
    stage
        .hear_until("STATUS=failed: panics panicked: too early")
        .await;
}

#[tokio::test]
async fn a_part_that_ends_by_itself_leaves_the_others_at_work() {
    let stage = Stage::new(None);
    let once = Part::task("once", async |_| Ok::<_, Failure>(()));
    let ran = stage.run(vec![once, waits("other")]);
    stage.hear_until("STATUS=once: ended, other: running").await;
    assert!(!stage.worker.process().is_begun());
    stage.worker.process().begin();
    assert_eq!(ran.await.unwrap(), code(ExitCode::SUCCESS));
}

#[tokio::test]
async fn the_status_tells_what_still_drains() {
    let stage = Stage::new(None);
    let (end, may) = tokio::sync::oneshot::channel::<()>();
    let slow = Part::task("slow", async move |_| Ok::<_, Failure>(may.await?));
    let ran = stage.run(vec![slow, waits("quick")]);
    stage.hear_until("READY=1").await;
    stage.worker.process().begin();
    stage
        .hear_until("STATUS=slow: draining, quick: ended")
        .await;
    end.send(()).unwrap();
    assert_eq!(ran.await.unwrap(), code(ExitCode::SUCCESS));
}

#[tokio::test(start_paused = true)]
async fn parts_drain_side_by_side_and_one_that_is_cut_shows_in_the_exit_code() {
    let environment = Environment::read(|_| None, 1).unwrap();
    let worker = Worker::new(environment);
    let hangs = |name: &str| {
        Part::task(name, async |_| {
            std::future::pending::<Result<(), Failure>>().await
        })
    };
    worker.process().begin();
    let begun = Instant::now();
    let ended = worker.run([hangs("one"), hangs("two")]).await;
    assert_eq!(code(ended), code(ExitCode::FAILURE));
    assert_eq!(begun.elapsed(), worker.stream().budget());
}

#[tokio::test]
async fn the_heart_beats_while_no_part_is_stuck() {
    let limit = Duration::from_millis(60);
    let stage = Stage::new(Some(limit));
    let (stick, stuck) = tokio::sync::oneshot::channel::<()>();
    let (told, mut is_stuck) = tokio::sync::mpsc::channel(1);
    let part = Part::task("reader", async move |task| {
        task.wait_for(stuck).await;
        told.send(()).await?;
        std::future::pending::<Result<(), Failure>>().await
    });
    let ran = stage.run(vec![part]);
    // Idle for longer than the limit, and well.
    for _ in 0..6 {
        stage.hear_until("WATCHDOG=1").await;
    }
    stick.send(()).unwrap();
    is_stuck.recv().await.unwrap();
    let since = Instant::now();
    let mut last = since;
    let mut message = [0; 4096];
    while timeout(limit * 3, stage.listener.recv(&mut message))
        .await
        .is_ok()
    {
        last = Instant::now();
        assert!(last - since < LIMIT, "the heart of a stuck child beats on");
    }
    assert!(last - since < LIMIT);
    ran.abort();
}
