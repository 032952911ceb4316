//! What a feed is like, and what is to go wrong with it.

use std::num::NonZeroU64;
use std::time::Duration;

use tonic::Code;

use crate::payload::Recipe;

/// What a feed is like.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Messages per second; 0: as fast as the client takes them.
    pub rate: u64,
    /// The last position to produce.
    pub messages: u64,
    /// What the messages hold.
    pub recipe: Recipe,
    /// What is to go wrong.
    pub faults: Faults,
}

/// What is to go wrong, for tests. By default, nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A stream breaks with `UNAVAILABLE` after as many messages.
    pub break_every: Option<NonZeroU64>,
    /// A stream stays open and silent after as many messages.
    pub stall_after: Option<u64>,
    /// In the place of the message at this position there are bytes that are none.
    pub malformed_at: Option<u64>,
    /// The message at this position is larger than a client takes.
    pub oversized_at: Option<u64>,
    /// Every Subscribe is refused with this code.
    pub refuse: Option<Code>,
    /// How long the server takes to end a stream after a Drain.
    pub drain_delay: Duration,
    /// How long it takes to note an Ack.
    pub ack_delay: Duration,
}
