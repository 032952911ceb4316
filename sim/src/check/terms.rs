//! The terms as the store has seen them begin, and their tokens.

use soloist_core::ids::{InstanceId, Term, Token};

use super::{Holding, Violation};
use crate::clock::Nanos;

/// Every write that began a term, in the order in which they landed.
#[derive(Default)]
pub(crate) struct Terms(Vec<Begun>);

#[derive(Clone, Copy)]
pub(crate) struct Begun {
    holding: Holding,
    pub(crate) at: Nanos,
    /// How often the store had been set back by then.
    pub(crate) epoch: u32,
    /// As the replica was told, if it was.
    token: Option<Token>,
}

impl Terms {
    pub(crate) fn landed(&mut self, holding: Holding, at: Nanos, epoch: u32) {
        self.0.push(Begun {
            holding,
            at,
            epoch,
            token: None,
        });
    }

    pub(crate) fn find(&self, instance: InstanceId, term: Term) -> Option<Begun> {
        let ours = |begun: &&Begun| begun.holding == (instance, term);
        self.0.iter().rev().find(ours).copied()
    }

    /// A replica has been told that it leads. Within one life of the store, later terms have greater tokens.
    pub(super) fn elected(&mut self, holding: Holding, token: Token) -> Result<(), Violation> {
        let Some(index) = self.0.iter().rposition(|b| b.holding == holding) else {
            return Err(Violation::ElectedWithoutWrite);
        };
        let epoch = self.0[index].epoch;
        for (n, other) in self.0.iter().enumerate() {
            let Some(known) = other.token.filter(|_| other.epoch == epoch) else {
                continue;
            };
            let grows = match n < index {
                true => known < token,
                false => known > token,
            };
            if n != index && !grows {
                return Err(Violation::TokenDidNotGrow {
                    token,
                    other: known,
                });
            }
        }
        self.0[index].token = Some(token);
        Ok(())
    }
}
