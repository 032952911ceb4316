//! Who succeeds a holder whose processes are gone, and when.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use soloist_elector::core::election::{Claim, Purpose};
use soloist_elector::file::ProcessRef;
use soloist_elector::testing::{Fixture, held_by, in_time};
use soloist_elector::{Elector, LeaseStore, clock};

use crate::common::File;
use crate::common::election::{lead, name};
use crate::helper::{Helper, Task, as_user, slow};
use crate::skipped::skipped;
use crate::{chown, create};

const LEAD: Task = Task::Lead { guard: None };

/// A process that stands for a guard.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_was_killed_is_succeeded_at_once() {
    let fixture = File::new();
    let mut holder = Helper::start(&fixture, LEAD).wait_for("leading");
    let standby = standby(&fixture);
    let mut leadership = standby.leadership();
    let next = tokio::spawn(async move { (lead(&standby).await, standby) });
    in_time(leadership.wait_for(|l| l.leader == Some(name("helper"))))
        .await
        .unwrap();
    assert!(!next.is_finished());
    let killed = clock::now();
    holder.kill();
    let (term, _standby) = in_time(next).await.unwrap();
    let took = clock::now().since(killed);
    assert_eq!(term.claim(), Claim::HolderGone);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_died_before_we_looked_is_succeeded_at_once() {
    let fixture = File::new();
    Helper::start(&fixture, LEAD).wait_for("leading").kill();
    let standby = standby(&fixture);
    assert_eq!(lead(&standby).await.claim(), Claim::HolderGone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_guard_lives_is_not_gone() {
    let fixture = File::new();
    let mut guard = Sleeper::start();
    let task = Task::Lead {
        guard: Some(guard.pid()),
    };
    let mut holder = Helper::start(&fixture, task).wait_for("leading");
    let version = fixture.store().read().await.unwrap().version;
    let standby = standby(&fixture);
    let mut leadership = standby.leadership();
    let next = tokio::spawn(async move { (lead(&standby).await, standby) });
    in_time(leadership.wait_for(|l| l.leader == Some(name("helper"))))
        .await
        .unwrap();
    holder.kill();
    let found = fixture.store().read().await.unwrap();
    assert!(!found.holder_gone);
    assert_eq!(found.version, version, "naming processes is no change");
    assert!(!next.is_finished());
    guard.kill();
    let (term, _standby) = in_time(next).await.unwrap();
    assert_eq!(term.claim(), Claim::HolderGone);
}

#[tokio::test]
async fn a_guard_that_is_named_during_a_renewal_stays_named() {
    let fixture = File::new();
    let store = fixture.store();
    let mut last = create(&store).await;
    let mut guard = Sleeper::start();
    for write in 2..40 {
        store
            .set_processes(vec![ProcessRef::this().unwrap()])
            .await
            .unwrap();
        let record = held_by("a", 1, write);
        let renewal = store.write(&last, &record, Purpose::Renew);
        let members = vec![
            ProcessRef::this().unwrap(),
            ProcessRef::of(guard.pid()).unwrap(),
        ];
        let (renewed, named) = tokio::join!(renewal, store.set_processes(members));
        last = renewed.unwrap();
        named.unwrap();
        let named = fixture.json()["processes"]["members"].clone();
        assert_eq!(named.as_array().unwrap().len(), 2, "after write {write}");
    }
    guard.kill();
}

/// A process's start is shown as the reader's time namespace counts it.
#[tokio::test]
async fn a_living_holder_in_another_time_namespace_is_not_gone() {
    let fixture = File::new();
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--time", "--boottime", "100000", "--"]);
    let possible = Command::new("unshare")
        .args(["--time", "--boottime", "100000", "--", "true"])
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        skipped("this user may make no time namespace");
        return;
    }
    elsewhere.arg(Helper::program().get_program());
    let holder = Helper::start_by(elsewhere, &fixture, LEAD);
    let mut holder = holder.wait_for("leading");
    let found = fixture.store().read().await.unwrap();
    assert!(found.record.is_some() && !found.holder_gone);
    holder.kill();
}

/// As a user of its own: the limit counts all processes of a user.
#[tokio::test]
async fn a_lease_is_written_though_no_thread_can_be_made_any_more() {
    const USER: u32 = 64_123;
    let fixture = File::new();
    if !chown(fixture.0.path(), USER) {
        return;
    }
    let helper = Helper::start_by(as_user(USER), &fixture, Task::WriteWithoutThreads);
    helper.wait_for("wrote");
    assert_eq!(fixture.json()["holder"], "a");
}

fn standby(fixture: &File) -> Elector {
    Elector::builder(fixture.store())
        .identity(name("standby"))
        .timings(slow())
        .spawn()
        .unwrap()
}
