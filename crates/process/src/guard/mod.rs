//! The guard: a process between soloist and the child, which kills the tree when soloist cannot.
//!
//! It decides by [`soloist_core::guard::Guard`]; what is here carries that out.

mod child;
mod run;

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::inherited::{self, Inherited};
use crate::message::VERSION;
use crate::sys;

/// The guard's name in a process listing, and how it knows that it is one.
pub(crate) const NAME: &str = "soloist-guard";

/// Does not return if this process was started as a guard; else remembers the signals and limits that it
/// was started with, for the child to find.
///
/// To be called first thing in `main`, before any thread is started or descriptor opened.
pub fn run_if_guard() {
    let mut args = std::env::args_os();
    if args.next().as_deref() != Some(OsStr::new(NAME)) {
        inherited::found();
        PREPARED.store(true, Ordering::Relaxed);
        return;
    }
    let Some(job) = Job::parse(args) else {
        eprintln!("{NAME} is started by soloist, not by hand, and by the same version");
        std::process::exit(2);
    };
    std::process::exit(run::run(job));
}

/// Whether a guard of this program would know that it is one.
pub(crate) fn is_prepared() -> bool {
    PREPARED.load(Ordering::Relaxed)
}

static PREPARED: AtomicBool = AtomicBool::new(false);

/// What the guard is started with, as arguments. The environment is the child's already.
struct Job {
    link: std::os::fd::OwnedFd,
    inherited: Inherited,
    cwd: Option<OsString>,
    argv: Vec<CString>,
}

impl Job {
    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut text = || args.next()?.into_string().ok();
        if text()? != VERSION.to_string() {
            return None;
        }
        let fd = text()?.parse().ok()?;
        let inherited = Inherited::decode(&text()?)?;
        let link = sys::adopt(fd)?;
        sys::close_inherited(fd);
        let cwd = args.next()?;
        let argv: Vec<CString> = args
            .map(|arg| CString::new(arg.into_vec()).ok())
            .collect::<Option<_>>()?;
        (!argv.is_empty()).then_some(Self {
            link,
            inherited,
            cwd: (!cwd.is_empty()).then_some(cwd),
            argv,
        })
    }

    fn program(&self) -> &OsStr {
        OsStr::from_bytes(self.argv[0].as_bytes())
    }
}

/// The arguments for a guard, its name not included.
pub(crate) fn arguments(fd: i32, command: &crate::Command) -> Vec<OsString> {
    let cwd = command.cwd.as_ref().map(|dir| dir.as_os_str().to_owned());
    let mut arguments = vec![
        VERSION.to_string().into(),
        fd.to_string().into(),
        inherited::found().encode().into(),
        cwd.unwrap_or_default(),
        command.program.clone(),
    ];
    arguments.extend_from_slice(&command.args);
    arguments
}
