//! The listener's connections: how many, for how long, and how patient with each.
//!
//! Whoever connects is let in. If there are too many, the oldest goes: so a probe is answered also while others hold connections
//! and say nothing.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::heartbeat::BEAT_EVERY;
use super::published::Published;
use super::routes::{self, Place};
use crate::http1;

/// Connections at a time; fewer where soloist itself may have few descriptors.
const MOST: usize = 64;
/// After this long a connection is closed when its request is answered, and after a little longer however that is.
const LONGEST: Duration = Duration::from_secs(60);
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// But a stream of `/events`, which may last. Its reader connects again by itself.
const LONGEST_STREAM: Duration = Duration::from_secs(3600);
/// Of the connections, those that may be such streams at a time: one in this many.
const STREAMS_ONE_IN: usize = 8;
/// After a failure to accept: no descriptor is left, say.
const PAUSE: Duration = Duration::from_millis(100);

/// Lets clients in, for ever.
pub(super) async fn serve(socket: TcpListener, published: Arc<Published>) -> io::Result<()> {
    let most = most();
    let mut open = Open::new(most);
    let places = Arc::new(Semaphore::new((most / STREAMS_ONE_IN).max(1)));
    let mut look = interval(BEAT_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    let task = tokio::spawn(converse(stream, Arc::clone(&published), Arc::clone(&places)));
                    open.admit(task.abort_handle());
                }
                Err(_) => sleep(PAUSE).await,
            },
            _ = look.tick() => published.look_at_the_loop(),
        }
    }
}

/// The elector needs descriptors more than we do.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MOST.min(usize::try_from(limit / 4).unwrap_or(MOST)).max(1)
}

async fn converse(stream: TcpStream, published: Arc<Published>, places: Arc<Semaphore>) {
    let streams = Arc::new(AtomicBool::new(false));
    let now_streams = Arc::clone(&streams);
    let connection = http1::serve(stream, move |request| {
        let place = Place::of(request, &places);
        now_streams.store(matches!(place, Place::Taken(_)), Ordering::Relaxed);
        routes::answer(request, &published, place)
    });
    let mut connection = pin!(connection);
    // What a client does wrong is its own business.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(LONGEST) => {}
    }
    if streams.load(Ordering::Relaxed) {
        let _ = timeout(LONGEST_STREAM, connection).await;
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_ANSWER_WITHIN, connection).await;
}

/// The connections that are open, the oldest first.
struct Open {
    most: usize,
    tasks: VecDeque<AbortHandle>,
}

impl Open {
    fn new(most: usize) -> Self {
        Self {
            most,
            tasks: VecDeque::with_capacity(most),
        }
    }

    fn admit(&mut self, task: AbortHandle) {
        if self.tasks.len() >= self.most {
            self.tasks.retain(|task| !task.is_finished());
        }
        if self.tasks.len() >= self.most
            && let Some(oldest) = self.tasks.pop_front()
        {
            oldest.abort();
        }
        self.tasks.push_back(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_goes_when_there_are_too_many() {
        let mut open = Open::new(2);
        let [first, second, third] = [(); 3].map(|()| tokio::spawn(std::future::pending::<()>()));
        for task in [&first, &second, &third] {
            open.admit(task.abort_handle());
        }
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(!second.is_finished() && !third.is_finished());
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());
        let fourth = tokio::spawn(std::future::pending::<()>());
        open.admit(fourth.abort_handle());
        tokio::task::yield_now().await;
        assert!(!third.is_finished(), "there was room");
    }
}
