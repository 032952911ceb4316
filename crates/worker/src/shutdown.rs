//! One level of a shutdown: when it began, and how long it may take.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A level of the tree process → term → stream.
///
/// To begin the shutdown of a level begins that of all below it. Each has a time of its own, which the levels above can
/// only shorten. Clones are the same level.
#[derive(Clone, Debug)]
pub struct Shutdown {
    level: Arc<Level>,
}

#[derive(Debug)]
struct Level {
    budget: Duration,
    above: Option<Shutdown>,
    announced: CancellationToken,
    begun: Mark,
    hurried: Mark,
}

/// Something that happens once, and when.
#[derive(Debug)]
struct Mark {
    token: CancellationToken,
    at: OnceLock<Instant>,
}

impl Mark {
    fn new(token: CancellationToken) -> Self {
        let at = OnceLock::new();
        Self { token, at }
    }

    fn set(&self) {
        // Before the token: who wakes up must find it.
        self.at.get_or_init(Instant::now);
        self.token.cancel();
    }
}

impl Shutdown {
    /// The top of a tree, with the time that its shutdown may take.
    #[must_use]
    pub fn new(budget: Duration) -> Self {
        let begun = Mark::new(CancellationToken::new());
        let hurried = Mark::new(CancellationToken::new());
        Self::from_level(Level {
            budget,
            above: None,
            announced: CancellationToken::new(),
            begun,
            hurried,
        })
    }

    /// A level below this one.
    #[must_use]
    pub fn below(&self, budget: Duration) -> Self {
        Self::from_level(Level {
            budget,
            above: Some(self.clone()),
            announced: self.level.announced.child_token(),
            begun: Mark::new(self.level.begun.token.child_token()),
            hurried: Mark::new(self.level.hurried.token.child_token()),
        })
    }

    fn from_level(level: Level) -> Self {
        Self {
            level: Arc::new(level),
        }
    }

    /// Says of this level and of all below that the shutdown will come soon. All goes on; but who waits for new requests sends
    /// its clients elsewhere meanwhile. It cannot be taken back.
    pub fn announce(&self) {
        self.level.announced.cancel();
    }

    /// Whether the shutdown was announced, or has begun, here or above.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.level.announced.is_cancelled()
    }

    /// Waits until the shutdown is announced, or begins.
    pub async fn announced(&self) {
        self.level.announced.cancelled().await;
    }

    /// Begins the shutdown of this level and of all below. Only the first time counts.
    pub fn begin(&self) {
        self.level.begun.set();
        self.announce();
    }

    /// Whether the shutdown has begun, here or above.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        // Asked for every message of a stream: not the token, which has a lock.
        let level = &self.level;
        level.begun.at.get().is_some() || level.above.as_ref().is_some_and(Self::is_begun)
    }

    /// Waits until the shutdown begins.
    pub async fn begun(&self) {
        self.level.begun.token.cancelled().await;
    }

    /// Begins the shutdown if need be, and ends its time at once.
    pub fn hurry(&self) {
        self.level.hurried.set();
        self.begin();
    }

    /// When this level must be done. `None` before its shutdown has begun.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let level = &self.level;
        let own = level.begun.at.get().map(|&at| at + level.budget);
        let above = level.above.as_ref();
        let inherited = above.and_then(|above| {
            let latest = above.deadline()?;
            let begun = above.begun_at()?;
            Some(latest.min(begun + level.budget))
        });
        let hurried = level.hurried.at.get().copied();
        [own, inherited, hurried].into_iter().flatten().min()
    }

    fn begun_at(&self) -> Option<Instant> {
        let above = self.level.above.as_ref().and_then(Self::begun_at);
        let own = self.level.begun.at.get().copied();
        [own, above].into_iter().flatten().min()
    }

    /// What is left of this level's time. `None` before its shutdown has begun.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let deadline = self.deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// The time that this level's shutdown may take, when it begins.
    #[must_use]
    pub fn budget(&self) -> Duration {
        let above = self.level.above.as_ref().map(Self::budget);
        above.map_or(self.level.budget, |above| above.min(self.level.budget))
    }

    /// Waits until the shutdown has begun and its time has run out. A level above that begins later may end it sooner.
    pub async fn over(&self) {
        self.begun().await;
        loop {
            let deadline = self.deadline().unwrap_or_else(Instant::now);
            let above_begun = async {
                match self.next_above() {
                    Some(above) => above.begun().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep_until(deadline) => return,
                () = self.level.hurried.token.cancelled() => return,
                () = above_begun => {}
            }
        }
    }

    /// The nearest level above whose shutdown has not begun.
    fn next_above(&self) -> Option<&Self> {
        let above = self.level.above.as_ref()?;
        match above.is_begun() {
            true => above.next_above(),
            false => Some(above),
        }
    }

    /// For code that knows of tokens only: cancelled when this level's shutdown begins. To cancel it begins nothing.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.level.begun.token.child_token()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn tree() -> [Shutdown; 3] {
        let process = Shutdown::new(s(20));
        let term = process.below(s(20));
        let stream = term.below(s(15));
        [process, term, stream]
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_flows_down_and_not_up() {
        let [process, term, stream] = tree();
        stream.begin();
        assert!(stream.is_begun() && !term.is_begun() && !process.is_begun());
        let second = term.below(s(15));
        process.begin();
        assert!(process.is_begun() && term.is_begun() && second.is_begun());
        second.begun().await;
        assert!(term.below(s(1)).is_begun(), "born into a shutdown");
    }

    #[tokio::test(start_paused = true)]
    async fn every_level_has_its_own_time_from_when_it_began() {
        let [process, term, stream] = tree();
        assert_eq!(process.time_left(), None);
        assert_eq!(stream.time_left(), None);
        process.begin();
        advance(s(3)).await;
        assert_eq!(process.time_left(), Some(s(17)));
        assert_eq!(term.time_left(), Some(s(17)));
        assert_eq!(stream.time_left(), Some(s(12)));
        advance(s(13)).await;
        assert_eq!(stream.time_left(), Some(Duration::ZERO));
        assert_eq!(process.time_left(), Some(s(4)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_level_above_can_only_shorten_the_time() {
        let [process, _, stream] = tree();
        process.begin();
        advance(s(10)).await;
        // It began with the process; to begin it again does not give it more.
        stream.begin();
        assert_eq!(stream.time_left(), Some(s(5)));

        let [process, term, stream] = tree();
        term.begin();
        advance(s(10)).await;
        process.begin();
        assert_eq!(stream.time_left(), Some(s(5)));
        assert_eq!(process.time_left(), Some(s(20)));
        let short = Shutdown::new(s(2));
        let long = short.below(s(15));
        short.begin();
        assert_eq!(long.time_left(), Some(s(2)));
        assert_eq!(long.budget(), s(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hurry_ends_the_time_of_all_below_at_once() {
        let [process, term, stream] = tree();
        process.begin();
        advance(s(1)).await;
        let waits = tokio::spawn({
            let stream = stream.clone();
            async move { stream.over().await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        term.hurry();
        waits.await.unwrap();
        assert_eq!(stream.time_left(), Some(Duration::ZERO));
        assert_eq!(process.time_left(), Some(s(19)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_over_at_the_deadline_and_not_before() {
        let [process, _, stream] = tree();
        process.begin();
        let begun = Instant::now();
        stream.over().await;
        assert_eq!(begun.elapsed(), s(15));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_over_sooner_when_a_shorter_level_above_begins_later() {
        let process = Shutdown::new(s(4));
        let stream = process.below(s(15)).below(s(15));
        stream.begin();
        let begun = Instant::now();
        let waits = tokio::spawn(async move {
            stream.over().await;
            begun.elapsed()
        });
        tokio::time::sleep(s(5)).await;
        process.begin();
        assert_eq!(waits.await.unwrap(), s(9));
    }

    #[tokio::test(start_paused = true)]
    async fn the_token_that_is_given_out_follows_and_does_not_lead() {
        let [process, term, _] = tree();
        let token = term.token();
        token.cancel();
        assert!(!term.is_begun());
        let token = term.token();
        process.begin();
        assert!(token.is_cancelled());
    }
}
