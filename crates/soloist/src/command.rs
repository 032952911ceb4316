//! The child as a command: the program, and the variables that it has and has not.

use std::ffi::OsString;
use std::sync::LazyLock;
use std::time::Duration;

use soloist_core::ids::Identity;
use soloist_core::ladder::Ladder;
use soloist_process::Command;

use crate::cli::{Cli, Health};
use crate::notify::NotifySocket;
use crate::settings::Settings;

/// What soloist's own supervisor has told soloist, and not its child.
const NOT_INHERITED: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_PIDFDID",
];

/// The program that is to be run, and what it is told.
pub(crate) fn command(
    settings: &Settings,
    identity: &Identity,
    notify: Option<&NotifySocket>,
) -> Command {
    static FLAGS: LazyLock<Vec<OsString>> = LazyLock::new(Cli::variables);
    let ladder: &Ladder = &settings.policy.ladder;
    let [program, arguments @ ..] = &settings.command[..] else {
        unreachable!("the command line has a program");
    };
    let seconds = |length: Duration| format!("{}", length.as_secs_f64());
    let mut command = Command::new(program).args(arguments);
    for variable in FLAGS.iter() {
        command = command.env_remove(variable);
    }
    for variable in NOT_INHERITED {
        command = command.env_remove(variable);
    }
    // Of another soloist, whose child we are. Ours come with the term.
    for variable in ["SOLOIST_TERM", "SOLOIST_TOKEN"] {
        command = command.env_remove(variable);
    }
    command = command
        .env("SOLOIST_NAME", &settings.name)
        .env("SOLOIST_IDENTITY", identity.as_str())
        .env("SOLOIST_STOP_SECONDS", seconds(ladder.child()))
        .env("SOLOIST_DRAIN_SECONDS", seconds(ladder.drain()))
        .stop_signal(settings.stop_signal)
        .stop_to(settings.stop_to);
    if let Some(user) = &settings.user {
        command = command.user(user.clone());
    }
    if let Some(notify) = notify {
        command = command.env("NOTIFY_SOCKET", notify.address());
    }
    if settings.health == Health::Notify {
        let micros = settings.health_interval.as_micros().to_string();
        command = command.env("WATCHDOG_USEC", OsString::from(micros));
    }
    command
}
