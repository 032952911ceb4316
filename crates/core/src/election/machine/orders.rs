//! What the orders in the record mean for us.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Election, Phase};
use crate::election::Output;
use crate::ids::{Identity, InstanceId, OpId};
use crate::orders::{Handover, OrderRefusal, Ordered, Pause};
use crate::record::Record;
use crate::time::Moment;

/// Which orders have been dealt with.
#[derive(Debug)]
pub(super) struct Heeded {
    /// The handovers that were obeyed in this term: each once, although a record of before may show one again.
    obeyed: Vec<Handover>,
    /// The handover that was refused last in this term.
    refused: Option<Box<Handover>>,
    /// The stop that was obeyed in this term.
    stop: Option<Pause>,
    /// The pause that people have been told of.
    paused: Option<Pause>,
    /// Who is to lead after us.
    pub(super) heir: Option<Identity>,
    /// The release that named another one as the heir, and until when we let it go first.
    heir_of: Option<(InstanceId, OpId)>,
    pub(super) after_the_heir: Moment,
}

impl Heeded {
    pub(super) const NOTHING: Self = Self {
        obeyed: Vec::new(),
        refused: None,
        stop: None,
        paused: None,
        heir: None,
        heir_of: None,
        after_the_heir: Moment::since_boot(core::time::Duration::ZERO),
    };

    /// Orders of an earlier term are none of the new one's business.
    pub(super) fn begin_term(&mut self) {
        self.obeyed.clear();
        self.refused = None;
        self.stop = None;
        self.heir = None;
    }

    fn has_dealt_with(&self, handover: &Handover) -> bool {
        self.obeyed.contains(handover) || self.refused.as_deref() == Some(handover)
    }
}

impl Election {
    /// Looks at the orders as they are now. A leader is told of what it has to do, each order once.
    pub(super) fn heed_orders(&mut self, now: Moment) {
        let pause = self.knowledge.pause(now);
        if pause != self.heeded.paused {
            self.heeded.paused = pause;
            self.outputs.push_back(Output::Paused(pause));
            if pause.is_none() {
                // Everybody has waited for this, as for a release.
                self.find_place_in_crowd(now);
            }
        }
        let (Phase::Leading(tenure) | Phase::Ending(tenure)) = self.phase else {
            return;
        };
        if let Some(pause) = pause.filter(|p| p.stop && self.heeded.stop != Some(*p)) {
            self.heeded.stop = Some(pause);
            self.outputs.push_back(Output::Ordered(Ordered::Stop));
        }
        let ordered = self.knowledge.record().map(|r| &r.orders.handover);
        let Some(Some(handover)) = ordered else {
            return;
        };
        if self.heeded.has_dealt_with(handover) {
            return;
        }
        let handover = handover.clone();
        let refusal = match &handover.to {
            _ if handover.term != tenure.term => Some(OrderRefusal::AnotherTerm {
                ordered: handover.term,
                term: tenure.term,
            }),
            Some(heir) if *heir == self.config.identity => {
                Some(OrderRefusal::ToItself(heir.clone()))
            }
            _ if pause.is_some() => Some(OrderRefusal::Paused),
            _ => None,
        };
        let output = match refusal {
            Some(refusal) => {
                self.heeded.refused = Some(handover);
                Output::OrderRefused(refusal)
            }
            None => {
                let heir = handover.to.clone();
                self.heeded.heir.clone_from(&heir);
                self.heeded.obeyed.push(*handover);
                Output::Ordered(Ordered::Handover(heir))
            }
        };
        self.outputs.push_back(output);
    }

    /// Whether what we know is a release to us.
    pub(super) fn is_named_heir(&self) -> bool {
        let released = |r: &&Record| r.released_by_its_holder();
        let release = self.knowledge.record().filter(released);
        let heir = release.and_then(|r| r.signed()?.heir.as_ref());
        heir == Some(&self.config.identity)
    }

    /// A release may name the one that is to go first. Whoever touches the record meanwhile does not put the others off.
    pub(super) fn let_heir_go_first(&mut self, now: Moment) {
        let released = self
            .knowledge
            .record()
            .filter(|r| r.released_by_its_holder());
        let Some(signature) = released.and_then(Record::signed) else {
            return;
        };
        let release = (signature.instance, signature.write);
        match &signature.heir {
            Some(heir) if *heir == self.config.identity => {
                self.requests.after_the_crowd = now;
                self.heeded.after_the_heir = now;
                if self.phase == Phase::Idle && self.heeded.heir_of != Some(release) {
                    self.outputs.push_back(Output::NamedHeir);
                }
            }
            Some(_) if self.heeded.heir_of != Some(release) => {
                self.heeded.after_the_heir = now + self.config.timings.heir_patience();
            }
            Some(_) => {}
            None => self.heeded.after_the_heir = now,
        }
        self.heeded.heir_of = Some(release);
    }
}
