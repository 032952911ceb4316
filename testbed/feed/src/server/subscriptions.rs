//! The streams that are open, by subscription.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use soloist_worker::Token;
use soloist_worker::fence::{Fence, StaleToken};

use super::control::{Control, Cut};

/// At most one stream for a subscription.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    open: Mutex<Open>,
}

/// A stream's place among the others, until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    subscriptions: Arc<Subscriptions>,
    name: String,
    pub(super) control: Arc<Control>,
}

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<String, (Token, Arc<Control>)>,
    is_stopped: bool,
}

impl Subscriptions {
    /// Notes a new stream, in the place of the former one with this name.
    pub(super) fn add(
        self: &Arc<Self>,
        name: String,
        token: Token,
        after: u64,
        fence: &Fence,
    ) -> Result<Registration, Cut> {
        let mut open = self.lock();
        if open.is_stopped {
            return Err(Cut::Stopped);
        }
        check(token, fence)?;
        let control = Arc::new(Control::new(after));
        let entry = (token, Arc::clone(&control));
        if let Some((_, former)) = open.streams.insert(name.clone(), entry) {
            former.cut(Cut::Replaced);
        }
        Ok(Registration {
            subscriptions: Arc::clone(self),
            name,
            control,
        })
    }

    /// Does what a newer token must not overtake: when the request that bears it goes on, this is done or refused.
    pub(super) fn act_as<T>(
        &self,
        token: Token,
        fence: &Fence,
        act: impl FnOnce() -> T,
    ) -> Result<T, StaleToken> {
        // A newer request takes this lock after its token was admitted, to cut the older streams.
        let _open = self.lock();
        check(token, fence)?;
        Ok(act())
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<Control>> {
        let open = self.lock();
        open.streams
            .get(name)
            .map(|(_, control)| Arc::clone(control))
    }

    /// Ends all streams of older tokens than this one.
    pub(super) fn cut_older(&self, highest: Token) {
        self.lock().streams.retain(|_, (token, control)| {
            let token = *token;
            let is_current = token >= highest;
            if !is_current {
                control.cut(Cut::Stale(StaleToken { token, highest }));
            }
            is_current
        });
    }

    /// Ends all streams, and lets no new one in.
    pub(super) fn stop(&self) {
        let mut open = self.lock();
        open.is_stopped = true;
        for (_, (_, control)) in open.streams.drain() {
            control.cut(Cut::Stopped);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since a token was admitted a newer one may have come and cut all older streams; one more would be missed.
fn check(token: Token, fence: &Fence) -> Result<(), StaleToken> {
    let highest = fence.highest();
    if token < highest {
        return Err(StaleToken { token, highest });
    }
    Ok(())
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut open = self.subscriptions.lock();
        // Another stream may have taken the name.
        if let Some((_, control)) = open.streams.get(&self.name)
            && Arc::ptr_eq(control, &self.control)
        {
            open.streams.remove(&self.name);
        }
        self.control.note_over();
    }
}
