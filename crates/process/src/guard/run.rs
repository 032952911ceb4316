//! The guard's loop: one thread, one `poll`.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, WaitOptions, WaitStatus, getpgid, getpid, kill_process,
    kill_process_group, set_child_subreaper, set_dumpable_behavior, test_kill_process, wait,
    waitpid,
};
use soloist_clock as clock;
use soloist_core::guard::{Action, Guard, Input};
use soloist_core::time::Moment;

use super::child::{self, Child, Exec};
use super::job::Job;
use super::program::Program;
use crate::command::StopTo;
use crate::message::{self, Order, Received, Report, SpawnError, SpawnStep, Variables};
use crate::signal::Signal;
use crate::sys::{self, SignalSet};
use crate::{procfs, sweep};

/// Guards until nothing is left to guard. Returns the exit code.
pub(super) fn run(job: Job) -> i32 {
    let ready = Setup::new().map_err(io::Error::from);
    let ready = ready.and_then(|setup| Ok((setup, procfs::own_start_time()?)));
    let (setup, started) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            let error = child::system(SpawnStep::Guard, errno);
            let _ = Report::SpawnFailed(error).send(&job.link);
            return 1;
        }
    };
    let _ = Report::Ready { started }.send(&job.link);
    let stop_signal = job.setup.stop_signal;
    let mut guarding = Guarding {
        job,
        setup,
        machine: Guard::new(),
        connected: true,
        variables: None,
        stop_signal,
        group_was_asked: false,
        child_exited: false,
        leftovers_since: None,
        child: None,
        group: None,
        killing: None,
        refused: BTreeSet::new(),
        end_told: false,
        done: false,
    };
    while !guarding.done {
        guarding.turn();
    }
    0
}

struct Setup {
    me: Pid,
    timer: clock::TimerFd,
    child_signals: OwnedFd,
}

impl Setup {
    fn new() -> Result<Self, Errno> {
        // They are blocked since before the exec, if soloist started us.
        sys::block(SignalSet::ALL);
        // The child may be the same user, and is to keep its hands off.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        // An ignored SIGCHLD would reap behind our back.
        sys::ignore(SignalSet::default().with(libc::SIGPIPE));
        let me = getpid();
        set_child_subreaper(Some(me))?;
        // "exe" otherwise, after the link that we were started by.
        let _ = rustix::thread::set_name(c"soloist-guard");
        Ok(Self {
            me,
            timer: clock::TimerFd::new()?,
            child_signals: sys::child_signals()?,
        })
    }
}

struct Guarding {
    job: Job,
    setup: Setup,
    machine: Guard,
    connected: bool,
    /// Of the order to start, once there was one.
    variables: Option<Variables>,
    stop_signal: Signal,
    child: Option<Child>,
    group: Option<Pid>,
    /// To stop, together with the child: it has the stop timeout for it.
    group_was_asked: bool,
    /// And the rest of its tree does not know yet.
    child_exited: bool,
    /// Since when what outlived the child is being killed.
    leftovers_since: Option<Moment>,
    /// Since when the tree is being killed.
    killing: Option<Moment>,
    /// soloist knows that we may not signal them.
    refused: BTreeSet<u32>,
    /// soloist knows that nothing is left.
    end_told: bool,
    done: bool,
}

impl Guarding {
    fn turn(&mut self) {
        let _ = self.setup.timer.set(self.machine.next_deadline());
        self.wait();
        self.hear_soloist();
        self.hear_exec();
        self.reap();
        self.feed(Input::Tick);
        if self.done {
            return;
        }
        if self.killing.is_some() {
            self.kill_pass();
        } else if self.leftovers_since.is_some() {
            self.signal_leftovers(Signal::KILL);
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
        let pause = self.killing.or(self.leftovers_since).map(|since| Timespec {
            tv_sec: 0,
            tv_nsec: sweep::pause(clock::now().since(since))
                .subsec_nanos()
                .into(),
        });
        let _ = poll(&mut fds, pause.as_ref());
        let mut pending = [0; 128];
        while rustix::io::read(&self.setup.child_signals, &mut pending).is_ok() {}
    }

    fn hear_soloist(&mut self) {
        while self.connected {
            match Order::receive(&self.job.link) {
                Received::Message(order) => self.obey(order),
                Received::Nothing => break,
                Received::Closed => {
                    self.connected = false;
                    self.feed(Input::SoloistGone);
                }
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start {
                deadline,
                variables,
            } => {
                // Before there is a child: from now on silence means something.
                self.report(Report::Pong);
                self.variables = Some(variables);
                self.feed(Input::Deadline(deadline));
            }
            // The first one would start the child, and without its variables.
            Order::Deadline(_) if self.variables.is_none() => {}
            Order::Deadline(at) => self.feed(Input::Deadline(at)),
            Order::Kill => self.feed(Input::Kill),
            Order::Ping => self.report(Report::Pong),
            Order::Signal(signal) => self.signal_child(signal),
            Order::Stop(signal) => {
                self.stop_signal = signal;
                self.feed(Input::Stop);
            }
        }
    }

    fn feed(&mut self, input: Input) {
        match self.machine.handle(clock::now(), input) {
            None => {}
            Some(Action::Spawn) => self.spawn(),
            Some(Action::StopChild) => {
                // The second is so that a stopped child can hear the first.
                for signal in [self.stop_signal, Signal::CONT] {
                    match self.job.setup.stop_to {
                        StopTo::Group => self.signal_group(signal),
                        StopTo::Child => self.signal_child(signal),
                    }
                }
                self.group_was_asked = self.job.setup.stop_to == StopTo::Group;
            }
            Some(Action::StopLeftovers) => {
                self.signal_leftovers(self.stop_signal);
                self.signal_leftovers(Signal::CONT);
            }
            Some(Action::KillLeftovers) => self.leftovers_since = Some(clock::now()),
            Some(Action::KillTree) => {
                self.killing.get_or_insert_with(clock::now);
            }
            Some(Action::Exit) => {
                self.tell_end(Report::Empty);
                // soloist has been waiting for that; our own end takes a while, and can wait.
                rustix::thread::sched_yield();
                self.done = true;
            }
        }
    }

    fn spawn(&mut self) {
        if let Some(cwd) = &self.job.setup.cwd
            && let Err(errno) = rustix::process::chdir(cwd.as_os_str())
        {
            return self.spawn_failed(child::cannot_enter(errno.raw_os_error()));
        }
        let variables = self.variables.as_ref();
        let variables = variables.map_or(&[][..], Variables::as_slice);
        let program = Program::new(&self.job.argv, variables);
        match Child::fork(program, &self.job.setup) {
            Ok(child) => {
                self.group = getpgid(Some(child.pid)).ok().or(Some(child.pid));
                self.child = Some(child);
            }
            Err(error) => self.spawn_failed(error),
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
                let error = child.cannot_run(errno);
                self.child = None;
                self.spawn_failed(error);
            }
        }
    }

    fn reap(&mut self) {
        while !self.done {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid, status),
                // No child left, and an orphan would be one: the tree is empty. No other error says that.
                Err(Errno::CHILD) => return self.feed(Input::TreeEmpty),
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        if mem::take(&mut self.child_exited) && !self.done {
            self.feed(Input::ChildExited);
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
            self.child_exited = true;
        }
    }

    fn spawn_failed(&mut self, error: SpawnError) {
        self.tell_end(Report::SpawnFailed(error));
        self.feed(Input::SpawnFailed);
    }

    fn tell_end(&mut self, report: Report) {
        if !mem::replace(&mut self.end_told, true) {
            self.report(report);
        }
    }

    fn kill_pass(&mut self) {
        // The group first: the kernel does that in one go, which no fork outruns.
        if let Some(child) = &self.child {
            let _ = kill_process_group(child.pid, rustix::process::Signal::KILL);
        }
        let Ok(children) = procfs::children(self.setup.me) else {
            return;
        };
        let mut refused = sweep::kill_own(&children.pids);
        refused.extend(sweep::kill_below(&children.pids, self.setup.me));
        self.tell_not_permitted(&refused);
    }

    fn tell_not_permitted(&mut self, refused: &[Pid]) {
        for pid in refused {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            if self.refused.insert(pid) {
                self.report(Report::NotPermitted { pid });
            }
        }
    }

    fn signal_child(&mut self, signal: Signal) {
        if let Some(pid) = self.child.as_ref().map(|child| child.pid)
            && kill_process(pid, sys::raw(signal)) == Err(Errno::PERM)
        {
            self.tell_not_permitted(&[pid]);
        }
    }

    fn signal_group(&mut self, signal: Signal) {
        let child = self.child.as_ref().map(|child| child.pid);
        let Some(leader) = child.filter(|child| self.group == Some(*child)) else {
            // It is soloist's own group. Or the number may be another group's by now, whose members are not below us.
            if let Some(group) = self.group {
                let refused = sweep::signal_group_below(self.setup.me, group, signal);
                self.tell_not_permitted(&refused);
                // The child may have made a group of its own since.
                let has_left = |child: Pid| getpgid(Some(child)) != Ok(group);
                if child.is_some_and(has_left) {
                    self.signal_child(signal);
                }
            }
            return;
        };
        let _ = kill_process_group(leader, sys::raw(signal));
        if getpgid(Some(leader)) != Ok(leader) {
            self.signal_child(signal);
        } else if test_kill_process(leader) == Err(Errno::PERM) {
            // Others of its group may have heard it, so the group has not said so.
            self.tell_not_permitted(&[leader]);
        }
    }

    /// To whom outlives the child, but for those who were asked to stop together with it.
    fn signal_leftovers(&mut self, signal: Signal) {
        let spared = self.group.filter(|_| self.group_was_asked);
        let refused = sweep::signal_below(self.setup.me, signal, spared);
        self.tell_not_permitted(&refused);
    }

    fn report(&self, report: Report) {
        let _ = report.send(&self.job.link);
    }
}
