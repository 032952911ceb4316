//! The requests that the election makes.

use super::{Election, ReadFirst, Request, RequestKind, Write};
#[cfg(feature = "mutants")]
use crate::defect;
use crate::election::{Base, Claim, Output, Purpose};
use crate::ids::{OpId, Term};
use crate::record::{Record, Signature, Snapshot};
use crate::time::Moment;

impl Election {
    pub(super) fn send_read(&mut self, now: Moment) {
        let op = self.new_op();
        self.request = Some(Request {
            op,
            sent: now,
            kind: RequestKind::Read {
                raced: self.read_first == Some(ReadFirst::Raced),
            },
        });
        self.outputs.push_back(Output::Read { op });
    }

    pub(super) fn send_acquire(&mut self, now: Moment) {
        let (_, claim) = self.sight.clear();
        let transitions = self.sight.next_transitions();
        self.send_write(now, Purpose::Acquire, claim, transitions);
    }

    pub(super) fn send_renewal(&mut self, now: Moment) {
        let transitions = self.sight.record().map_or(0, |r| r.transitions);
        self.send_write(now, Purpose::Renew, Claim::Own, transitions);
    }

    pub(super) fn send_release(&mut self, now: Moment) {
        let transitions = self.sight.record().map_or(0, |r| r.transitions);
        self.send_write(now, Purpose::Release, Claim::Own, transitions);
    }

    pub(super) fn send_write(
        &mut self,
        now: Moment,
        purpose: Purpose,
        claim: Claim,
        transitions: u64,
    ) {
        let op = self.new_op();
        let released = purpose == Purpose::Release;
        let lease = self.config.timings.lease();
        let record = Record {
            holder: (!released).then(|| self.config.identity.clone()),
            duration_seconds: Some(match released {
                true => Record::RELEASED_SECONDS,
                false => lease.seconds().into(),
            }),
            transitions,
            signature: Some(Signature {
                instance: self.config.instance,
                pod: self.config.pod.clone(),
                holder: self.config.identity.clone(),
                term: Term::new(transitions),
                duration: lease,
                write: op,
                released,
            }),
        };
        self.unresolved
            .retain(|(_, sent)| *sent + lease.get() > now);
        self.unresolved.push((op, now));
        self.outputs.push_back(Output::Write {
            op,
            base: self.base(purpose),
            record: record.clone(),
            purpose,
        });
        self.request = Some(Request {
            op,
            sent: now,
            kind: RequestKind::Write(Write {
                purpose,
                claim,
                record,
            }),
        });
    }

    #[cfg_attr(not(feature = "mutants"), allow(unused_variables))]
    pub(super) fn base(&self, purpose: Purpose) -> Base {
        #[cfg(feature = "mutants")]
        if purpose == Purpose::Acquire && defect!(self.config.defect, TakeOverBlindly) {
            return Base::Anything;
        }
        match self.sight.snapshot() {
            Some(Snapshot {
                version,
                record: Some(_),
                ..
            }) => Base::Version(*version),
            Some(_) | None => Base::Absent,
        }
    }

    pub(super) fn new_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId::new(self.next_op)
    }
}
