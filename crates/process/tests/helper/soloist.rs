//! The helper as a soloist that is killed, stopped, or PID 1.

use std::process::exit;
use std::time::Duration;

use soloist_process::{Command, Exit, Supervisor, Tree, TreeEvent, now};

use crate::{report, signals};

fn myself(args: &[&str]) -> Command {
    Command::new(std::env::current_exe().expect("a path")).args(args)
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

/// Keeps a child, and moves its deadline for as long as it can.
pub(crate) fn run(millis: u64, args: &[&str]) -> ! {
    signals::disturb();
    on_runtime(async {
        let supervisor = Supervisor::new().expect("a supervisor");
        let validity = Duration::from_millis(millis);
        let tree = supervisor.spawn(&myself(args), now() + validity);
        let mut tree = tree.expect("a tree");
        report(&format!("guard {}", tree.guard_pid()));
        loop {
            tokio::select! {
                event = tree.next_event() => match event {
                    Some(TreeEvent::Exited(Exit::Code(code))) => exit(code.into()),
                    Some(_) => {}
                    None => exit(1),
                },
                () = tokio::time::sleep(validity / 4) => tree.set_deadline(now() + validity),
            }
        }
    })
}

async fn ends(tree: &mut Tree, with: &[TreeEvent]) {
    for expected in with {
        let event = tree.next_event().await;
        assert_eq!(event.as_ref(), Some(expected));
    }
}

/// In a PID namespace of its own.
pub(crate) fn first_process() -> ! {
    assert_eq!(std::process::id(), 1, "not PID 1");
    on_runtime(async {
        let supervisor = Supervisor::new().expect("a supervisor");
        let deadline = || now() + Duration::from_secs(30);

        let tree = supervisor.spawn(&myself(&["exit", "7"]), deadline());
        let mut tree = tree.expect("a tree");
        assert!(matches!(
            tree.next_event().await,
            Some(TreeEvent::Started { .. })
        ));
        let exit = TreeEvent::Exited(Exit::Code(7));
        ends(&mut tree, &[exit, TreeEvent::Empty]).await;

        let tree = supervisor.spawn(&myself(&["daemon"]), deadline());
        let mut tree = tree.expect("a tree");
        assert!(matches!(
            tree.next_event().await,
            Some(TreeEvent::Started { .. })
        ));
        tree.kill();
        let exit = TreeEvent::Exited(Exit::Signal(9));
        ends(&mut tree, &[exit, TreeEvent::Empty]).await;

        let tree = supervisor.spawn(&myself(&["daemon"]), deadline());
        let mut tree = tree.expect("a tree");
        assert!(matches!(
            tree.next_event().await,
            Some(TreeEvent::Started { .. })
        ));
        let guard = rustix::process::Pid::from_raw(tree.guard_pid().cast_signed());
        let kill = rustix::process::Signal::KILL;
        rustix::process::kill_process(guard.expect("a guard"), kill).expect("a signal");
        let exit = TreeEvent::Exited(Exit::Signal(9));
        ends(&mut tree, &[TreeEvent::GuardLost, exit, TreeEvent::Empty]).await;

        // An orphan that has nothing to do with any tree.
        let (mut shell, _own) = soloist_process::own_child(
            || {
                std::process::Command::new("sh")
                    .args(["-c", "(:; exit 3) & exit 5"])
                    .spawn()
            },
            |child| Some(child.id()),
        )
        .expect("a shell");
        assert_eq!(shell.wait().expect("its end").code(), Some(5));
        let only_myself = || {
            let processes = std::fs::read_dir("/proc").expect("processes");
            let ids =
                processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
            ids.collect::<Vec<_>>() == [1]
        };
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while !only_myself() {
            ticks.tick().await;
        }
    });
    exit(0)
}
