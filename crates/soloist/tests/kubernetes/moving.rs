//! Beside a client-go of the time before Leases, and away from its locks: never two.

use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use testbed::{Binaries, Kind, Peer, PeerOptions, progress_on_stderr};

use crate::PATIENCE;
use crate::group::{Event, Group, LEASE, QUICK, USER, now};

/// As [`QUICK`] says.
const LEASE_DURATION: Duration = Duration::from_secs(4);

const VERBS: [&str; 5] = ["create", "get", "list", "watch", "update"];

/// An old lock, as everybody calls it.
#[derive(Clone, Copy)]
struct Lock {
    /// client-go: the lock, and both at once.
    theirs: [&'static str; 2],
    /// soloist.
    ours: [&'static str; 2],
    resource: &'static str,
}

const CONFIGMAP: Lock = Lock {
    theirs: ["configmaps", "configmapsleases"],
    ours: ["configmap", "configmap+lease"],
    resource: "configmaps",
};

const ENDPOINTS: Lock = Lock {
    theirs: ["endpoints", "endpointsleases"],
    ours: ["endpoints", "endpoints+lease"],
    resource: "endpoints",
};

/// Members of both kinds.
struct Mixed {
    group: Group,
    peer: PathBuf,
    members: Vec<(String, Member)>,
    started: usize,
}

enum Member {
    Soloist(Child),
    Peer(Box<Peer>),
}

impl Mixed {
    async fn on(lock: Lock, name: &str) -> Option<Self> {
        let group = Group::of_three(name, QUICK).await?;
        group.allow_also("", lock.resource, &VERBS).await;
        let peer = tokio::task::spawn_blocking(|| {
            Binaries::build(Kind::PeerLegacy, &mut progress_on_stderr())
        });
        Some(Self {
            group,
            peer: peer.await.unwrap().unwrap(),
            members: Vec::new(),
            started: 0,
        })
    }

    fn name(&mut self, kind: &str) -> String {
        self.started += 1;
        format!("{kind}-{}", self.started)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.group.plane().kubeconfig(USER, None).unwrap()
    }

    /// A soloist with this store.
    async fn soloist(&mut self, store: &str) -> String {
        let name = self.name("ours");
        let mut command = self.group.soloist(&name, store, &self.kubeconfig());
        let child = command.spawn().unwrap();
        self.members.push((name.clone(), Member::Soloist(child)));
        // It has read the lease.
        self.group.await_log_of(&name, "leader", PATIENCE).await;
        name
    }

    /// A client-go with this lock. It does not release it, as it would do so before its child has ended.
    async fn peer(&mut self, lock: &str) -> String {
        let name = self.name("theirs");
        let mut options = PeerOptions::new(self.kubeconfig(), self.group.namespace(), LEASE, &name);
        options.lock = lock.to_owned();
        [
            options.lease_duration,
            options.renew_deadline,
            options.retry_period,
        ] = [4000, 3000, 300].map(Duration::from_millis);
        options.release_on_cancel = false;
        options.command = self.group.childs_command(&name);
        options.log = Some(self.group.folder().join(format!("{name}.log")));
        let mut peer = Peer::start(&self.peer, &options).unwrap();
        // It leads itself, or has seen who does.
        peer.wait_for(PATIENCE, |_| true).await.unwrap();
        self.members
            .push((name.clone(), Member::Peer(Box::new(peer))));
        name
    }

    /// The next child's start after that moment.
    async fn start_after(&self, moment: Duration) -> Event {
        let next = |e: &Event| e.is_start() && e.at > moment;
        self.group.await_event(PATIENCE, next).await
    }

    async fn leads(&self, name: &str) {
        let starts = |e: &Event| e.is_start() && e.who == name;
        self.group.await_event(PATIENCE, starts).await;
    }

    /// Ends a member, in order or not, and waits for the next leader if it led.
    async fn end(&mut self, name: &str, kill: bool) {
        let place = self.members.iter().position(|(n, _)| n == name).unwrap();
        let (_, member) = self.members.remove(place);
        let led = self.leader().await == name;
        let asked = now();
        match member {
            Member::Soloist(mut child) => {
                let signal = if kill { "KILL" } else { "TERM" };
                self.group.signal_pid(child.id(), signal);
                let ended = tokio::task::spawn_blocking(move || child.wait());
                ended.await.unwrap().unwrap();
            }
            Member::Peer(mut peer) if kill => peer.kill(),
            Member::Peer(mut peer) => {
                peer.terminate().unwrap();
                peer.exited(PATIENCE).await.unwrap();
            }
        }
        if led {
            self.start_after(asked).await;
        }
        self.group.assert_never_two();
    }

    /// Whoever leads now still does after a lease, and its child was not started anew.
    async fn one_stays(&self) {
        let starts = || self.group.events().into_iter().filter(Event::is_start);
        let last = starts().next_back().expect("nobody has led");
        tokio::time::sleep(LEASE_DURATION).await;
        assert_eq!(starts().next_back().as_ref(), Some(&last));
        assert!(self.group.is_alive(last.pid));
        self.group.assert_never_two();
    }

    /// Whose child was started last.
    async fn leader(&self) -> String {
        let mut starts = self.group.events().into_iter().filter(Event::is_start);
        starts.next_back().expect("nobody has led").who
    }
}

impl Drop for Mixed {
    fn drop(&mut self) {
        for (_, member) in &mut self.members {
            if let Member::Soloist(child) = member {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// With the old lock alone, or with both.
async fn each_takes_over_from_the_other(lock: Lock, both: bool) {
    let Some(mut mixed) = Mixed::on(lock, "beside").await else {
        return;
    };
    let (theirs, ours) = (lock.theirs[usize::from(both)], lock.ours[usize::from(both)]);
    let first = mixed.peer(theirs).await;
    mixed.leads(&first).await;
    let second = mixed.soloist(ours).await;
    mixed.end(&first, true).await;
    mixed.leads(&second).await;
    let third = mixed.peer(theirs).await;
    mixed.end(&second, false).await;
    mixed.leads(&third).await;
    let fourth = mixed.soloist(ours).await;
    mixed.end(&third, false).await;
    mixed.leads(&fourth).await;
    let fifth = mixed.peer(theirs).await;
    mixed.end(&fourth, true).await;
    mixed.leads(&fifth).await;
}

/// The leader of each step is ended first, once in order and once killed.
async fn a_group_moves_to_the_lease_in_two_rollouts(lock: Lock) {
    let Some(mut mixed) = Mixed::on(lock, "moving").await else {
        return;
    };
    let [theirs, their_both] = lock.theirs;
    let [ours, our_both] = lock.ours;
    let old = [
        mixed.peer(theirs).await,
        mixed.soloist(ours).await,
        mixed.peer(theirs).await,
    ];
    mixed.leads(&old[0]).await;
    let both = [
        mixed.soloist(our_both).await,
        mixed.peer(their_both).await,
        mixed.soloist(our_both).await,
    ];
    for (nth, name) in old.iter().enumerate() {
        mixed.end(name, nth == 1).await;
    }
    assert!(both.contains(&mixed.leader().await));
    mixed.one_stays().await;
    let new = [
        mixed.soloist("kubernetes").await,
        mixed.peer("leases").await,
        mixed.soloist("kubernetes").await,
    ];
    for nth in 0..both.len() {
        let leader = mixed.leader().await;
        let name = match both.iter().find(|b| **b == leader) {
            Some(leader) => leader.clone(),
            None => mixed.any_of(&both),
        };
        mixed.end(&name, nth == 1).await;
    }
    assert!(new.contains(&mixed.leader().await));
    mixed.one_stays().await;
}

impl Mixed {
    /// One of these that is still there.
    fn any_of(&self, names: &[String]) -> String {
        let there = self.members.iter().map(|(name, _)| name);
        there
            .into_iter()
            .find(|name| names.contains(name))
            .unwrap()
            .clone()
    }
}

macro_rules! on_each_lock {
    ($($module:ident: $lock:expr),*) => { $(
        mod $module {
            #[tokio::test(flavor = "multi_thread")]
            async fn each_takes_over_from_the_other() {
                super::each_takes_over_from_the_other($lock, false).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn each_takes_over_from_the_other_with_the_lease_beside_it() {
                super::each_takes_over_from_the_other($lock, true).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_group_moves_to_the_lease_in_two_rollouts() {
                super::a_group_moves_to_the_lease_in_two_rollouts($lock).await;
            }
        }
    )* };
}

on_each_lock! { configmap: super::CONFIGMAP, endpoints: super::ENDPOINTS }
