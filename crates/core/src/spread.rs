//! Random spread from a seed that the caller gives.

use core::time::Duration;

/// A small deterministic generator (SplitMix64). Good enough to keep replicas from acting in step;
/// the caller seeds it, so a simulated schedule replays.
#[derive(Clone, Debug)]
pub struct Spread(u64);

impl Spread {
    /// Replicas need different seeds, else they all spread alike.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A duration from zero up to and including `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let part = u32::try_from(bits >> 32).unwrap_or(u32::MAX);
        most.mul_f64(f64::from(part) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_over_the_whole_range_and_never_past_it() {
        let most = Duration::from_millis(500);
        let mut spread = Spread::from_seed(7);
        let mut low = most;
        let mut high = Duration::ZERO;
        for _ in 0..1000 {
            let drawn = spread.up_to(most);
            low = low.min(drawn);
            high = high.max(drawn);
        }
        assert!(low < most / 50 && high > most * 49 / 50 && high <= most);
        assert_eq!(spread.up_to(Duration::ZERO), Duration::ZERO);
    }
}
