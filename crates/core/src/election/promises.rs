//! Who may still believe in the lease, and until when.

use alloc::vec::Vec;
use core::time::Duration;

use crate::ids::{InstanceId, PodUid, Term};
use crate::record::{Record, Signature};
use crate::time::Moment;

/// More holders than this at once are counted as one that has the longest promise of them.
const MOST: usize = 8;

/// What a holder was promised, as far as we have seen: an upper bound, never less.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Promise {
    holder: Holder,
    pod: Option<PodUid>,
    term: Term,
    duration: Duration,
    until: Moment,
    /// The record that it rests on was deleted, edited or replaced by another hand than the holder's or its
    /// successor's. Then no successor proves that the holder has stopped.
    doubted: bool,
}

/// Whose promise it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A soloist.
    Soloist(InstanceId),
    /// Another elector: whoever held the term without signing it.
    Other,
    /// Whoever held it while we did not see it.
    Unseen,
}

impl Holder {
    /// Who the record's promise is for. A signature that an edit of the holder's name has outdated still is its
    /// writer's promise.
    pub(super) fn of(record: &Record) -> Self {
        let of_this_term = |s: &&Signature| s.term.get() == record.transitions;
        match record.signature.as_ref().filter(of_this_term) {
            Some(signature) => Self::Soloist(signature.instance),
            None => Self::Other,
        }
    }
}

/// All promises that we have seen and not seen end.
///
/// An entry leaves only when its holder is known to have stopped: it released the lease itself, it is dead, or
/// another elector has succeeded it in order. An entry that has run out stays, because its holder may have
/// renewed unseen; a gap in what we see makes it count anew ([`Promises::count_anew`]).
#[derive(Clone, Debug)]
pub(super) struct Promises(Vec<Promise>);

impl Promises {
    pub(super) const NONE: Self = Self(Vec::new());

    /// The moment at which the last of them ends.
    pub(super) fn until(&self) -> Option<Moment> {
        self.0.iter().map(|p| p.until).max()
    }

    /// The record's holder may believe in it until `now + duration`. A process that is in a later term has ended its
    /// earlier ones itself.
    pub(super) fn show(&mut self, now: Moment, record: &Record, duration: Duration) {
        let (holder, term) = (Holder::of(record), Term::new(record.transitions));
        self.0.retain(|p| match holder {
            Holder::Soloist(_) => p.holder != holder || p.term > term,
            Holder::Other | Holder::Unseen => p.holder != holder || p.term != term,
        });
        self.push(Promise {
            holder,
            pod: pod_of(record),
            term,
            duration,
            until: now + duration,
            doubted: false,
        });
    }

    /// Whether we have counted this promise already, at least as long.
    pub(super) fn covers(&self, holder: Holder, term: Term, duration: Duration) -> bool {
        let same = |p: &Promise| p.holder == holder && p.term == term && p.duration >= duration;
        self.0.iter().any(same)
    }

    /// This holder's term has ended.
    pub(super) fn end(&mut self, holder: Holder, term: Term) {
        self.0.retain(|p| p.holder != holder || p.term != term);
    }

    /// The lease came to this record's term in order: whoever held it before has stopped. Not those that we are in doubt
    /// about: the successor may not have known of them.
    pub(super) fn succeed(&mut self, now: Moment, record: &Record) {
        let term = Term::new(record.transitions);
        self.0
            .retain(|p| p.term >= term || (p.doubted && p.until > now));
    }

    /// The same, and we saw it happen: then whoever held it before has let go, which we saw, or its promise is over for us,
    /// too, or it was the former container of the same Pod. Anybody else has been written over.
    pub(super) fn succeed_observed(&mut self, now: Moment, record: &Record) {
        let (term, pod) = (Term::new(record.transitions), pod_of(record));
        let former_self = |p: &Promise| pod.is_some() && p.pod == pod;
        self.0
            .retain(|p| p.term >= term || (p.until > now && (p.doubted || !former_self(p))));
    }

    /// Another hand has been at the record. Nothing lies between this and what we saw before, so what was counted
    /// then stands.
    pub(super) fn doubt(&mut self, now: Moment) {
        self.0.retain(|p| !p.doubted || p.until > now);
        for promise in &mut self.0 {
            promise.doubted = true;
        }
    }

    /// Another hand has been at the record, and what went on before that we did not see: everybody may have renewed
    /// until now, also somebody whom we never saw, for as long as is usual here.
    pub(super) fn count_anew(&mut self, now: Moment, usual: Option<Duration>) {
        for promise in &mut self.0 {
            promise.doubted = true;
            promise.until = now + promise.duration;
        }
        if self.0.is_empty()
            && let Some(duration) = usual
        {
            self.push(Promise {
                holder: Holder::Unseen,
                pod: None,
                term: Term::new(0),
                duration,
                until: now + duration,
                doubted: true,
            });
        }
    }

    fn push(&mut self, promise: Promise) {
        self.0.push(promise);
        if self.0.len() > MOST {
            let (first, rest) = self.0.split_at_mut(1);
            let (gone, kept) = (&first[0], &mut rest[0]);
            // Nobody's in particular, so that the end of one of them does not end it.
            kept.holder = Holder::Unseen;
            kept.pod = None;
            kept.duration = kept.duration.max(gone.duration);
            kept.until = kept.until.max(gone.until);
            kept.doubted = true;
            self.0.remove(0);
        }
    }
}

/// The Pod of whoever signed this very term.
fn pod_of(record: &Record) -> Option<PodUid> {
    record.signed()?.pod.clone()
}
