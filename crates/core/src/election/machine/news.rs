//! What an answer or a snapshot means for the term.

use core::time::Duration;

use super::{Election, ReadFirst, RequestKind, Tenure, Write};
use crate::defect;
use crate::election::sight::Source;
use crate::election::{Claim, Elected, Loss, Output, Purpose};
use crate::ids::{Identity, OpId, Term, Token, Version};
use crate::record::{Record, Snapshot};
use crate::time::Moment;

impl Election {
    pub(super) fn written(&mut self, now: Moment, sent: Moment, write: Write, version: Version) {
        let sent = if defect!(self.config.defect, CountFromAnswer) {
            now
        } else {
            sent
        };
        self.next_try = now;
        self.raced = false;
        let term = Term::new(write.record.transitions);
        // The watch may have been faster than the answer, and know more.
        let overtaken = self.sight.version() > Some(version);
        let (clear_at, _) = self.sight.clear();
        if !overtaken {
            self.know_own_write(now, version, write.record);
        }
        match write.purpose {
            Purpose::Acquire if overtaken => {}
            // While the write was under way we saw that another one had held the lease meanwhile: created
            // and deleted again, so that our own creation went through. Its promise is kept first.
            Purpose::Acquire if now < clear_at => self.sight.not_before(clear_at),
            Purpose::Acquire => self.begin_term(now, sent, term, version, write.claim),
            Purpose::Renew => self.confirm(sent),
            Purpose::Release => self.end_leaving(),
        }
    }

    pub(super) fn know_own_write(&mut self, now: Moment, version: Version, record: Record) {
        let holder_before = self.sight.holder().cloned();
        self.sight.wrote(now, &self.config, version, record);
        self.tell_holder(holder_before.as_ref());
    }

    pub(super) fn begin_term(
        &mut self,
        now: Moment,
        sent: Moment,
        term: Term,
        version: Version,
        claim: Claim,
    ) {
        let timings = &self.config.timings;
        // Too old to begin with, or no longer wanted. The record is ours, so it is written anew or released.
        if now >= sent + timings.renew_deadline() || !self.standing || self.leave_by.is_some() {
            return;
        }
        let token = if defect!(self.config.defect, TokenFromTransitions) {
            Token::new(term.get())
        } else {
            Token::from(version)
        };
        let valid_until = sent + timings.lease().get();
        self.tenure = Some(Tenure {
            term,
            token,
            sent,
            valid_until,
            ending: false,
        });
        self.outputs.push_back(Output::Elected(Elected {
            term,
            token,
            valid_until,
            claim,
        }));
    }

    /// A renewal that was sent then has landed.
    pub(super) fn confirm(&mut self, sent: Moment) {
        let Some(tenure) = &mut self.tenure else {
            return;
        };
        if sent > tenure.sent {
            tenure.sent = sent;
            tenure.valid_until = sent + self.config.timings.lease().get();
            self.outputs.push_back(Output::Extended {
                valid_until: tenure.valid_until,
            });
        }
    }

    /// This write certainly did not land.
    pub(super) fn forget(&mut self, op: OpId) {
        self.unresolved.retain(|(unresolved, _)| *unresolved != op);
    }

    /// The fate of this write and of all before it is known.
    pub(super) fn resolve(&mut self, op: OpId) {
        self.unresolved.retain(|(unresolved, _)| *unresolved > op);
    }

    pub(super) fn unanswered(&mut self, now: Moment, sent: Moment, kind: RequestKind) {
        self.pause(sent);
        match kind {
            RequestKind::Read { .. } => {}
            RequestKind::Write(write)
                if defect!(self.config.defect, UnknownIsSuccess)
                    && write.purpose != Purpose::Release =>
            {
                let version = self.sight.version().map_or(1, Version::get) + 1;
                self.written(now, sent, write, Version::new(version));
            }
            RequestKind::Write(_) => self.read_first = Some(ReadFirst::Unsure),
        }
    }

    /// After a failure: the next try begins a retry period after the last one began.
    pub(super) fn pause(&mut self, began: Moment) {
        self.next_try = began + self.retry_pause();
    }

    pub(super) fn retry_pause(&mut self) -> Duration {
        let timings = &self.config.timings;
        let longest = timings.longest_retry();
        let shortest = timings.retry_period().min(longest);
        shortest + self.spread.up_to(longest - shortest)
    }

    pub(super) fn observe(&mut self, now: Moment, snapshot: Snapshot, source: Source) {
        let holder_before = self.sight.holder().cloned();
        if !self
            .sight
            .observe(now, &self.config, &mut self.spread, snapshot, source)
        {
            return;
        }
        self.tell_holder(holder_before.as_ref());
        self.find_own_writes(now);
        self.check_still_ours();
    }

    pub(super) fn tell_holder(&mut self, before: Option<&Identity>) {
        let holder = self.sight.holder();
        if holder != before {
            self.outputs.push_back(Output::Holder(holder.cloned()));
        }
    }

    /// If a write of unknown outcome turns out to have landed, it counts from when it was sent.
    ///
    /// It must be that very write: a record of ours that somebody else edited since looks like ours,
    /// but the edit may be older than our last write, and candidates count from the edit.
    pub(super) fn find_own_writes(&mut self, now: Moment) {
        let Some(signature) = self.sight.record().and_then(Record::signed) else {
            return;
        };
        if signature.instance != self.config.instance {
            return;
        }
        let (write, term, released) = (signature.write, signature.term, signature.released);
        let landed = self.unresolved.iter().find(|(op, _)| *op == write).copied();
        self.resolve(write);
        let same_term = !released && self.tenure.as_ref().is_some_and(|t| t.term == term);
        if let Some((_, sent)) = landed
            && same_term
        {
            self.confirm(sent);
        }
        if defect!(self.config.defect, OwnRecordConfirms)
            && same_term
            && let Some((_, sent)) = self.unresolved.last().copied()
        {
            self.unresolved.clear();
            self.confirm(sent.min(now));
        }
    }

    /// A leader that sees its lease deleted, emptied or taken has lost it at once.
    pub(super) fn check_still_ours(&mut self) {
        let Some(tenure) = &self.tenure else {
            return;
        };
        if defect!(self.config.defect, IgnoreTakenLease) {
            return;
        }
        let loss = match self.sight.record() {
            None => Loss::Deleted,
            Some(record) => {
                let this_term = self.wrote(record) && record.transitions == tenure.term.get();
                match &record.holder {
                    Some(_) if this_term => return,
                    Some(holder) => Loss::Taken(holder.clone()),
                    // Our own release, whose answer was lost: no loss.
                    None if this_term && record.released_by_its_holder() => return,
                    None => Loss::Emptied,
                }
            }
        };
        self.tenure = None;
        self.lose(loss);
    }
}
