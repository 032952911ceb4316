//! Container images of one layer, written without a builder, as an OCI layout and as a docker-archive.
//!
//! What is written depends on what is given and on nothing else: no clock, no user, no order of a file system.

#![forbid(unsafe_code)]

mod commit;
mod format;
mod program;
pub mod release;
mod tar;

pub use commit::{commit, commit_time};
pub use format::{Blob, Layout};
pub use program::{build_static, build_static_package, ensure_static};

use tar::Tar;

/// A file of an image; every one may be read and run by all.
#[derive(Debug, Clone)]
pub struct File {
    /// Where it is, without the first slash.
    pub path: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// An image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its name and tag.
    pub name: String,
    /// What is in it.
    pub files: Vec<File>,
    /// What a container of it runs.
    pub entrypoint: Vec<String>,
    /// As whom, by number.
    pub user: Option<u32>,
    /// When it was made, in seconds since 1970: the commit's time.
    pub created: u64,
    /// What is known of it, by name.
    pub labels: Vec<(String, String)>,
}

impl Image {
    /// As an OCI layout: its files and their contents.
    #[must_use]
    pub fn oci_layout(&self) -> Layout {
        format::oci_layout(self)
    }

    /// As one file that `docker load`, `podman load` and `ctr images import` read.
    #[must_use]
    pub fn docker_archive(&self) -> Vec<u8> {
        format::docker_archive(self)
    }

    fn layer(&self) -> Vec<u8> {
        let mut tar = Tar::new(self.created);
        let mut files: Vec<&File> = self.files.iter().collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        for file in files {
            tar.file(&file.path, 0o755, &file.content);
        }
        tar.finish()
    }
}
