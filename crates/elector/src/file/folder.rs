//! The lease's folder, and whether it can be trusted with a lease.
//!
//! It is opened anew for every access, examined through the descriptor, and everything is done relative to that: what was
//! examined is what is used, whatever the path leads to by then.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, Stat, fstat, fstatfs, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::failure;
use super::trust::{self, Rights, is_trusted};
use crate::store::StoreError;

/// Where the folder is.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Finds it, or makes it, for this user only.
    pub(super) fn find(path: &Path) -> Result<Self, StoreError> {
        let folder = Self { path: path.into() };
        folder.open_or_make()?;
        Ok(folder)
    }

    /// Opens it; if it is not there, it is made, for this user only.
    pub(super) fn open_or_make(&self) -> Result<OpenFolder, StoreError> {
        if self.is_gone() {
            let path = &self.path;
            trust::check_way(path)?;
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| failure::before(&error, "make the folder", path))?;
        }
        self.open()
    }

    pub(super) fn is_gone(&self) -> bool {
        let found = fs::metadata(&self.path);
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the path still leads to this open folder.
    pub(super) fn is(&self, open: &OpenFolder) -> bool {
        let found = statat(CWD, &self.path, AtFlags::empty());
        matches!((found, fstat(&open.fd)), (Ok(found), Ok(open)) if is_same(&found, &open))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, if it is one that nobody else can tamper with, on a file system of this machine.
    fn open(&self) -> Result<OpenFolder, StoreError> {
        let path = &self.path;
        let failed = |error: Errno| failure::before(&error.into(), "open the folder", path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let follow = match self.is_link_by_root() {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        let fd = openat(CWD, path, flags | follow, Mode::empty()).map_err(|error| {
            match self.is_link() {
                true => failure::folder_is_a_link(path),
                false => failed(error),
            }
        })?;
        let file_system = fstatfs(&fd).map_err(failed)?;
        failure::check_file_system(path, file_system.f_type)?;
        let open = OpenFolder { fd };
        let rights = open.rights();
        let rights = rights.map_err(|e| failure::before(&e, "open the folder", path))?;
        trust::check_folder(path, rights)?;
        trust::check_way(path)?;
        Ok(open)
    }

    fn is_link(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_symlink())
    }

    /// `/var/run`, for example.
    fn is_link_by_root(&self) -> bool {
        let found = fs::symlink_metadata(&self.path);
        found.is_ok_and(|found| found.is_symlink() && found.uid() == 0)
    }
}

/// The folder, open.
#[derive(Debug)]
pub(super) struct OpenFolder {
    fd: OwnedFd,
}

impl OpenFolder {
    /// Opens a file in it, which must be a plain file of this user's or of root's. With [`OFlags::CREATE`], for this user only.
    pub(super) fn file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        // Without blocking on a pipe that somebody may have put there.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = fstat(&fd)?;
        if !is_trusted(stat.st_uid) {
            let text = format!("it belongs to the user {}", stat.st_uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(File::from(fd))
    }

    /// Opens a folder in it. [`io::ErrorKind::NotADirectory`] for a link, too.
    pub(super) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Makes a folder in it, for this user only.
    pub(super) fn make_folder(&self, name: &OsStr) -> io::Result<Self> {
        mkdirat(&self.fd, name, Mode::RWXU)?;
        self.folder(name)
    }

    pub(super) fn rights(&self) -> io::Result<Rights> {
        let stat = fstat(&self.fd)?;
        Ok(Rights {
            user: stat.st_uid,
            group: stat.st_gid,
            mode: Mode::from_raw_mode(stat.st_mode).as_raw_mode(),
        })
    }

    /// The names of all that is in it.
    pub(super) fn list(&self) -> io::Result<Vec<OsString>> {
        // With an offset of its own, and from a fresh beginning: some file systems show an open folder as it was when it was opened.
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(super) fn there_is(&self, name: &OsStr) -> io::Result<bool> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this open file or folder still has this name.
    pub(super) fn has(&self, name: &OsStr, open: impl AsFd) -> bool {
        let found = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        matches!((found, fstat(open)), (Ok(found), Ok(open)) if is_same(&found, &open))
    }

    /// What bears the other name is replaced.
    pub(super) fn rename(&self, from: &OsStr, folder: &Self, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &folder.fd, to)?)
    }

    /// Has each of two bear the other's name, in one step.
    pub(super) fn exchange(&self, one: &OsStr, other: &OsStr) -> io::Result<()> {
        Ok(renameat_with(
            &self.fd,
            one,
            &self.fd,
            other,
            RenameFlags::EXCHANGE,
        )?)
    }

    pub(super) fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Removes a folder in it, if that is empty.
    pub(super) fn remove_folder(&self, name: &OsStr) {
        let _ = unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
    }

    /// Makes what was renamed durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// A path to this very folder, for calls that take only paths.
    pub(super) fn proc_path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.fd.as_fd().as_raw_fd()).into()
    }
}

impl AsFd for OpenFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    a.st_ino == b.st_ino && a.st_dev == b.st_dev
}

/// A name beside this one.
pub(super) fn beside(prefix: &str, name: &OsStr, suffix: &str) -> OsString {
    let mut beside = OsString::from(prefix);
    beside.push(name);
    beside.push(suffix);
    beside
}
