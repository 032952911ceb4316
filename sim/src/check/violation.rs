//! The rules, by what breaks them.

use std::fmt;

use soloist_core::ids::Token;
use soloist_core::replica::StateName;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two trees run at once.
    Overlap {
        /// The token of the tree that should be dead.
        older: Token,
        /// The token of the other one.
        newer: Token,
    },
    /// Two trees run at once where that is not promised, and the token would not protect the user's data.
    OlderTokenNotLower {
        /// Of the term that began first.
        older: Token,
        /// Of the other one.
        newer: Token,
    },
    /// A tree and the work of a client-go elector run at once.
    OverlapWithClientGo {
        /// The tree's token.
        token: Token,
    },
    /// A term's token is not greater than those before, or not lower than those after.
    TokenDidNotGrow {
        /// The new one.
        token: Token,
        /// The one that it should differ from in the other direction.
        other: Token,
    },
    /// A replica believes that it was elected, but the store has never had such a write.
    ElectedWithoutWrite,
    /// The lease is given away while the tree lives.
    ReleasedBeforeEmpty,
    /// A tree lives past its deadline although somebody could have killed it.
    OutlivedItsDeadline {
        /// Its token.
        token: Token,
    },
    /// soloist runs beside a guard that does not, and has not noticed.
    MuteGuard,
    /// Processes that outlived their child, and that the guard could have killed, have had more than their grace.
    LeftoversLiveOn,
    /// A leader was shown that its lease is gone and did not kill its tree.
    CarriedOn,
    /// A planned stop was cut short although nothing was wrong with the lease.
    DrainCutShort,
    /// A replica starts a child while it has one.
    SecondChild,
    /// A replica's state and its tree do not go together.
    StateAndTreeDisagree {
        /// The state.
        state: StateName,
    },
    /// A replica ended because it was refused, although it had worked before or had just begun to be refused.
    GaveUp,
    /// A deadline that stays due: the driver would spin.
    BusyLoop,
    /// No leader with a running child in time after the last fault.
    NoLeader,
    /// A leader changed although nothing was wrong.
    Flapping,
    /// One request was swallowed, and the leader lost its lease or stopped its child.
    StalledRequestCost,
    /// A leader obeyed an order that was not given for its term.
    OrderOfAnotherTerm,
    /// One order was obeyed twice.
    OrderObeyedTwice,
    /// Somebody took the lease in a pause.
    TakenInAPause,
    /// In calm conditions another replica than the one that the release named took over.
    HeirPassedOver,
    /// A pause that stops the child did not.
    NotStopped,
    /// After the end of a pause in calm conditions the next child came late.
    SlowResume,
    /// After a planned handover in calm conditions the next child came late.
    SlowHandover,
    /// After a crash of the leader in calm conditions the next child came late.
    SlowTakeover,
}

impl Violation {
    /// A short name of the broken rule.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Overlap { .. } => "overlap",
            Self::OlderTokenNotLower { .. } => "older token not lower",
            Self::OverlapWithClientGo { .. } => "overlap with client-go",
            Self::TokenDidNotGrow { .. } => "token did not grow",
            Self::ElectedWithoutWrite => "elected without a write",
            Self::ReleasedBeforeEmpty => "released before the tree was empty",
            Self::OutlivedItsDeadline { .. } => "tree outlived its deadline",
            Self::MuteGuard => "mute guard not replaced",
            Self::LeftoversLiveOn => "leftovers outlived their grace",
            Self::CarriedOn => "leader carried on without its lease",
            Self::DrainCutShort => "planned stop cut short",
            Self::SecondChild => "second child in one replica",
            Self::StateAndTreeDisagree { .. } => "state and tree disagree",
            Self::GaveUp => "gave up because of a refusal",
            Self::BusyLoop => "busy loop",
            Self::NoLeader => "no leader in time",
            Self::Flapping => "leader changed without a fault",
            Self::StalledRequestCost => "one stalled request cost the leadership",
            Self::OrderOfAnotherTerm => "obeyed an order of another term",
            Self::OrderObeyedTwice => "obeyed an order twice",
            Self::TakenInAPause => "taken over in a pause",
            Self::HeirPassedOver => "heir passed over",
            Self::NotStopped => "pause did not stop the child",
            Self::SlowResume => "slow start after a pause",
            Self::SlowHandover => "slow handover in calm conditions",
            Self::SlowTakeover => "slow takeover in calm conditions",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { older, newer } => {
                write!(f, "two trees run at once, with tokens {older} and {newer}")
            }
            Self::OlderTokenNotLower { older, newer } => {
                write!(
                    f,
                    "two trees run at once, and the older one has token {older}, the newer one {newer}"
                )
            }
            Self::OverlapWithClientGo { token } => {
                write!(
                    f,
                    "the tree with token {token} runs while a client-go elector leads"
                )
            }
            Self::TokenDidNotGrow { token, other } => {
                write!(f, "a term has token {token}, another one {other}")
            }
            Self::OutlivedItsDeadline { token } => {
                write!(f, "the tree with token {token} lives past its deadline")
            }
            Self::StateAndTreeDisagree { state } => {
                write!(f, "a replica is {state} but its tree says otherwise")
            }
            other => f.write_str(other.name()),
        }
    }
}
