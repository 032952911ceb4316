//! What an answer or a snapshot means for the term.

use super::requests::Write;
use super::rights::Right;
use super::{Claim, Election, Phase, Purpose, Source, Tenure};
use crate::election::{Elected, Loss, Output};
use crate::ids::{Identity, OpId, Term, Token, Version};
use crate::record::{Record, Snapshot};
use crate::time::Moment;

impl Election {
    /// The write in flight, which was sent then, has landed.
    pub(super) fn landed(&mut self, now: Moment, sent: Moment, write: Write, version: Version) {
        self.rights.granted(now, Right::Write);
        self.requests.landed(now, write.op);
        let (op, term) = (write.op, Term::new(write.record.transitions));
        // The watch may have been faster than the answer, and know more.
        let overtaken = self.knowledge.version() > Some(version);
        if !overtaken {
            let holder_before = self.knowledge.holder().cloned();
            self.knowledge
                .wrote(now, &self.config, version, write.record);
            self.tell_holder(holder_before.as_ref());
        }
        match write.purpose {
            Purpose::Acquire if overtaken => {}
            Purpose::Acquire => self.begin_term(now, sent, term, (op, version), write.claim),
            Purpose::Renew => {
                self.confirm(sent, (op, version));
                self.check_still_ours();
            }
            Purpose::Release => {
                self.let_heir_go_first(now);
                self.end_leaving();
            }
        }
    }

    fn begin_term(
        &mut self,
        now: Moment,
        sent: Moment,
        term: Term,
        landed: (OpId, Version),
        claim: Claim,
    ) {
        let timings = &self.config.timings;
        let too_old = now >= sent + timings.renew_deadline();
        // While the write was under way we saw that another one had held the lease meanwhile: created
        // and deleted again, so that our own creation went through. Its promise is kept first.
        let promised = now < self.knowledge.free_at();
        // The record is ours all the same, so it is written anew or released.
        if self.phase != Phase::Candidate || too_old || promised {
            return;
        }
        let tenure = Tenure {
            term,
            token: Token::from(landed.1),
            sent,
            valid_until: sent + timings.lease().get(),
            landed,
        };
        self.requests.won();
        self.heeded.begin_term();
        self.phase = Phase::Leading(tenure);
        self.outputs.push_back(Output::Elected(Elected {
            term,
            token: tenure.token,
            valid_until: tenure.valid_until,
            claim,
        }));
    }

    /// A renewal that was sent then has landed.
    fn confirm(&mut self, sent: Moment, landed: (OpId, Version)) {
        let (Phase::Leading(tenure) | Phase::Ending(tenure)) = &mut self.phase else {
            return;
        };
        if sent > tenure.sent {
            tenure.sent = sent;
            tenure.landed = landed;
            tenure.valid_until = sent + self.config.timings.lease().get();
            let valid_until = tenure.valid_until;
            self.outputs.push_back(Output::Extended { valid_until });
        }
    }

    pub(super) fn observe(&mut self, now: Moment, snapshot: Snapshot, source: Source) {
        let holder_before = self.knowledge.holder().cloned();
        let changed = self
            .knowledge
            .observe(now, &self.config, &mut self.spread, snapshot, source);
        if !changed {
            return;
        }
        if source == Source::Watch {
            self.requests.watch_explained();
        }
        if self.knowledge.claim() == Claim::Released {
            self.find_place_in_crowd(now);
        }
        self.let_heir_go_first(now);
        self.tell_holder(holder_before.as_ref());
        self.find_own_writes();
        self.check_still_ours();
    }

    fn tell_holder(&mut self, before: Option<&Identity>) {
        let holder = self.knowledge.holder();
        if holder != before {
            self.outputs.push_back(Output::Holder(holder.cloned()));
        }
    }

    /// If a write of unknown outcome turns out to have landed, it counts from when it was sent.
    ///
    /// It must be that very write: a record of ours that somebody else edited since looks like ours,
    /// but the edit may be older than our last write, and candidates count from the edit.
    fn find_own_writes(&mut self) {
        let Some(signature) = self.knowledge.record().and_then(Record::signed) else {
            return;
        };
        if signature.instance != self.config.instance {
            return;
        }
        let (write, term, released) = (signature.write, signature.term, signature.released);
        let landed = self.requests.unresolved(write);
        self.requests.resolve(write);
        let same_term = self.tenure().is_some_and(|t| t.term == term);
        if let (Some(sent), Some(version)) = (landed, self.knowledge.version())
            && same_term
            && !released
        {
            self.confirm(sent, (write, version));
        }
    }

    /// A leader that sees its lease deleted, emptied, taken or written back has lost it at once.
    fn check_still_ours(&mut self) {
        let Some(tenure) = self.tenure() else {
            return;
        };
        let loss = match self.knowledge.record() {
            None => Loss::Deleted,
            Some(record) => {
                let this_term = self.wrote(record) && record.transitions == tenure.term.get();
                match &record.holder {
                    Some(_) if this_term && self.is_written_back(tenure, record) => {
                        Loss::WrittenBack
                    }
                    Some(_) if this_term => return,
                    Some(holder) => Loss::Taken(holder.clone()),
                    None => Loss::Emptied,
                }
            }
        };
        self.own_term = None;
        self.lose(loss);
    }

    /// A later version than that of our last write shows an earlier write. In a store that was set back the version is an
    /// earlier one, too.
    fn is_written_back(&self, tenure: &Tenure, record: &Record) -> bool {
        let (write, version) = tenure.landed;
        let earlier_write = record.signed().is_some_and(|s| s.write < write);
        earlier_write && self.knowledge.version() > Some(version)
    }
}
