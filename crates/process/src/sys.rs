//! The few system calls that have no safe wrapper.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::signal::Signal;

/// A set of signals: bit *n* − 1 is signal *n*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalSet(pub(crate) u64);

impl SignalSet {
    /// Every signal.
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn with(self, signal: i32) -> Self {
        Self(self.0 | bit(signal))
    }

    pub(crate) fn without(self, signal: i32) -> Self {
        Self(self.0 & !bit(signal))
    }

    pub(crate) fn contains(self, signal: i32) -> bool {
        self.0 & bit(signal) != 0
    }

    fn to_libc(self) -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that it is given; the others only change it, and
        // refuse numbers that are no signals.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in (1..=64).filter(|signal| self.contains(*signal)) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        }
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that the calling thread has blocked.
pub(crate) fn blocked() -> SignalSet {
    let mut old = MaybeUninit::uninit();
    // SAFETY: with no new set, sigprocmask only writes the old one, all of it.
    let old = unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, ptr::null(), old.as_mut_ptr());
        old.assume_init()
    };
    // SAFETY: the set is initialised.
    let is_member = |signal: &i32| unsafe { libc::sigismember(&raw const old, *signal) == 1 };
    (1..=64)
        .filter(is_member)
        .fold(SignalSet::default(), SignalSet::with)
}

/// Blocks these signals and no others. Safe between fork and exec.
pub(crate) fn block(signals: SignalSet) {
    let set = signals.to_libc();
    // SAFETY: the set is initialised, and the old one is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) };
}

/// The signals that the process ignores.
pub(crate) fn ignored() -> SignalSet {
    let is_ignored = |signal: &i32| {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: with no new action, sigaction only writes the old one; all zeroes is a valid one, for
        // the numbers that it refuses.
        unsafe {
            libc::sigaction(*signal, ptr::null(), old.as_mut_ptr());
            old.assume_init().sa_sigaction == libc::SIG_IGN
        }
    };
    (1..=64)
        .filter(is_ignored)
        .fold(SignalSet::default(), SignalSet::with)
}

/// Ignores these signals and takes the default for all others. Safe between fork and exec.
pub(crate) fn ignore(signals: SignalSet) {
    for signal in 1..=64 {
        let action = match signals.contains(signal) {
            true => libc::SIG_IGN,
            false => libc::SIG_DFL,
        };
        // SAFETY: neither action runs code of ours. Numbers that cannot be changed are refused.
        unsafe { libc::signal(signal, action) };
    }
}

/// Ignores this signal, and leaves all others as they are.
pub(crate) fn ignore_one(signal: i32) {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// A descriptor that is readable while SIGCHLD, which must be blocked, is pending.
pub(crate) fn child_signals() -> Result<OwnedFd, Errno> {
    let set = SignalSet::default().with(libc::SIGCHLD).to_libc();
    // SAFETY: the set is initialised, and −1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes a descriptor that this process was started with.
///
/// `None` if there is no such descriptor.
pub(crate) fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: asking about a descriptor changes nothing.
    if fd <= 2 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and called once, first thing in the guard's main: nothing here owns it yet.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// Closes everything that this process was started with but 0 to 2 and `keep`.
///
/// To be called first thing in the guard's main.
pub(crate) fn close_inherited(keep: RawFd) {
    let close = |fd: RawFd| {
        // SAFETY: nothing here owns a descriptor yet but the one that is kept.
        unsafe { libc::close(fd) };
    };
    let range = |first: RawFd, last: libc::c_uint| {
        let first = first as libc::c_uint;
        // SAFETY: as above.
        first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0
    };
    if range(3, keep as libc::c_uint - 1) && range(keep + 1, libc::c_uint::MAX) {
        return;
    }
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    // Collected first: the listing itself has a descriptor, which is closed again by then.
    let open: Vec<RawFd> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    open.into_iter()
        .filter(|fd| *fd > 2 && *fd != keep)
        .for_each(close);
}

/// What a fork returns.
pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Forks.
///
/// # Safety
/// In a process with one thread, or else the child may only do what is async-signal-safe.
pub(crate) unsafe fn fork() -> Result<Forked, Errno> {
    // SAFETY: the caller's promise.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(last_errno()),
        pid => Ok(Pid::from_raw(pid).map_or(Forked::Child, Forked::Parent)),
    }
}

/// Another program that a forked child can become without allocating anything: laid out before the fork.
pub(crate) struct Image {
    /// Tried in this order.
    paths: Vec<CString>,
    /// The strings that the pointers below point into.
    _strings: [Vec<CString>; 2],
    /// A file that the kernel cannot run is a shell's script: before the program's own arguments there is room for the
    /// shell, and the program's name is then its path.
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

const SHELL: &CStr = c"/bin/sh";

impl Image {
    pub(crate) fn new(paths: Vec<CString>, argv: Vec<CString>, env: Vec<CString>) -> Self {
        let pointers = |strings: &[CString]| {
            let pointers = strings.iter().map(|string| string.as_ptr());
            pointers.chain([ptr::null()]).collect::<Vec<_>>()
        };
        let mut with_shell = vec![SHELL.as_ptr()];
        with_shell.extend(pointers(&argv));
        Self {
            paths,
            argv: with_shell,
            envp: pointers(&env),
            _strings: [argv, env],
        }
    }

    /// Becomes the program. Returns why it could not. Safe between fork and exec.
    pub(crate) fn exec(&mut self) -> i32 {
        let mut denied = false;
        let mut errno = libc::ENOENT;
        for path in &self.paths {
            errno = execve(path, &self.argv[1..], &self.envp);
            match errno {
                libc::EACCES => denied = true,
                libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ESTALE => {}
                libc::ENOEXEC => {
                    if let Some(name) = self.argv.get_mut(1) {
                        *name = path.as_ptr();
                    }
                    return execve(SHELL, &self.argv, &self.envp);
                }
                _ => return errno,
            }
        }
        if denied { libc::EACCES } else { errno }
    }
}

fn execve(path: &CStr, argv: &[*const libc::c_char], envp: &[*const libc::c_char]) -> i32 {
    // SAFETY: `Image` made the arrays: strings that end in NUL, a null pointer last, all alive.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    last_errno().raw_os_error()
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Ends the process at once, as a forked child must that did not become another program.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: does not return, and runs nothing of ours.
    unsafe { libc::_exit(code) }
}

/// What the kernel was told about the rate of its clocks: how long a tick is, in microseconds, and by how many millionths it is
/// corrected beside that, times 65536.
pub(crate) fn clock_adjustment() -> io::Result<(i64, i64)> {
    let mut told = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeroes is a valid one, and its `modes`, which are none, ask for no change; the kernel fills it in.
    let told = unsafe {
        if libc::adjtimex(told.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        told.assume_init()
    };
    Ok((told.tick, told.freq))
}

/// The signal as rustix has it; real-time ones included.
pub(crate) fn raw(signal: Signal) -> rustix::process::Signal {
    // SAFETY: `Signal` holds only numbers that exist and that libc does not keep to itself.
    unsafe { rustix::process::Signal::from_raw_unchecked(signal.number()) }
}

/// Has `command` start with all signals blocked, and with this descriptor open.
pub(crate) fn start_blocked_with(command: &mut std::process::Command, fd: &OwnedFd) {
    use std::os::unix::process::CommandExt;

    let fd = fd.as_raw_fd();
    let prepare = move || {
        block(SignalSet::ALL);
        // SAFETY: a system call on a number; the caller keeps the descriptor open until it has spawned.
        match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: sigprocmask and fcntl are async-signal-safe, and nothing is allocated.
    unsafe { command.pre_exec(prepare) };
}

/// A Unix datagram that was received.
pub(crate) struct Datagram {
    pub(crate) length: usize,
    pub(crate) credentials: Option<libc::ucred>,
    /// The sender's address, as the kernel has it: empty without one, and an abstract one begins with 0.
    pub(crate) name: Vec<u8>,
}

/// Receives one datagram without waiting, and what the kernel says of its sender. `SO_PASSCRED` must be set.
///
/// Not rustix's: its process number cannot be 0, which is what a sender outside our PID namespace has.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Datagram> {
    /// Room for the credentials and nothing else, so that descriptors which are sent along are closed by the kernel.
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        credentials: libc::ucred,
    }
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: numbers and null pointers only, for which all zeroes are valid.
    let (mut control, mut name, mut message) = unsafe {
        let control = MaybeUninit::<Control>::zeroed().assume_init();
        let name = MaybeUninit::<libc::sockaddr_un>::zeroed().assume_init();
        let message = MaybeUninit::<libc::msghdr>::zeroed().assume_init();
        (control, name, message)
    };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_un>() as _;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: what the message points to is alive and as long as it says.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(read) = usize::try_from(read) else {
        return Err(io::Error::last_os_error());
    };
    // It is all zeroes if the kernel had nothing to say.
    let header = &control.header;
    let told = (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
    let length =
        (message.msg_namelen as usize).saturating_sub(offset_of!(libc::sockaddr_un, sun_path));
    let name = name.sun_path.iter().map(|byte| byte.cast_unsigned());
    Ok(Datagram {
        length: read,
        credentials: told.then_some(control.credentials),
        name: name.take(length).collect(),
    })
}

/// The home of a user, by all the sources of users that the system has. `None` for one whom none of them knows.
pub(crate) fn home_of(uid: u32) -> io::Result<Option<PathBuf>> {
    let mut texts = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: all of them outlive the call, and the length is that of the buffer.
        let errno = unsafe {
            libc::getpwuid_r(
                uid,
                entry.as_mut_ptr(),
                texts.as_mut_ptr(),
                texts.len(),
                &raw mut found,
            )
        };
        match errno {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: it was found, so the entry is filled in, and its texts end with a NUL within the buffer.
                let home = unsafe { CStr::from_ptr((*found).pw_dir) };
                let home = OsStr::from_bytes(home.to_bytes());
                return Ok(Some(home.into()));
            }
            libc::ERANGE if texts.len() < 1 << 20 => texts.resize(texts.len() * 4, 0),
            // What a system says of whom it does not know, though POSIX has it say nothing.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            libc::EINTR => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}
