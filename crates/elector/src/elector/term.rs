//! One holding of the lease, as a value.

use std::future::Future;
use std::time::Duration;

use soloist_core::election::{Claim, Elected};
use soloist_core::ids::{Term as TermNumber, Token};
use soloist_core::time::Moment;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::{self, Timer};

/// This replica leads. Dropping it says that the work has ended: the lease is then released.
///
/// It is cancelled on any loss, and no later than one kill margin (a tenth of the lease) before the
/// validity ends, even if the election says nothing.
#[derive(Debug)]
#[must_use = "a term that is dropped is given away"]
pub struct Term {
    number: TermNumber,
    token: Token,
    claim: Claim,
    margin: Duration,
    valid_until: watch::Receiver<Moment>,
    cancelled: CancellationToken,
    _finished: FinishOnDrop,
}

impl Term {
    /// Its fencing token: greater than that of every term before, and to be sent along with what the
    /// work writes elsewhere.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Its number, for people.
    #[must_use]
    pub const fn number(&self) -> TermNumber {
        self.number
    }

    /// How the lease came to us.
    #[must_use]
    pub const fn claim(&self) -> Claim {
        self.claim
    }

    /// Until when no other replica can lead, as of now; renewals move it.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        *self.valid_until.borrow()
    }

    /// Whether work may go on: not cancelled, and the clock has not reached the validity's end less the
    /// kill margin. It reads the clock, so it is right even when the runtime has been held up.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.cancelled.is_cancelled() && clock::now() < self.valid_until() - self.margin
    }

    /// Fires when the term is lost or about to run out. The work must then have ended before
    /// [`Term::valid_until`].
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// The same as a token, to be handed down to the work's parts.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.cancelled.child_token()
    }

    /// For how long work may go on, as of now: until the validity's end less the kill margin. Renewals make it longer.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.cancelled.is_cancelled() {
            true => Duration::ZERO,
            false => (self.valid_until() - self.margin).since(clock::now()),
        }
    }

    /// Does the work for as long as the term lasts. `None` if the term is lost first: the work is then dropped where it stands, so what
    /// it has begun elsewhere is protected by the [token](Term::token) alone.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cancelled() => None,
            done = work => Some(done),
        }
    }

    /// Says that the work has ended: the lease is released.
    pub fn finish(self) {}
}

/// The elector's end of a term.
#[derive(Debug)]
pub(super) struct Reign {
    /// Cancels the term also when the elector's task dies.
    cancel: DropGuard,
    valid_until: watch::Sender<Moment>,
    pub(super) stopped_told: bool,
}

impl Reign {
    pub(super) fn begin(
        elected: &Elected,
        margin: Duration,
        finished: mpsc::UnboundedSender<()>,
    ) -> (Self, Term) {
        let cancelled = CancellationToken::new();
        let (sender, valid_until) = watch::channel(elected.valid_until);
        tokio::spawn(enforce(cancelled.clone(), valid_until.clone(), margin));
        let term = Term {
            number: elected.term,
            token: elected.token,
            claim: elected.claim,
            margin,
            valid_until,
            cancelled: cancelled.clone(),
            _finished: FinishOnDrop(finished),
        };
        let reign = Self {
            cancel: cancelled.drop_guard(),
            valid_until: sender,
            stopped_told: false,
        };
        (reign, term)
    }

    pub(super) fn extend(&self, valid_until: Moment) {
        self.valid_until.send_replace(valid_until);
    }

    pub(super) fn cancel(&self) {
        self.cancel.token().cancel();
    }
}

/// Cancels the term in time, whatever the election and the elector's task do.
async fn enforce(
    cancelled: CancellationToken,
    mut valid_until: watch::Receiver<Moment>,
    margin: Duration,
) {
    let cancel_at_the_end = cancelled.clone().drop_guard();
    let Ok(mut timer) = Timer::new() else {
        return;
    };
    loop {
        let at = *valid_until.borrow_and_update() - margin;
        tokio::select! {
            _ = timer.until(at) => break,
            () = cancelled.cancelled() => break,
            moved = valid_until.changed() => if moved.is_err() { break },
        }
    }
    drop(cancel_at_the_end);
}

#[derive(Debug)]
struct FinishOnDrop(mpsc::UnboundedSender<()>);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
