//! What a run has hit: how many of each fault, terms, takeovers, kills.

use std::fmt;

use crate::gaps::Gaps;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $($(#[$doc])* $name),* }

        impl Counter {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// For people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

counters! {
    /// Schedules played.
    Schedules = "schedules",
    /// Steps checked.
    Steps = "steps, each checked",
    /// Virtual milliseconds.
    VirtualMillis = "virtual milliseconds",
    /// Elections won.
    Terms = "terms",
    /// First starts.
    ClaimFirstSight = "terms on a first sight of no record or an empty one",
    /// After a release.
    ClaimReleased = "terms after a release",
    /// After an expiry.
    ClaimExpired = "terms after an expiry",
    /// After waiting for a vanished record.
    ClaimWaitedOut = "terms after waiting out a deleted or emptied lease",
    /// Own lease again.
    ClaimOwn = "terms on a lease that was still one's own",
    /// The former container's lease.
    ClaimFormerSelf = "terms taken back from the same Pod's former container",
    /// The holder's processes were gone.
    ClaimHolderGone = "terms after a holder that was proven dead",
    /// Children started.
    Children = "children started",
    /// Children that became ready.
    ChildrenReady = "children that became ready",
    /// Trees that ended by themselves when asked.
    EndedInOrder = "trees that ended without a kill",
    /// SIGKILL by soloist.
    KillsBySoloist = "trees killed by soloist",
    /// SIGKILL by the guard.
    KillsByGuard = "trees killed by the guard",
    /// Processes that outlived their child.
    LeftoversKilled = "trees whose leftovers the guard killed after the child's end",
    /// Guards that did not answer.
    GuardsReplaced = "guards that did not answer, killed by soloist with their trees",
    /// Releases written.
    Releases = "releases",
    /// Leases lost.
    Losses = "leases lost",
    /// Two trees at once where no rule can help.
    ExcusedBothStopped = "overlaps for the token to catch: soloist and guard stopped or dead while the child ran",
    /// Two trees at once where no rule can help.
    ExcusedThaw = "overlaps for the token to catch: within one wake-up after a thaw",
    /// Two trees at once where no rule can help.
    ExcusedDeletion = "overlaps for the token to catch: lease deleted or edited, then led by one who never saw it",
    /// Two trees at once where no rule can help.
    ExcusedSetBack = "overlaps, store set back to a backup: led by one who never saw what was lost",
    /// Two trees at once where no rule can help.
    ExcusedPause = "overlaps for the token to catch: after a pause that the host's clock did not count",
    /// Two trees at once where no rule can help.
    ExcusedStall = "overlaps for the token to catch: wake-ups and kills took longer than the margins",
    /// Two trees at once, as the user has allowed.
    ExcusedGraceful = "overlaps that --on-loss graceful allows",
    /// A tree and client-go's work at once, through client-go's own doing.
    ExcusedClientGo = "overlaps with a client-go elector through its own doing",
    /// Elections that client-go won.
    ClientGoTerms = "terms of a client-go elector",
    /// client-go let go of the lease.
    ClientGoReleases = "releases by a client-go elector",
    /// client-go releases by what it last observed.
    ClientGoReleasedAnothers = "releases by a client-go elector of a lease that was another's by then",
    /// Calm conditions.
    ProbeHandover = "handovers in calm conditions, each with its bound",
    /// Calm conditions.
    ProbeCrash = "crashes of the leader in calm conditions, each with its bound",
    /// Calm conditions.
    ProbeStalledRequest = "swallowed requests in calm conditions, which may cost nothing",
    /// Calm conditions.
    ProbeHeir = "handovers to a named replica in calm conditions, living or not, each with its bound",
    /// Calm conditions.
    ProbePause = "pauses in calm conditions, in which nobody leads and whose end has a bound",
    /// Jobs.
    JobsDone = "jobs run to their end",
    /// A request that never arrived.
    RequestLost = "fault: request lost",
    /// A write that landed and whose answer did not come.
    AnswerLost = "fault: answer lost after the write landed",
    /// A write that arrived after its writer had given it up.
    LateWrite = "fault: write arrived after it was given up",
    /// The rate of a clock.
    ClockDrift = "fault: clock with a rate of its own",
    /// All replicas have one name.
    SharedIdentity = "fault: replicas that share one identity",
    /// All replicas on one machine.
    OneMachine = "schedules on one machine, where dead processes show",
    /// Reports of Pods.
    DeathsReported = "schedules with Pods, whose kubelets report the ends of containers",
    /// Row 1.
    DeathsToldLater = "reports that proved the death of a holder whose record was known",
    /// kubectl delete pod --force.
    PodDeleted = "fault: Pod of a living replica deleted by force",
    /// The node controller, the collector of garbage.
    PodFailed = "fault: phase of a living replica's Pod set to Failed",
    /// Another container of the same Pod.
    SidecarEnds = "fault: another container of the Pod ends",
    /// The runtime was restarted, and its shim died.
    RuntimeLosesTrack = "fault: runtime loses track of a container that runs, and reports an end",
    /// The kubelet is stopped, or is slow.
    KubeletMute = "fault: kubelet reports nothing for a while",
    /// A standby's, or a leader's.
    HookBegins = "fault: a preStop hook begins; SIGTERM follows it, or does not",
    /// Replicas with different timings.
    MixedTimings = "fault: replicas with different timings",
    /// Another elector.
    ClientGo = "fault: client-go elector on the same lease",
    /// Another elector.
    ClientGoDied = "fault: client-go elector died while leading",
    /// CrashLoopBackOff.
    CrashLoop = "fault: containers are restarted with the kubelet's back-off",
    /// A job.
    Once = "fault: the child is a job that ends by itself (--once)",
    /// Two may run.
    Graceful = "fault: a lost lease leaves the child its stop timeout (--on-loss graceful)",
    /// Exactly one request.
    StalledRequest = "fault: one request of the leader swallowed",
    /// Restored from a backup.
    StoreSetBack = "fault: store set back to a backup",
    /// kvm-clock.
    PauseHost = "fault: host paused, and its clock does not count it",
    /// Overload.
    Stall = "fault: wake-ups and kills take long",
    /// Slow disk.
    SlowExec = "fault: processes take seconds to start",
    /// Teardown of much memory.
    SlowKill = "fault: killed processes take long to go",
    /// Uninterruptible sleep.
    StuckKill = "fault: killed processes stuck in the kernel",
    /// Slow network.
    SlowLink = "fault: slow link",
    /// Lossy network.
    LossyLink = "fault: lossy link",
    /// Requests arrive, answers do not.
    Deaf = "fault: answers lost for a while",
    /// One replica cut off.
    CutLink = "fault: one replica cut off",
    /// Several cut off.
    CutMany = "fault: several replicas cut off",
    /// Nobody reaches the store.
    StoreDown = "fault: store down",
    /// No permission.
    Refused = "fault: permission taken away",
    /// Late events.
    WatchLags = "fault: watch lags",
    /// No events and no error.
    WatchDiesSilently = "fault: watch dies silently",
    /// An error.
    WatchBreaks = "fault: watch breaks",
    /// SIGKILL of soloist, comes back under its name.
    CrashSameIdentity = "fault: crash, back with the same identity",
    /// SIGKILL of soloist, comes back under a new name.
    CrashNewIdentity = "fault: crash, back with a new identity",
    /// SIGTERM.
    StopSignal = "fault: stop signal",
    /// SIGTERM twice.
    TwoStopSignals = "fault: two stop signals",
    /// An operator's wish.
    HandOver = "fault: handover asked for",
    /// soloist handover.
    OrderHandover = "fault: handover ordered in the record, to anyone, to a replica or to none that exists",
    /// kubectl annotate lease.
    OrderForAnotherTerm = "fault: handover ordered for another term",
    /// soloist pause.
    OrderPause = "fault: pause ordered",
    /// soloist pause --stop.
    OrderPauseStop = "fault: pause that stops the child ordered",
    /// soloist resume.
    OrderResume = "fault: pause ended by an order",
    /// SIGSTOP of soloist.
    FreezeSoloist = "fault: soloist frozen",
    /// SIGSTOP of the guard.
    FreezeGuard = "fault: guard frozen",
    /// Suspend.
    FreezeHost = "fault: whole host frozen",
    /// SIGSTOP of both.
    FreezeSoloistAndGuard = "fault: soloist and guard frozen",
    /// SIGKILL of the guard.
    KillGuard = "fault: guard killed",
    /// kubectl delete lease.
    LeaseDeleted = "fault: lease deleted by an operator",
    /// kubectl edit lease.
    LeaseEmptied = "fault: holder emptied by an operator",
    /// kubectl annotate lease.
    LeaseTouched = "fault: lease annotated by an operator",
    /// kubectl edit lease.
    DurationEdited = "fault: duration edited by an operator",
    /// kubectl edit lease.
    HolderEdited = "fault: holder edited by an operator",
    /// kubectl annotate lease.
    SignatureStripped = "fault: signature stripped by an operator",
    /// kubectl apply of a saved manifest.
    FormerRecordRestored = "fault: record of former times written back by an operator",
    /// kubectl edit lease.
    ReleaseForged = "fault: client-go's release forged by an operator",
    /// Drains for long.
    SlowDrain = "fault: child drains slowly",
    /// Does not care.
    IgnoresStop = "fault: child ignores the stop signal",
    /// Ends at once.
    CrashesAtOnce = "fault: child crashes at once",
    /// Ends later.
    CrashesLater = "fault: child crashes while running",
    /// Starts for ever.
    NeverReady = "fault: child never becomes ready",
    /// Fails its health checks.
    Sick = "fault: child fails its health checks",
    /// Forks.
    Descendants = "fault: child forks descendants that outlive it",
    /// Exec fails.
    CannotSpawn = "fault: child cannot be started",
}

impl Counter {
    /// Whether it counts a kind of fault.
    #[must_use]
    pub fn is_fault(self) -> bool {
        self.text().starts_with("fault:")
    }

    /// The counter of this name, as in the code.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let same = |counter: &&Self| format!("{counter:?}").eq_ignore_ascii_case(name);
        Self::ALL.iter().find(same).copied()
    }
}

/// Kinds of fault that are left out, to find out which of them it takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without(u128);

impl Without {
    /// Leaves out one more.
    #[must_use]
    pub const fn and(self, counter: Counter) -> Self {
        Self(self.0 | 1 << counter as u32)
    }

    /// Whether this one is left out.
    #[must_use]
    pub const fn contains(self, counter: Counter) -> bool {
        self.0 & 1 << counter as u32 != 0
    }
}

const _: () = assert!(Counter::ALL.len() <= 128, "one bit for each");

/// Counts of many schedules.
#[derive(Clone)]
pub struct Summary {
    counts: [u64; Counter::ALL.len()],
    /// Time without a working child.
    pub gaps: Gaps,
    /// The smallest stall with which an overlap was seen, as a part of the lease.
    smallest_stall: Option<f64>,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            counts: [0; Counter::ALL.len()],
            gaps: Gaps::default(),
            smallest_stall: None,
        }
    }
}

impl Summary {
    /// One more.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// So many more.
    pub fn add(&mut self, counter: Counter, number: u64) {
        self.counts[counter as usize] += number;
    }

    /// How many.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }

    pub(crate) fn note_stall(&mut self, part: f64) {
        let smallest = self.smallest_stall.map_or(part, |s| s.min(part));
        self.smallest_stall = Some(smallest);
    }

    /// Takes in what another one has counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, number) in self.counts.iter_mut().zip(other.counts) {
            *sum += number;
        }
        self.gaps.merge(&other.gaps);
        if let Some(part) = other.smallest_stall {
            self.note_stall(part);
        }
    }

    /// The fault that was hit least, and how often.
    #[must_use]
    pub fn rarest_fault(&self) -> (Counter, u64) {
        Counter::ALL
            .iter()
            .filter(|c| c.is_fault())
            .map(|c| (*c, self.get(*c)))
            .min_by_key(|(_, n)| *n)
            .expect("there are faults")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for counter in Counter::ALL {
            writeln!(f, "{:>12}  {}", self.get(*counter), counter.text())?;
        }
        match self.smallest_stall {
            Some(part) => writeln!(
                f,
                "smallest stall with an overlap: a wake-up and a kill of {:.1} % of the lease each",
                part * 100.0
            )?,
            None => writeln!(f, "no stall with an overlap")?,
        }
        write!(f, "{}", self.gaps)
    }
}
