//! Writers that are stopped or killed in the middle of what they do: nobody waits for them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use soloist_elector::core::election::Purpose;
use soloist_elector::core::ids::Version;
use soloist_elector::file::FileStore;
use soloist_elector::testing::{Fixture, held_by, in_time};
use soloist_elector::{LeaseStore, clock};

use crate::common::File;
use crate::common::election::{elector, lead, name};
use crate::create;
use crate::helper::{Helper, Task};
use crate::skipped::skipped;

/// All that a write does to the files, and where it looks at them.
const STEPS: [&str; 7] = [
    "openat",
    "getdents64",
    "newfstatat",
    "fsync",
    "mkdirat",
    "renameat",
    "unlinkat",
];

/// strace at a helper. Sends it a signal when one of its threads has made this system call so often.
struct Interrupter {
    strace: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Interrupter {
    /// `None`, said aloud, where it cannot be had.
    fn attach(helper: &Helper, call: &str, signal: &str, nth: u32) -> Option<Self> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-p", &helper.pid().to_string()]);
        strace.args(["-e", &format!("trace={call},write")]);
        strace.args(["-e", &format!("inject={call}:signal={signal}:when={nth}")]);
        strace.stdin(Stdio::null()).stderr(Stdio::piped());
        let Ok(mut strace) = strace.spawn() else {
            skipped("there is no strace");
            return None;
        };
        let lines = BufReader::new(strace.stderr.take().unwrap()).lines();
        let mut interrupter = Self { strace, lines };
        if interrupter.says(&["attached"]).is_none() {
            skipped("this user may trace nobody");
            return None;
        }
        Some(interrupter)
    }

    /// Waits for one of these words; `None` if there is nobody to trace any more.
    fn says(&mut self, words: &[&str]) -> Option<String> {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find(|line| words.iter().any(|word| line.contains(word)))
    }

    /// Whether it stopped the helper before that was done. Afterwards nobody traces it any more.
    fn has_stopped(mut self) -> bool {
        let said = self.says(&["--- stopped by SIGSTOP", "outcome: "]);
        said.is_some_and(|said| said.contains("stopped by"))
    }
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

fn names(folder: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

/// Once all of its threads are stopped: what continues a process continues those that are.
async fn thaw(helper: &Helper) {
    let threads = format!("/proc/{}/task", helper.pid());
    let is_stopped = |thread: &OsString| {
        let stat = fs::read_to_string(Path::new(&threads).join(thread).join("stat"));
        stat.unwrap().contains(") T ")
    };
    let all_stopped = async {
        while !names(Path::new(&threads)).iter().all(is_stopped) {
            clock::sleep(Duration::from_millis(1)).await.unwrap();
        }
    };
    in_time(all_stopped).await;
    let pid = Pid::from_raw(helper.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
}

/// The record, the folder of its head, and the head: nothing else is left.
fn assert_tidy(fixture: &File, step: Step) {
    let found = names(fixture.0.path());
    let wanted = ["lease", "lease.lock"].map(OsString::from);
    assert_eq!(found, BTreeSet::from(wanted), "{step:?}");
    let heads = names(&fixture.0.path().join("lease.lock"));
    assert_eq!(heads.len(), 1, "{step:?}: {heads:?}");
}

/// Reads and writes, as if nobody else were there.
async fn write_beside(store: &FileStore) -> (Version, Version) {
    let found = in_time(store.read()).await.unwrap();
    let record = held_by("b", 3, 1);
    let written = in_time(store.write(&found, &record, Purpose::Acquire)).await;
    (found.version, written.unwrap().version)
}

/// A write that is interrupted when it makes this system call for this time.
#[derive(Clone, Copy, Debug)]
struct Step {
    call: &'static str,
    nth: u32,
    /// There is a lease already.
    begun: bool,
}

impl Step {
    /// A writer with its interrupter; `None`, said aloud, where there can be none.
    async fn prepare(self, signal: &str) -> Option<(File, Version, Helper, Interrupter)> {
        let fixture = File::new();
        let before = match self.begun {
            true => create(&fixture.store()).await.version,
            false => Version::new(0),
        };
        let helper = Helper::start(&fixture, Task::WriteOnce).wait_for("ready");
        let attached = Interrupter::attach(&helper, self.call, signal, self.nth)?;
        Some((fixture, before, helper, attached))
    }
}

/// Tries every step of a write until there are no more; `try_step` says whether there was this one.
async fn at_every_step(try_step: impl AsyncFn(Step) -> Option<bool>) {
    for begun in [false, true] {
        let mut moves = 0;
        for call in STEPS {
            for nth in 1.. {
                match try_step(Step { call, nth, begun }).await {
                    Some(true) => moves += u32::from(call == "renameat"),
                    Some(false) => break,
                    None => return,
                }
            }
        }
        // The head's, and the draft's.
        assert!(moves >= 2, "only {moves} renames, begun {begun}");
    }
}

#[tokio::test]
async fn a_writer_that_is_stopped_at_any_step_keeps_nobody_out_and_wins_nothing_twice() {
    at_every_step(async |step| {
        let (fixture, _, mut helper, strace) = step.prepare("SIGSTOP").await?;
        let store = fixture.store();
        helper.go_on();
        if !strace.has_stopped() {
            return Some(false);
        }
        let (base, written) = write_beside(&store).await;
        assert!(written > base, "{step:?}");
        thaw(&helper).await;
        let outcome = helper.outcome().unwrap();
        let found = in_time(store.read()).await.unwrap();
        let found = (found.version, found.record.unwrap().holder);
        let (ours, theirs) = (Some(name("b")), Some(name("helper")));
        match outcome.parse().map(Version::new) {
            // Either it had landed before, and was seen, or it came after.
            Ok(version) if version < written => {
                assert_eq!((version, found), (base, (written, ours)), "{step:?}");
            }
            Ok(version) => {
                assert!(version > written, "{step:?}: both have won {version}");
                assert_eq!(found, (version, theirs), "{step:?}");
            }
            Err(_) => {
                assert_eq!(outcome, "lost the race", "{step:?}");
                assert_eq!(found, (written, ours), "{step:?}");
            }
        }
        assert_tidy(&fixture, step);
        Some(true)
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_is_killed_at_any_step_leaves_a_whole_lease_and_nothing_else() {
    at_every_step(async |step| {
        let (fixture, before, mut helper, _strace) = step.prepare("SIGKILL").await?;
        helper.go_on();
        if helper.outcome().is_some() {
            return Some(false);
        }
        let (base, written) = write_beside(&fixture.store()).await;
        assert!(before <= base && base < written, "{step:?}");
        let found = in_time(fixture.store().read()).await.unwrap();
        let expected = (written, Some(held_by("b", 3, 1)));
        assert_eq!((found.version, found.record), expected, "{step:?}");
        assert_tidy(&fixture, step);
        Some(true)
    })
    .await;
}

/// In the middle of a renewal: with a draft, with the head moved, with the record replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_stopped_in_a_write_is_succeeded_and_does_not_come_back() {
    for (call, nth) in [("fsync", 1), ("renameat", 1), ("renameat", 2)] {
        let fixture = File::new();
        let mut helper = Helper::start(&fixture, Task::LeadOnce).wait_for("ready");
        let standby = elector(fixture.store(), "standby");
        let attached = Interrupter::attach(&helper, call, "SIGSTOP", nth);
        let Some(strace) = attached else { return };
        helper.go_on();
        assert!(strace.has_stopped(), "{call} {nth}");
        let term = lead(&standby).await;
        let found = fixture.store().read().await.unwrap();
        assert_eq!(found.record.unwrap().holder, Some(name("standby")));
        thaw(&helper).await;
        assert_eq!(helper.outcome().as_deref(), Some("lost"), "{call} {nth}");
        let found = fixture.store().read().await.unwrap();
        assert_eq!(found.record.unwrap().holder, Some(name("standby")));
        assert!(term.is_valid(), "{call} {nth}");
    }
}

#[tokio::test]
async fn a_writer_killed_at_any_moment_leaves_a_whole_lease_and_a_growing_version() {
    let fixture = File::new();
    let store = fixture.store();
    let mut last = create(&store).await;
    for _ in 0..8 {
        Helper::start(&fixture, Task::Write)
            .wait_for("wrote")
            .kill();
        let found = in_time(store.read()).await.unwrap();
        assert!(found.version > last.version);
        assert!(found.record.is_some());
        last = found;
    }
    let written = store
        .write(&last, &held_by("b", 2, 1), Purpose::Acquire)
        .await;
    assert!(written.unwrap().version > last.version);
}
