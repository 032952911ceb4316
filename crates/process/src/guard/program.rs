//! The program that the child becomes: looked up and laid out before the fork.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::sys::Image;

/// Where a program is looked up without a `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A program with its arguments and its environment.
pub(super) struct Program {
    name: OsString,
    /// Where it may be, in the order of the `PATH`.
    candidates: Vec<CString>,
    image: Image,
}

impl Program {
    /// `argv` in the guard's own environment and these variables, each `NAME=VALUE`, which come before its own.
    pub(super) fn new(argv: &[CString], variables: &[CString]) -> Self {
        let env = environment(variables);
        let name = argv.first().map_or(OsString::new(), |name| {
            OsStr::from_bytes(name.as_bytes()).to_owned()
        });
        let candidates = candidates(&name, path_of(&env));
        let image = Image::new(candidates.clone(), argv.to_vec(), env);
        Self {
            name,
            candidates,
            image,
        }
    }

    /// For the forked child: nothing is allocated there.
    pub(super) fn image(&mut self) -> &mut Image {
        &mut self.image
    }

    /// Looked up in the `PATH`.
    pub(super) fn is_bare(&self) -> bool {
        is_bare(&self.name)
    }

    /// Whether there is such a file, whether or not it can be run.
    pub(super) fn exists(&self) -> bool {
        let exists = |path: &CString| Path::new(OsStr::from_bytes(path.as_bytes())).exists();
        self.candidates.iter().any(exists)
    }
}

fn environment(variables: &[CString]) -> Vec<CString> {
    let given: Vec<&[u8]> = variables.iter().map(name_of).collect();
    let own = std::env::vars_os()
        .filter(|(name, _)| !given.contains(&name.as_bytes()))
        .filter_map(|(name, value)| {
            let variable = [name.as_bytes(), b"=", value.as_bytes()].concat();
            CString::new(variable).ok()
        });
    own.chain(variables.iter().cloned()).collect()
}

fn name_of(variable: &CString) -> &[u8] {
    let bytes = variable.as_bytes();
    let end = bytes.iter().position(|byte| *byte == b'=');
    &bytes[..end.unwrap_or(bytes.len())]
}

fn path_of(env: &[CString]) -> &OsStr {
    let path = env
        .iter()
        .find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
    path.map_or(OsStr::new(DEFAULT_PATH), OsStr::from_bytes)
}

fn candidates(name: &OsStr, path: &OsStr) -> Vec<CString> {
    let files: Vec<OsString> = match name {
        name if name.is_empty() => Vec::new(),
        name if !is_bare(name) => vec![name.to_owned()],
        name => std::env::split_paths(path)
            .map(|dir| dir.join(name).into_os_string())
            .collect(),
    };
    let files = files.into_iter().map(OsStringExt::into_vec);
    files.filter_map(|file| CString::new(file).ok()).collect()
}

fn is_bare(name: &OsStr) -> bool {
    !name.as_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_looked_up_in_the_path_and_a_path_is_itself() {
        let found = |name: &str, path: &str| candidates(name.as_ref(), path.as_ref());
        assert_eq!(
            found("sh", "/a::/b"),
            [c"/a/sh".into(), c"sh".into(), CString::from(c"/b/sh")]
        );
        assert_eq!(found("./sh", "/a"), [CString::from(c"./sh")]);
        assert!(found("", "/a").is_empty());
    }

    #[test]
    fn a_variable_that_is_given_takes_the_place_of_the_guards_own() {
        let env = environment(&[c"PATH=/given".into(), c"NEW=a=b".into()]);
        let paths: Vec<_> = env
            .iter()
            .filter(|variable| name_of(variable) == b"PATH")
            .collect();
        assert_eq!(paths, [c"PATH=/given"]);
        assert!(env.contains(&c"NEW=a=b".into()));
        assert_eq!(path_of(&env), "/given");
        assert_eq!(path_of(&[]), DEFAULT_PATH);
    }
}
