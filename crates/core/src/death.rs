//! What Kubernetes reports of a Pod's containers, and whose death it proves.
//!
//! soloist leaves its instance id in its container's termination message. The kubelet reads that file out of the very container
//! whose end it reports, so an end that bears the id of a record's signature is the end of the process that signed it. Who names
//! a Pod in its signature is the first process of a PID namespace, and the kernel lets such a process go only when nothing is
//! left in the namespace.
//!
//! Whether the Pod is being deleted, its phase and its node are not here: they prove nothing.

use alloc::vec::Vec;

use crate::ids::{InstanceId, PodUid};
use crate::record::Record;

/// What the status of a Pod says of soloist's containers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport {
    /// Which Pod.
    pub pod: PodUid,
    /// Those that have ended, as far as they are still told.
    pub ends: Vec<ContainerEnd>,
}

/// A container that is reported as ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerEnd {
    /// Who ran in it, by its termination message.
    pub instance: InstanceId,
    /// The runtime saw the end of its first process. Else it had lost track of it, and made the end up.
    pub witnessed: bool,
}

/// The deaths that are proven. An end is for good, so a late report proves as much as one in time.
#[derive(Clone, Debug)]
pub struct Deaths(Vec<(PodUid, InstanceId)>);

impl Deaths {
    /// More than one lease has holders that somebody may still wait for.
    const MOST: usize = 16;

    /// None yet.
    pub const NONE: Self = Self(Vec::new());

    /// Takes in what was reported.
    pub fn note(&mut self, report: &PodReport) {
        for end in report.ends.iter().filter(|end| end.witnessed) {
            let death = (report.pod.clone(), end.instance);
            if self.0.contains(&death) {
                continue;
            }
            if self.0.len() == Self::MOST {
                self.0.remove(0);
            }
            self.0.push(death);
        }
    }

    /// Whether the holder in the record, and all that could act for it, is dead.
    #[must_use]
    pub fn prove(&self, record: &Record) -> bool {
        let Some(signed) = record.signed() else {
            return false;
        };
        let Some(pod) = &signed.pod else {
            return false;
        };
        let same = |death: &(PodUid, InstanceId)| death.0 == *pod && death.1 == signed.instance;
        record.holder.is_some() && self.0.iter().any(same)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::ids::{Identity, OpId, Term, Version};
    use crate::orders::Orders;
    use crate::record::Signature;
    use crate::timings::LeaseDuration;

    const HOLDER: InstanceId = InstanceId::from_random(1);
    const OTHER: InstanceId = InstanceId::from_random(2);

    fn held(pod: Option<&str>) -> Record {
        let holder = Identity::found("a").unwrap();
        Record {
            holder: Some(holder.clone()),
            duration_seconds: Some(15),
            transitions: 4,
            signature: Some(Signature {
                instance: HOLDER,
                pod: pod.and_then(PodUid::new),
                holder,
                term: Term::new(4),
                duration: LeaseDuration::try_new(Duration::from_secs(15)).unwrap(),
                write: OpId::new(9),
                base: Version::new(3),
                released: false,
                heir: None,
            }),
            orders: Orders::NONE,
        }
    }

    fn report(pod: &str, instance: InstanceId, witnessed: bool) -> PodReport {
        let end = ContainerEnd {
            instance,
            witnessed,
        };
        PodReport {
            pod: PodUid::new(pod).unwrap(),
            ends: Vec::from([end]),
        }
    }

    fn proves(report: &PodReport, record: &Record) -> bool {
        let mut deaths = Deaths::NONE;
        deaths.note(report);
        deaths.prove(record)
    }

    #[test]
    fn the_end_of_the_holders_own_container_proves_its_death() {
        assert!(proves(&report("p", HOLDER, true), &held(Some("p"))));
    }

    #[test]
    fn the_end_of_another_container_proves_nothing_also_in_the_same_pod() {
        assert!(!proves(&report("p", OTHER, true), &held(Some("p"))));
        assert!(!proves(&report("q", HOLDER, true), &held(Some("p"))));
    }

    #[test]
    fn an_end_that_nobody_saw_proves_nothing() {
        assert!(!proves(&report("p", HOLDER, false), &held(Some("p"))));
    }

    #[test]
    fn who_is_not_alone_in_its_container_may_survive_it() {
        assert!(!proves(&report("p", HOLDER, true), &held(None)));
    }

    #[test]
    fn a_record_whose_holder_was_edited_is_not_the_dead_ones() {
        let edited = Record {
            holder: Identity::found("b"),
            ..held(Some("p"))
        };
        assert!(!proves(&report("p", HOLDER, true), &edited));
    }

    #[test]
    fn many_deaths_do_not_crowd_out_the_last() {
        let mut deaths = Deaths::NONE;
        for bits in 10..100 {
            deaths.note(&report("p", InstanceId::from_random(bits), true));
        }
        deaths.note(&report("p", HOLDER, true));
        assert!(deaths.prove(&held(Some("p"))));
        assert_eq!(deaths.0.len(), Deaths::MOST);
    }
}
