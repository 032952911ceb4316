//! What was seen, in words: what is well, what is not, and what to do.

use std::time::Duration;

use soloist_core::replica::{Exit, SpawnFailure};
use soloist_core::time::Human;
use soloist_process::Signal;

use super::program::{Ending, Start};
use super::survivors::{Disposition, Process};
use super::{KILL, LOST_LEASE, START, STOP};
use crate::cli::Ready;
use crate::report::{Report, Verdict, read};
use crate::settings::Settings;

pub(super) const fn code_of(failure: SpawnFailure) -> u8 {
    match failure {
        SpawnFailure::NotFound => 127,
        SpawnFailure::NotExecutable => 126,
        SpawnFailure::System => 1,
    }
}

/// A length for people, in whole milliseconds, and from ten seconds on in tenths.
pub(super) fn rounded(length: Duration) -> Human {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let step = if millis >= 10_000 { 100 } else { 1 };
    Human(Duration::from_millis(millis / step * step))
}

pub(super) fn start(settings: &Settings, group: &'static str, start: &Start, report: &mut Report) {
    let again = group != START;
    let stays_up = if again {
        "it starts again and stays up"
    } else {
        "it starts and stays up"
    };
    let program = settings.command[0].to_string_lossy();
    match start {
        Start::CannotRun(error) => {
            let advice = match error.failure {
                SpawnFailure::NotFound => {
                    "Is it spelled right, is it in $PATH, is it in this image? Give its whole path"
                }
                SpawnFailure::NotExecutable => {
                    "Is it a program for this machine, and may this user run it (chmod +x)?"
                }
                SpawnFailure::System => "Try again when the machine has memory and processes left",
            };
            report.add(
                group,
                stays_up,
                Verdict::bad(format!("{program}: {error}"), advice, read::CONTRACT),
            );
        }
        Start::Ended { exit, after } => {
            let reason = format!(
                "it ended {} after it was started, {}",
                rounded(*after),
                how(*exit)
            );
            let advice = match (again, exit) {
                (true, _) => {
                    "What did its last end leave behind: a lock file, a pid file, a socket? The next start must not fail of it"
                }
                (false, Exit::Code(0)) => {
                    "soloist would start it again and again. A program that puts itself into the background must stay in the foreground; one that \
                     has work for a while and then ends is run with `soloist run --once`"
                }
                (false, _) => {
                    "Look at what it has printed, and whether it runs here without soloist"
                }
            };
            report.add(
                group,
                stays_up,
                Verdict::bad(reason, advice, read::CONTRACT),
            );
        }
        Start::NotUp { waited } => {
            let waited = rounded(*waited);
            let (reason, advice) = match &settings.ready {
                Ready::Started => (format!("it was not started within {waited}"), "Try again when the machine is less busy".to_owned()),
                Ready::Notify => (
                    format!("it never said READY=1 to $NOTIFY_SOCKET, for {waited}"),
                    "Send READY=1 when it is up (sd_notify, or `systemd-notify --ready` in a shell), raise --start-limit, or leave --ready notify away".to_owned(),
                ),
                Ready::Probe(probe) => (
                    format!("{probe} did not pass for {waited}"),
                    "Is it the right address, and does the program listen there by itself? Raise --start-limit if it only needs longer".to_owned(),
                ),
            };
            report.add(
                group,
                "it gets ready",
                Verdict::bad(reason, advice, read::CONTRACT),
            );
        }
        Start::Up(up) if again => report.add(
            group,
            stays_up,
            Verdict::good(format!("up after {}", rounded(up.after))),
        ),
        Start::Up(up) => {
            report.add(group, stays_up, Verdict::good(""));
            let verdict = match (&settings.ready, up.said_ready) {
                (Ready::Started, true) => Verdict::warning(
                    "it said READY=1, and nobody listens to it: it counts as up as soon as it is started",
                    "Give `soloist run` --ready notify",
                    read::CONTRACT,
                ),
                (Ready::Started, false) => Verdict::good(
                    "it counts as up as soon as it is started; if it needs time to get up, see --ready",
                ),
                (Ready::Notify | Ready::Probe(_), _) => {
                    Verdict::good(format!("after {}", rounded(up.after)))
                }
            };
            report.add(group, "it gets ready", verdict);
        }
    }
}

pub(super) fn health(passed: Result<(), String>, report: &mut Report) {
    let verdict = match passed {
        Ok(()) => Verdict::good(""),
        Err(reason) => Verdict::bad(
            reason,
            "Mend the check or the program: after three failures in a row it is restarted",
            read::CONTRACT,
        ),
    };
    report.add(START, "its health check passes", verdict);
}

pub(super) fn stop(settings: &Settings, ending: &Ending, report: &mut Report) {
    let ladder = &settings.policy.ladder;
    let (signal, limit) = (settings.stop_signal, ladder.stop());
    let took = rounded(ending.took);
    let what = format!("it ends on {signal}");
    let ended = ending
        .exit
        .map_or_else(|| "nobody knows how".to_owned(), how);
    let verdict = if ending.disposition == Disposition::Ignored && ending.killed {
        Verdict::bad(
            format!("it ignores {signal}: after {took} it had to be killed"),
            format!(
                "Handle {signal}: finish what is under way, and exit with 0. Behind a shell, `exec` the program. If it ends on another signal, give \
                 --stop-signal. Under soloist each stop would take the whole {} and end in a kill",
                Human(limit)
            ),
            read::CONTRACT,
        )
    } else if ending.killed {
        Verdict::bad(
            format!("{took} after {signal} it was still there, and had to be killed"),
            format!(
                "Does its handler wait for something that does not end? It must exit within {}",
                Human(limit)
            ),
            read::CONTRACT,
        )
    } else if ending.took > limit {
        // Whole seconds, and the ladder's two margins.
        let grace = Duration::from_secs(ending.took.as_secs() + 1 + 10);
        Verdict::bad(
            format!(
                "it needs {took} to stop, {ended}; soloist kills it after {}",
                Human(limit)
            ),
            format!(
                "Make it quicker, or give it the time: --grace-period {} or more (and what preStop takes), and terminationGracePeriodSeconds as much",
                Human(grace)
            ),
            read::OPERATIONS,
        )
    } else if ending.exit == Some(by(signal)) {
        Verdict::warning(
            format!(
                "it does not handle {signal}: the kernel ended it at once, in whatever it was doing"
            ),
            format!(
                "Handle {signal} if it has anything to finish: work under way, a stream to close, a file to write. Then exit with 0"
            ),
            read::CONTRACT,
        )
    } else if ending.exit != Some(Exit::Code(0)) {
        Verdict::warning(
            format!("after {took} it ended {ended}"),
            "Exit with 0 after a stop in order: everything else looks like a failure",
            read::CONTRACT,
        )
    } else if ending.took > ladder.child() {
        Verdict::warning(
            format!(
                "it needed {took}; its own limit is {} (SOLOIST_STOP_SECONDS), and it is killed after {}",
                Human(ladder.child()),
                Human(limit)
            ),
            "Make it quicker, or raise --grace-period",
            read::OPERATIONS,
        )
    } else {
        let said = if ending.said_stopping {
            ", having said STOPPING=1"
        } else {
            ""
        };
        Verdict::good(format!("after {took}, {ended}{said}"))
    };
    report.add(STOP, what, verdict);
    let verdict = match &ending.left[..] {
        [] if ending.killed => {
            Verdict::Unknown("it was killed with all that it had started".into())
        }
        [] => Verdict::good(""),
        left => Verdict::bad(
            format!("it leaves processes behind: {}", names(left)),
            "End them before it ends. soloist sends them the stop signal then and kills them 2s later, for so long nobody else can take over",
            read::CONTRACT,
        ),
    };
    report.add(STOP, "nothing is left of it half a second later", verdict);
}

pub(super) fn lost_lease(settings: &Settings, ending: &Ending, report: &mut Report) {
    let grace = Human(settings.policy.timings.loss_grace());
    let verdict = match ending.killed {
        false => Verdict::good(format!("it needed {} of {grace}", rounded(ending.took))),
        true => Verdict::warning(
            format!("a lost lease leaves it {grace}, and it was killed in the middle of its stop"),
            "It must survive that: what is half done is done again, or not at all, by the next one (docs/safety.md, the token). A \
             longer --lease-duration with the same --renew-deadline leaves it more",
            read::OPERATIONS,
        ),
    };
    report.add(LOST_LEASE, "it ends before the lease does", verdict);
}

pub(super) fn kill(ending: &Ending, report: &mut Report) {
    let verdict = match &ending.immortal[..] {
        [] => Verdict::good(""),
        left => Verdict::bad(
            format!("still there: {}", names(left)),
            "They wait in the kernel for a disk or a network file system (state D in ps), or belong to a user whom we may not signal",
            read::CONTRACT,
        ),
    };
    report.add(KILL, "nothing of it outlives a kill", verdict);
}

fn by(signal: Signal) -> Exit {
    Exit::Signal(u8::try_from(signal.number()).unwrap_or_default())
}

fn how(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("with exit code {code}"),
        Exit::Signal(number) => match Signal::from_number(number.into()) {
            Some(signal) => format!("by {signal}"),
            None => format!("by signal {number}"),
        },
    }
}

fn names(processes: &[Process]) -> String {
    let names = processes
        .iter()
        .map(|process| format!("`{}` ({})", process.name, process.pid));
    names.collect::<Vec<_>>().join(", ")
}
