//! The election: who holds the lease, and until when may we believe it?
//!
//! A state machine without I/O. The caller feeds it ([`Election::stand`], [`Election::resign`],
//! [`Election::leave`], `handle_*`), and after every call takes what there is to do from
//! [`Election::poll_output`] until that is `None`, then calls [`Election::handle_timeout`] at
//! [`Election::next_deadline`] at the latest. It has at most one request under way.
//!
//! # What is guaranteed
//!
//! Between [`Output::Elected`] and the `valid_until` last told, no other replica that runs this code on
//! the same store is elected, if the clocks' rates differ by less than
//! [`Timings::RATE_TOLERANCE`](crate::timings::Timings::RATE_TOLERANCE) (the margins allow for more) and
//! nobody takes the record away by hand, or sets the store back, while the leader cannot notice. `docs/safety.md` says
//! exactly in which cases.
//!
//! # What is not
//!
//! That the leader's work has stopped by then: that is the caller's duty ([`crate::replica`],
//! [`crate::guard`]), and [`Election::leave`] must not be called before it has.

mod knowledge;
mod machine;
mod promises;
#[cfg(test)]
mod tests;
mod verdict;

use core::time::Duration;

use crate::ids::{Identity, InstanceId, OpId, PodUid, Term, Token, Version, WatchId};
use crate::orders::{OrderRefusal, Ordered, Pause};
use crate::record::{Record, Snapshot};
use crate::time::Moment;
use crate::timings::Timings;

pub use machine::{Election, Tenure};

/// Who takes part, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The replica's name in the record.
    pub identity: Identity,
    /// This very process.
    pub instance: InstanceId,
    /// The Pod, only if this process has a PID namespace of its own in it.
    pub pod: Option<PodUid>,
    /// When to renew, retry, give up.
    pub timings: Timings,
    /// For the spread of retries and takeovers; different in every replica.
    pub seed: u64,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A read, answered.
    Read(Snapshot),
    /// A write that landed as this version.
    Written(Version),
    /// A write that did not land: the record is not, or no longer, at the version that it was based on.
    LostRace,
    /// It certainly had no effect, and may work later: no connection, too many requests.
    Unavailable,
    /// It certainly had no effect: the store has too much to do, and asks us to wait for so long.
    Throttled {
        /// Until the next try.
        wait: Duration,
    },
    /// It certainly had no effect, and will not work until somebody changes the permissions.
    Refused,
    /// Nobody knows whether it had an effect: timed out, connection broken, server error.
    Unknown,
}

/// What a write is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Create it; fail if there is one.
    Absent,
    /// Replace exactly this version.
    Version(Version),
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To begin a term: the store sets the record's acquire and renew times.
    Acquire,
    /// To go on: the store sets the renew time and keeps the acquire time.
    Renew,
    /// To end a term: both times are set, as client-go does.
    Release,
}

/// How the lease came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// We had never seen a record, and there was none, or an empty one.
    FirstSight,
    /// The former holder released it.
    Released,
    /// The former holder's processes are provably dead.
    HolderGone,
    /// The former holder did not renew it for as long as it had promised to.
    Expired,
    /// It was deleted or emptied by somebody else, and we waited for as long as its last holder might
    /// have believed in it.
    WaitedOut,
    /// It was still ours from an earlier term of this process.
    Own,
    /// It belonged to the former container of this Pod, which is dead.
    FormerSelf,
}

/// Why the lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No renewal succeeded until the renew deadline. The lease is still valid for a while.
    RenewDeadline,
    /// [`Election::resign`] was called. The lease stays valid, and is renewed, until [`Election::leave`].
    Resigned,
    /// The validity ran out, for example while this process was stopped.
    Expired,
    /// Another one holds it.
    Taken(Identity),
    /// Somebody emptied the record.
    Emptied,
    /// Somebody deleted the record.
    Deleted,
    /// Somebody wrote back an earlier record of this very term over a later one. Nobody knows what lay between the two:
    /// another leader, perhaps.
    WrittenBack,
}

impl Loss {
    /// Whether the child may have what is left of the validity to end in order.
    #[must_use]
    pub const fn leaves_grace(&self) -> bool {
        match self {
            Self::RenewDeadline | Self::Resigned => true,
            Self::Expired | Self::Taken(_) | Self::Emptied | Self::Deleted | Self::WrittenBack => {
                false
            }
        }
    }
}

/// A term that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elected {
    /// Its number, for people.
    pub term: Term,
    /// Its fencing token.
    pub token: Token,
    /// Until when the lease may be believed in; [`Output::Extended`] moves it.
    pub valid_until: Moment,
    /// How it came.
    pub claim: Claim,
}

/// What the store is to be asked. Answers go to [`Election::handle_answer`] with the request's own `op`,
/// changes to [`Election::handle_watch`] with the watch's own `watch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCommand {
    /// Read the record, and answer with [`Answer::Read`] or a failure.
    Read {
        /// For the answer.
        op: OpId,
    },
    /// Write the record if it still is at `base`.
    Write {
        /// For the answer.
        op: OpId,
        /// The condition.
        base: Base,
        /// What to write; fields that are not in it stay as they are.
        record: Record,
        /// What for.
        purpose: Purpose,
    },
    /// Stop waiting for this request and drop its connection. Its answer, should it come, is ignored.
    Abandon {
        /// Which.
        op: OpId,
    },
    /// Watch the record from this version on, in place of any watch before. Every change goes to
    /// [`Election::handle_watch`], in order and without a gap, or the watch is reported as broken.
    Watch {
        /// For what it reports.
        watch: WatchId,
        /// The first change to report is the one after it.
        after: Version,
    },
}

/// What the caller is to do or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask the store.
    Store(StoreCommand),
    /// We lead.
    Elected(Elected),
    /// We lead until then.
    Extended {
        /// The new end.
        valid_until: Moment,
    },
    /// We do not lead any more; see [`Loss::leaves_grace`].
    Lost(Loss),
    /// What [`Election::leave`] asked for is done: nothing is held, or nothing more can be done about it.
    Left,
    /// Another holder was seen in the record, or none.
    Holder(Option<Identity>),
    /// An order for our term: to be obeyed with [`Election::resign`] and, when our tree is empty, [`Election::leave`].
    Ordered(Ordered),
    /// A release names us as the one to lead next, and we do not stand: see [`Election::stand`].
    NamedHeir,
    /// An order that we do not obey.
    OrderRefused(OrderRefusal),
    /// From now on nobody may take the lease; or, with `None`, somebody may again.
    Paused(Option<Pause>),
    /// The store refused a request. It is tried again.
    Refused {
        /// Which.
        op: OpId,
        /// We were refused from the start, and for a minute: nobody is about to give us what we lack.
        for_good: bool,
    },
}
