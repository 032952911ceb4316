//! All chance of a schedule, from its seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};

use crate::clock::Nanos;

pub(crate) struct Rng(Pcg64Mcg);

impl Rng {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From `low` up to and including `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high - low + 1)
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        (self.bits() % length as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.bits() % 100 < chance
    }

    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.bits() % 1000 < chance
    }

    /// How long a local thing takes: mostly next to nothing, now and then up to `most`.
    pub(crate) fn latency(&mut self, most: Nanos) -> Nanos {
        if self.percent(95) {
            self.between(1_000, most / 10)
        } else {
            self.between(most / 10, most)
        }
    }
}
