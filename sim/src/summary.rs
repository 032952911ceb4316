//! What a run has hit: how many of each fault, terms, takeovers, kills.

use std::fmt;

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
    ClaimHolderGone = "terms after a holder whose processes were gone (one machine)",
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
    /// Releases written.
    Releases = "releases",
    /// Leases lost.
    Losses = "leases lost",
    /// Two trees at once where no rule can help.
    BeyondBothStopped = "overlaps for the token to catch: soloist and guard stopped or dead while the child ran",
    /// Two trees at once where no rule can help.
    BeyondThaw = "overlaps for the token to catch: within one wake-up after a thaw",
    /// Two trees at once where no rule can help.
    BeyondDeletion = "overlaps for the token to catch: lease deleted, then led by one who never saw it",
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
    /// Replicas with different timings.
    MixedTimings = "fault: replicas with different timings",
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

/// Counts of many schedules.
#[derive(Clone)]
pub struct Summary([u64; Counter::ALL.len()]);

impl Default for Summary {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Summary {
    /// One more.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// So many more.
    pub fn add(&mut self, counter: Counter, number: u64) {
        self.0[counter as usize] += number;
    }

    /// How many.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Takes in the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        for (sum, number) in self.0.iter_mut().zip(other.0) {
            *sum += number;
        }
    }

    /// The fault that was hit least, and how often.
    #[must_use]
    pub fn rarest_fault(&self) -> (Counter, u64) {
        Counter::ALL
            .iter()
            .filter(|c| c.text().starts_with("fault:"))
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
        Ok(())
    }
}
