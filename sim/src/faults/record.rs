//! An operator edits the lease record by hand, or restores the store from a backup.

use soloist_core::record::Record;

use super::{Fault, MOST_EDITED_SECONDS};
use crate::check::Eraser;
use crate::clock::SECOND;
use crate::store::foreign_holder;
use crate::world::{EditedPromise, World};

impl World {
    /// `false` if there was nothing to edit.
    pub(super) fn edit_record(&mut self, fault: Fault) -> bool {
        let before = self.store.record().cloned();
        let rng = &mut self.rng;
        let done = match fault {
            Fault::LeaseDeleted => self.store.delete(rng),
            Fault::LeaseEmptied => self.store.edit(rng, |r| r.holder = None),
            Fault::DurationEdited => {
                let seconds = rng.pick(&[0, 1, 2, 5, MOST_EDITED_SECONDS as i64]);
                self.store.edit(rng, |r| r.duration_seconds = Some(seconds))
            }
            Fault::HolderEdited => {
                let seconds = rng.pick(&[None, Some(1), Some(5)]);
                self.store.edit(rng, |r| {
                    r.holder = Some(foreign_holder());
                    r.duration_seconds = seconds.or(r.duration_seconds);
                })
            }
            Fault::SignatureStripped => self.store.edit(rng, |r| r.signature = None),
            Fault::FormerRecordRestored => self.store.restore(rng),
            Fault::ReleaseForged => self.store.edit(rng, |r| {
                r.holder = None;
                r.duration_seconds = Some(Record::RELEASED_SECONDS);
                r.signature = None;
            }),
            _ => self.store.edit(rng, |_| {}),
        };
        if done {
            self.note_edited_promise();
            self.note_erased_client_go(before.as_ref());
            self.note_erased(before, Eraser::Operator);
            let version = self.store.newest();
            self.tell_watchers(version);
        }
        done
    }

    fn note_edited_promise(&mut self) {
        let seconds = self.store.record().and_then(|r| r.duration_seconds);
        let length = seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0) * SECOND;
        let length = self.edited_promise.map_or(length, |p| p.length.max(length));
        let until = self.now + 3 * length.max(self.plan.longest_lease());
        self.edited_promise = Some(EditedPromise { length, until });
    }

    /// The whole store goes back to a backup, and its servers start anew: all watches break. Once in a schedule.
    pub(super) fn set_store_back(&mut self) -> bool {
        let before = self.store.record().cloned();
        let again = self.store.epoch > 0;
        if again || self.plan.one_machine || !self.store.set_back(&mut self.rng) {
            return false;
        }
        let newest = self.store.newest();
        self.trace.line(self.now, "---", || {
            format!("the store is at {newest} again")
        });
        self.note_erased_client_go(before.as_ref());
        self.note_erased(before, Eraser::SetBack);
        for host in 0..self.hosts.len() {
            self.break_watch(host);
        }
        true
    }
}
