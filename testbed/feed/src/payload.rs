//! What the message at a position holds: anyone can compute it, so nobody needs the server to check it.

use prost::bytes::{BufMut, Bytes};

/// The seed of a feed that was given none.
pub const DEFAULT_SEED: u64 = 1;

const CHECKSUM: usize = size_of::<u64>();
/// The golden ratio in 64 bits: the step of the generator.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What all payloads of a feed have in common.
///
/// A payload depends on the seed, the position and its own size, so a payload that was cut is not one of a smaller feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    seed: u64,
    size: usize,
}

/// A size that payloads cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a payload of {0} bytes is not possible: it is at least {min} (its checksum) and at most {max}",
    min = Recipe::MIN_SIZE,
    max = Recipe::MAX_SIZE
)]
pub struct SizeError(usize);

impl Recipe {
    /// A checksum and nothing else.
    pub const MIN_SIZE: usize = CHECKSUM;
    /// 16 MiB: more than any gRPC client takes by default.
    pub const MAX_SIZE: usize = 16 * 1024 * 1024;

    /// Payloads of `size` bytes.
    ///
    /// # Errors
    /// When they would be too small for their checksum, or too large.
    pub const fn try_new(seed: u64, size: usize) -> Result<Self, SizeError> {
        if size < Self::MIN_SIZE || size > Self::MAX_SIZE {
            return Err(SizeError(size));
        }
        Ok(Self { seed, size })
    }

    /// The same feed with payloads of another size, which is known to be possible.
    pub(crate) const fn resized(self, size: usize) -> Self {
        assert!(size >= Self::MIN_SIZE && size <= Self::MAX_SIZE);
        Self { size, ..self }
    }

    /// Bytes in every payload.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// What the message at this position holds.
    #[must_use]
    pub fn payload(&self, position: u64) -> Bytes {
        let mut bytes = Vec::with_capacity(self.size);
        self.write(position, &mut bytes);
        bytes.into()
    }

    /// As [`payload`](Self::payload), into a buffer that is there already.
    pub fn write(&self, position: u64, buffer: &mut impl BufMut) {
        let mut sum = begin_sum(position);
        let mut state = mix(self.seed) ^ mix(position) ^ (self.size as u64).wrapping_mul(STEP);
        let mut left = self.size - CHECKSUM;
        while left > 0 {
            state = state.wrapping_add(STEP);
            let word = mix(state).to_le_bytes();
            let word = &word[..left.min(word.len())];
            sum = add_to_sum(sum, word);
            buffer.put_slice(word);
            left -= word.len();
        }
        buffer.put_slice(&sum.to_le_bytes());
    }
}

/// Whether these are the bytes of the message at this position, whatever their number.
#[must_use]
pub fn is_right(seed: u64, position: u64, payload: &[u8]) -> bool {
    Recipe::try_new(seed, payload.len())
        .is_ok_and(|recipe| is_intact(position, payload) && recipe.payload(position) == payload)
}

/// Whether the checksum fits the position and the bytes: for who does not know the seed.
#[must_use]
pub fn is_intact(position: u64, payload: &[u8]) -> bool {
    let Some((body, sum)) = payload.split_last_chunk::<CHECKSUM>() else {
        return false;
    };
    let words = body.chunks(size_of::<u64>());
    words.fold(begin_sum(position), add_to_sum) == u64::from_le_bytes(*sum)
}

fn begin_sum(position: u64) -> u64 {
    mix(position ^ STEP)
}

fn add_to_sum(sum: u64, bytes: &[u8]) -> u64 {
    let mut word = [0; size_of::<u64>()];
    word[..bytes.len()].copy_from_slice(bytes);
    // The number of bytes too: the zeros that fill up a last word are not part of it.
    mix(sum.wrapping_add(bytes.len() as u64) ^ u64::from_le_bytes(word))
}

/// The finisher of splitmix64: every bit of the input has its part in every bit of the output.
pub(crate) const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_same_for_everyone_and_unlike_all_others() {
        for size in [8, 9, 16, 21, 1000] {
            let recipe = Recipe::try_new(7, size).unwrap();
            let payload = recipe.payload(42);
            assert_eq!(payload.len(), size);
            assert_eq!(payload, recipe.payload(42));
            assert_ne!(payload, recipe.payload(43));
            assert!(is_right(7, 42, &payload) && is_intact(42, &payload));
            assert!(!is_right(7, 43, &payload) && !is_intact(43, &payload));
            let other_seed = Recipe::try_new(8, size).unwrap().payload(42);
            assert_eq!(other_seed == payload, size == 8, "only a checksum");
        }
    }

    #[test]
    fn every_changed_cut_or_added_byte_is_noticed() {
        let payload = Recipe::try_new(1, 29).unwrap().payload(3);
        for at in 0..payload.len() {
            let mut changed = payload.to_vec();
            changed[at] ^= 0x10;
            assert!(!is_intact(3, &changed) && !is_right(1, 3, &changed), "{at}");
            assert!(!is_right(1, 3, &payload[..at]), "cut to {at}");
        }
        let longer = [&payload[..], &[0]].concat();
        assert!(!is_right(1, 3, &longer));
    }

    #[test]
    fn the_payload_never_changes_between_versions() {
        let payload = Recipe::try_new(1, 16).unwrap().payload(1);
        assert_eq!(payload, &b"U\x12Ru\\\x82)}P?Z\xfa\xf7*\xacj"[..]);
    }

    #[test]
    fn sizes_without_room_for_the_checksum_are_refused() {
        let error = Recipe::try_new(1, 7).unwrap_err().to_string();
        assert!(error.starts_with("a payload of 7 bytes"), "{error}");
        assert!(Recipe::try_new(1, Recipe::MAX_SIZE + 1).is_err());
    }
}
