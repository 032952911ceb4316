//! The guard's loop: one thread, one `poll`.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait, waitpid,
};
use soloist_core::guard::{Action, Guard, Input};
use soloist_core::time::Moment;

use super::Job;
use super::child::{self, Child, Exec};
use crate::clock;
use crate::message::{self, Order, Received, Report, SpawnError, SpawnStep};
use crate::signal::Signal;
use crate::sys::{self, SignalSet};
use crate::{procfs, sweep};

/// Between two passes of a kill: the first, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Guards until nothing is left to guard. Returns the exit code.
pub(super) fn run(job: Job) -> i32 {
    // Nothing is started before there is a deadline to kill it at.
    let Some(deadline) = first_deadline(&job.link) else {
        let _ = Report::Empty.send(&job.link);
        return 0;
    };
    let setup = match Setup::new() {
        Ok(setup) => setup,
        Err(errno) => {
            let error = child::system(SpawnStep::Guard, errno.raw_os_error());
            let _ = Report::SpawnFailed(error).send(&job.link);
            return 1;
        }
    };
    let (machine, action) = Guard::armed(clock::now(), deadline);
    let mut guarding = Guarding {
        job,
        setup,
        machine,
        connected: true,
        child: None,
        group: None,
        killing: None,
        done: false,
    };
    guarding.begin(action);
    while !guarding.done {
        guarding.turn();
    }
    0
}

/// `None` if soloist is gone, or has changed its mind.
fn first_deadline(link: &OwnedFd) -> Option<Moment> {
    loop {
        match Order::receive(link) {
            Received::Message(Order::Deadline(deadline)) => return Some(deadline),
            Received::Message(Order::Kill | Order::Stop(_)) | Received::Closed => return None,
            Received::Message(Order::Signal(_)) => {}
            Received::Nothing => {
                let _ = poll(&mut [PollFd::new(link, PollFlags::IN)], None);
            }
        }
    }
}

struct Setup {
    me: Pid,
    timer: OwnedFd,
    child_signals: OwnedFd,
}

impl Setup {
    fn new() -> Result<Self, Errno> {
        // They are blocked since before the exec, if soloist started us.
        sys::block(SignalSet::ALL);
        // An ignored SIGCHLD would reap behind our back.
        sys::ignore(SignalSet::default().with(libc::SIGPIPE));
        let me = getpid();
        set_child_subreaper(Some(me))?;
        // "exe" otherwise, after the link that we were started by.
        let _ = rustix::thread::set_name(c"soloist-guard");
        Ok(Self {
            me,
            timer: clock::timer()?,
            child_signals: sys::child_signals()?,
        })
    }
}

struct Guarding {
    job: Job,
    setup: Setup,
    machine: Guard,
    connected: bool,
    child: Option<Child>,
    group: Option<Pid>,
    /// The pause until the next pass.
    killing: Option<Duration>,
    done: bool,
}

impl Guarding {
    fn begin(&mut self, action: Action) {
        if action == Action::Exit {
            self.report(Report::Empty);
        }
        self.act(Some(action));
    }

    fn spawn(&mut self) {
        // What came while we were getting ready: another deadline, or the order to kill.
        self.hear_soloist();
        self.feed(Input::Tick);
        if self.killing.is_some() {
            return self.tree_empty();
        }
        if let Some(cwd) = &self.job.cwd
            && let Err(errno) = rustix::process::chdir(cwd.as_os_str())
        {
            let error = SpawnError {
                step: SpawnStep::WorkingDirectory,
                ..child::classify(cwd, errno.raw_os_error())
            };
            return self.spawn_failed(error);
        }
        match Child::fork(&self.job) {
            Ok(child) => {
                self.group = Some(child.pid);
                self.child = Some(child);
            }
            Err(error) => self.spawn_failed(error),
        }
    }

    fn turn(&mut self) {
        let _ = clock::set(&self.setup.timer, self.machine.next_deadline());
        self.wait();
        self.hear_soloist();
        self.hear_exec();
        self.reap();
        self.feed(Input::Tick);
        if let Some(pause) = self.killing
            && !self.done
        {
            self.kill_pass();
            self.killing = Some((pause * 2).min(LONGEST_PAUSE));
        }
    }

    fn wait(&self) {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![
            readable(self.setup.child_signals.as_fd()),
            readable(self.setup.timer.as_fd()),
        ];
        if self.connected {
            fds.push(readable(self.job.link.as_fd()));
        }
        if let Some(exec) = self.child.as_ref().and_then(Child::exec_descriptor) {
            fds.push(readable(exec.as_fd()));
        }
        let pause = self.killing.map(|pause| Timespec {
            tv_sec: 0,
            tv_nsec: pause.subsec_nanos().into(),
        });
        let _ = poll(&mut fds, pause.as_ref());
        let mut pending = [0; 128];
        while rustix::io::read(&self.setup.child_signals, &mut pending).is_ok() {}
    }

    fn hear_soloist(&mut self) {
        while self.connected {
            match Order::receive(&self.job.link) {
                Received::Message(Order::Deadline(at)) => self.feed_order(Input::Deadline(at)),
                Received::Message(Order::Kill) => self.feed_order(Input::Kill),
                Received::Message(Order::Signal(signal)) => self.signal_child(signal),
                // Nobody is there to hear it, so nobody shall be: what is not started is stopped.
                Received::Message(Order::Stop(_)) if self.group.is_none() => {
                    self.feed_order(Input::Kill);
                }
                Received::Message(Order::Stop(signal)) => {
                    self.signal_group(signal);
                    self.signal_group(Signal::CONT);
                }
                Received::Nothing => break,
                Received::Closed => {
                    self.connected = false;
                    self.feed_order(Input::SoloistGone);
                }
            }
        }
    }

    /// An order is taken in without a look at the clock: the next one in the queue may move the deadline.
    fn feed_order(&mut self, input: Input) {
        let at = match input {
            Input::Deadline(_) => Moment::since_boot(Duration::ZERO),
            _ => clock::now(),
        };
        let action = self.machine.handle(at, input);
        self.act(action);
    }

    fn feed(&mut self, input: Input) {
        let action = self.machine.handle(clock::now(), input);
        self.act(action);
    }

    fn act(&mut self, action: Option<Action>) {
        match action {
            None => {}
            Some(Action::Spawn) => self.spawn(),
            Some(Action::KillTree) => self.killing = Some(FIRST_PAUSE),
            Some(Action::Exit) => self.done = true,
        }
    }

    fn hear_exec(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        match child.exec() {
            Exec::Pending => {}
            Exec::Done => {
                let pid = child.pid.as_raw_nonzero().get().unsigned_abs();
                self.report(Report::Started { pid });
                self.feed(Input::Spawned);
            }
            Exec::Failed(errno) => {
                // It is about to end, if it has not.
                let _ = waitpid(Some(child.pid), WaitOptions::empty());
                self.child = None;
                self.spawn_failed(child::classify(self.job.program(), errno));
            }
        }
    }

    fn reap(&mut self) {
        while !self.done {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid, status),
                Ok(None) => break,
                Err(Errno::INTR) => {}
                // No child left, and an orphan would be one: the tree is empty.
                Err(_) => self.tree_empty(),
            }
        }
    }

    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        if self.child.as_ref().is_none_or(|child| child.pid != pid) {
            return;
        }
        // Its exec is settled by now, one way or the other, and comes first.
        self.hear_exec();
        self.child = None;
        if let Some(exit) = message::exit(status)
            && !self.done
        {
            self.report(Report::Exited(exit));
            self.feed(Input::ChildExited);
        }
    }

    fn tree_empty(&mut self) {
        self.report(Report::Empty);
        self.feed(Input::TreeEmpty);
    }

    fn spawn_failed(&mut self, error: SpawnError) {
        self.report(Report::SpawnFailed(error));
        self.feed(Input::SpawnFailed);
    }

    fn kill_pass(&self) {
        // The group first: the kernel does that in one go, which no fork outruns.
        if let Some(child) = &self.child {
            let _ = kill_process_group(child.pid, rustix::process::Signal::KILL);
        }
        let children = procfs::children(self.setup.me).pids;
        sweep::kill_own(&children);
        sweep::kill_below(&children, self.setup.me);
    }

    fn signal_child(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let _ = kill_process(child.pid, sys::raw(signal));
        }
    }

    fn signal_group(&self, signal: Signal) {
        let Some(child) = &self.child else {
            // The number may be another group's by now, whose members are not below us.
            if let Some(group) = self.group {
                sweep::signal_group_below(self.setup.me, group, signal);
            }
            return;
        };
        let _ = kill_process_group(child.pid, sys::raw(signal));
        if getpgid(Some(child.pid)) != Ok(child.pid) {
            self.signal_child(signal);
        }
    }

    fn report(&self, report: Report) {
        let _ = report.send(&self.job.link);
    }
}
