//! The stream of messages, made one by one as the connection asks for them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::head::Head;
use super::outgoing::Outgoing;
use super::settings::Settings;
use super::subscriptions::Registration;

/// What `--oversized-at` sends: more than the 4 MiB that gRPC clients take by default.
const OVERSIZED: usize = 5 * 1024 * 1024;
/// Messages are awaited no more often than this; those that have come meanwhile are sent together.
const BATCH: Duration = Duration::from_millis(5);

/// One subscriber's stream.
#[derive(Debug)]
pub struct Messages {
    settings: Settings,
    head: Head,
    registration: Registration,
    last: u64,
    /// Of this stream.
    count: u64,
    /// The head, when it was last looked at.
    available: u64,
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

enum Step {
    Send(Outgoing),
    End(Option<Status>),
    /// For a request, or also for a moment.
    Wait(Option<Instant>),
}

impl Messages {
    pub(super) fn new(settings: Settings, head: Head, registration: Registration) -> Self {
        Self {
            settings,
            head,
            last: registration.control.last_sent(),
            registration,
            count: 0,
            available: 0,
            timer: None,
            is_over: false,
        }
    }

    fn step(&mut self) -> Step {
        let faults = &self.settings.faults;
        if let Some(cut) = self.registration.control.reason() {
            return Step::End(Some(cut.into()));
        }
        if let Some(limit) = faults.break_every
            && self.count >= limit.get()
        {
            let message = format!("broken on purpose after {limit} messages");
            return Step::End(Some(Status::unavailable(message)));
        }
        let is_stalled = faults.stall_after.is_some_and(|limit| self.count >= limit);
        let next = self.last.checked_add(1);
        let next = next.filter(|&next| !is_stalled && self.registration.control.may_send(next));
        let Some(next) = next else {
            return if self.registration.control.is_drained() {
                Step::End(None)
            } else {
                Step::Wait(None)
            };
        };
        if next > self.available {
            self.available = self.head.now();
        }
        if next > self.available {
            return Step::Wait(self.head.due(next));
        }
        Step::Send(self.message(next))
    }

    fn message(&self, position: u64) -> Outgoing {
        let Settings { recipe, faults, .. } = self.settings;
        if faults.malformed_at == Some(position) {
            return Outgoing::malformed();
        }
        let recipe = match faults.oversized_at {
            Some(at) if at == position => recipe.resized(OVERSIZED),
            _ => recipe,
        };
        Outgoing::Message { position, recipe }
    }

    fn wait(&mut self, until: Option<Instant>, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = until else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| {
            let soonest = Instant::now() + BATCH;
            Box::pin(sleep_until(due.max(soonest)))
        });
        ready!(timer.as_mut().poll(context));
        self.timer = None;
        Poll::Ready(())
    }

    fn end(&mut self, status: Option<Status>) -> Option<Result<Outgoing, Status>> {
        self.is_over = true;
        self.registration.control.note_over();
        status.map(Err)
    }
}

impl Stream for Messages {
    type Item = Result<Outgoing, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let mut is_registered = false;
        loop {
            match this.step() {
                Step::Send(message) => {
                    this.last += 1;
                    this.count += 1;
                    this.registration.control.note_sent(this.last);
                    return Poll::Ready(Some(Ok(message)));
                }
                Step::End(status) => return Poll::Ready(this.end(status)),
                // What happens between the look and the registration must not be missed: look again.
                Step::Wait(_) if !is_registered => {
                    this.registration.control.wake_up(context.waker());
                    is_registered = true;
                }
                Step::Wait(until) => ready!(this.wait(until, context)),
            }
        }
    }
}
