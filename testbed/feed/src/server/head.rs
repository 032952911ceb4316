//! How far the feed has been produced.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::store::{Production, Store, StoreError};

/// The last position produced, which grows with time.
///
/// It goes on while the server is down, as if the messages came from elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    rate: u64,
    messages: u64,
    base: u64,
    /// Not below what was acknowledged, also when the clock on the wall was set back meanwhile.
    floor: u64,
    /// How long this rate had lasted when the server started.
    lasted: Duration,
    started: Instant,
}

impl Head {
    /// Goes on from what the store knows, or begins anew when the rate is another one.
    pub(super) fn resume(store: &Store, rate: u64, messages: u64) -> Result<Self, StoreError> {
        let now = SystemTime::now();
        let former = store.production();
        let acked = store.acked();
        let production = match former {
            Some(former) if former.rate == rate => former,
            _ => {
                let base = former.map_or(0, |former| {
                    let lasted = now.duration_since(former.moment).unwrap_or_default();
                    former.base.saturating_add(produced(former.rate, lasted))
                });
                let moment = now;
                let base = base.max(acked);
                let production = Production { rate, moment, base };
                store.write_production(production)?;
                production
            }
        };
        let lasted = now.duration_since(production.moment).unwrap_or_default();
        Ok(Self {
            rate,
            messages,
            base: production.base,
            floor: acked,
            lasted,
            started: Instant::now(),
        })
    }

    /// The last position that has been produced.
    pub(super) fn now(&self) -> u64 {
        if self.rate == 0 {
            return self.messages;
        }
        let produced = produced(self.rate, self.lasted + self.started.elapsed());
        let position = self.base.saturating_add(produced);
        position.max(self.floor).min(self.messages)
    }

    /// When a position beyond [`now`](Self::now) is due; `None`: never.
    pub(super) fn due(&self, position: u64) -> Option<Instant> {
        if self.rate == 0 || position > self.messages {
            return None;
        }
        let count = u128::from(position.saturating_sub(self.base));
        let nanos = (count * NANOS).div_ceil(self.rate.into());
        let after = Duration::from_nanos(u64::try_from(nanos).ok()?);
        self.started.checked_add(after.saturating_sub(self.lasted))
    }
}

const NANOS: u128 = 1_000_000_000;

fn produced(rate: u64, lasted: Duration) -> u64 {
    let count = lasted.as_nanos() * u128::from(rate) / NANOS;
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_of(production: Option<Production>) -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        if let Some(production) = production {
            let store = Store::open(&path).unwrap();
            store.write_production(production).unwrap();
        }
        let store = Store::open(&path).unwrap();
        (directory, store)
    }

    fn an_hour_ago(rate: u64) -> Option<Production> {
        let moment = SystemTime::now() - Duration::from_secs(3600);
        let base = 5;
        Some(Production { rate, moment, base })
    }

    #[tokio::test(start_paused = true)]
    async fn a_position_is_produced_when_it_is_due() {
        let (_directory, store) = store_of(None);
        let head = Head::resume(&store, 3, 7).unwrap();
        for position in 1..=7 {
            assert_eq!(head.now(), position - 1);
            tokio::time::sleep_until(head.due(position).unwrap()).await;
        }
        assert_eq!(head.now(), 7);
        assert_eq!(head.due(8), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_head_goes_on_while_the_server_is_down() {
        let (_directory, store) = store_of(an_hour_ago(10));
        let head = Head::resume(&store, 10, u64::MAX).unwrap();
        assert!((36_005..37_000).contains(&head.now()), "{}", head.now());
    }

    #[tokio::test(start_paused = true)]
    async fn another_rate_goes_on_from_where_the_former_one_was() {
        let (_directory, store) = store_of(an_hour_ago(10));
        let head = Head::resume(&store, 1, u64::MAX).unwrap();
        assert!((36_005..37_000).contains(&head.now()), "{}", head.now());
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert!((37_005..38_000).contains(&head.now()), "{}", head.now());
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_all_is_there_from_the_start() {
        let (_directory, store) = store_of(None);
        let head = Head::resume(&store, 0, 100).unwrap();
        assert_eq!((head.now(), head.due(101)), (100, None));
    }
}
