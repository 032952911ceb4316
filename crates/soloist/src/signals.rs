//! The signals that soloist gets.

use std::io;
use std::time::Duration;

use soloist_core::time::Moment;
use soloist_process::{HeldSignals, Signal, was_ignored};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGTERM, SIGINT or the stop signal: stop, and the second time at once.
    Stop(Signal),
    /// For the child.
    PassOn(Signal),
}

const STOPPING: [&str; 2] = ["TERM", "INT"];
/// And the real-time ones. What is not here stops or ends soloist itself, or is none of its business.
const PASSED_ON: [&str; 12] = [
    "HUP", "QUIT", "USR1", "USR2", "WINCH", "ALRM", "URG", "IO", "PWR", "PROF", "VTALRM", "STKFLT",
];
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// On a terminal a stop signal of another kind that follows the first within this time belongs to it: who types Ctrl-C sends SIGINT
/// to all that is there, and whoever started one of them stops it with SIGTERM besides. Which of the two is heard first is chance.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Tells a second request to stop from a second signal of the first one.
#[derive(Debug)]
pub(crate) struct StopRequests {
    on_terminal: bool,
    first: Option<(Signal, Moment)>,
}

impl StopRequests {
    pub(crate) const fn new(on_terminal: bool) -> Self {
        Self {
            on_terminal,
            first: None,
        }
    }

    /// Whether this is a request of its own.
    pub(crate) fn is_new(&mut self, now: Moment, signal: Signal) -> bool {
        let (first, at) = *self.first.get_or_insert((signal, now));
        !self.on_terminal || signal == first || now.since(at) >= ONE_REQUEST
    }
}

/// Whether soloist can listen to this signal, and so take it as the one that means stop.
pub(crate) fn can_stop(text: &str) -> Result<Signal, String> {
    let signal: Signal = text.parse().map_err(|error| format!("{error}"))?;
    let means_stop = |meaning: &Signalled| *meaning == Signalled::Stop(signal);
    match all_signals(signal).iter().any(means_stop) {
        true => Ok(signal),
        false => Err(format!(
            "{signal} cannot be listened to, so nobody could stop soloist with it: take {}, {} or a real-time one",
            STOPPING.join(", "),
            PASSED_ON.join(", ")
        )),
    }
}

/// Listens from now on, also to what has come before.
///
/// What we were started to ignore stays ignored, by soloist and its child, unless it is SIGTERM or the stop signal: `nohup` means it.
pub(crate) fn listen(
    stop_signal: Signal,
    held: HeldSignals,
) -> io::Result<mpsc::UnboundedReceiver<Signalled>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut heard = Vec::new();
    for signalled in all_signals(stop_signal) {
        let (Signalled::Stop(which) | Signalled::PassOn(which)) = signalled;
        if was_ignored(which) && which != Signal::TERM && which != stop_signal {
            continue;
        }
        let mut stream = match signal(SignalKind::from_raw(which.number())) {
            Ok(stream) => stream,
            // Some C libraries keep the first ones to themselves.
            Err(_) if REAL_TIME.contains(&which.number()) => continue,
            Err(error) => return Err(error),
        };
        heard.push(which);
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(signalled).is_err() {
                    return;
                }
            }
        });
    }
    held.release(heard);
    Ok(receiver)
}

/// What each signal means. An image may name any of them as the one that stops its program.
fn all_signals(stop_signal: Signal) -> Vec<Signalled> {
    let named = STOPPING.iter().chain(&PASSED_ON);
    let named = named.filter_map(|name| name.parse().ok());
    let real_time = REAL_TIME.filter_map(Signal::from_number);
    let stops = |signal: Signal| {
        let named = STOPPING.iter().filter_map(|name| name.parse().ok());
        signal == stop_signal || named.into_iter().any(|stopping: Signal| stopping == signal)
    };
    let meaning = |signal: Signal| match stops(signal) {
        true => Signalled::Stop(signal),
        false => Signalled::PassOn(signal),
    };
    named.chain(real_time).map(meaning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_signal_means_stop_whichever_it_is() {
        for name in ["QUIT", "WINCH", "RTMIN+3", "USR1"] {
            let signal: Signal = name.parse().unwrap();
            let signals = all_signals(signal);
            assert!(signals.contains(&Signalled::Stop(signal)), "{name}");
            assert!(!signals.contains(&Signalled::PassOn(signal)), "{name}");
            assert!(signals.contains(&Signalled::Stop(Signal::TERM)), "{name}");
        }
        let usual = all_signals(Signal::TERM);
        let stopping = usual.iter().filter(|s| matches!(s, Signalled::Stop(_)));
        assert_eq!(stopping.count(), 2);
    }

    #[test]
    fn a_signal_that_nobody_can_listen_to_cannot_be_the_stop_signal() {
        for name in ["TERM", "SIGINT", "QUIT", "WINCH", "RTMIN+3", "12"] {
            assert!(can_stop(name).is_ok(), "{name}");
        }
        for name in [
            "KILL", "STOP", "CHLD", "CONT", "ABRT", "SEGV", "TSTP", "nonsense",
        ] {
            assert!(can_stop(name).is_err(), "{name}");
        }
        let refusal = can_stop("KILL").unwrap_err();
        assert!(
            refusal.starts_with("SIGKILL cannot be listened to"),
            "{refusal}"
        );
    }

    #[test]
    fn an_interrupt_and_the_signal_that_follows_it_are_one_request_on_a_terminal() {
        let at = |millis| Moment::since_boot(Duration::from_millis(millis));
        let int: Signal = "INT".parse().unwrap();
        let mut requests = StopRequests::new(true);
        assert!(requests.is_new(at(0), int));
        assert!(!requests.is_new(at(20), Signal::TERM));
        assert!(requests.is_new(at(300), int), "typed twice");
        assert!(
            requests.is_new(at(1000), Signal::TERM),
            "asked again, later"
        );
    }

    #[test]
    fn without_a_terminal_every_signal_is_a_request() {
        let now = Moment::since_boot(Duration::ZERO);
        let mut requests = StopRequests::new(false);
        assert!(requests.is_new(now, Signal::TERM));
        assert!(requests.is_new(now, "INT".parse().unwrap()));
    }

    #[test]
    fn every_real_time_signal_goes_to_the_child() {
        let signals = all_signals(Signal::TERM);
        for number in REAL_TIME {
            let signal = Signal::from_number(number).unwrap();
            assert!(signals.contains(&Signalled::PassOn(signal)), "{signal}");
        }
    }
}
