use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use crate::Error;

pub(crate) const ADMIN: &str = "admin";

/// Names and their tokens.
#[derive(Debug)]
pub(crate) struct Users(BTreeMap<String, String>);

impl Users {
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let all = names.into_iter().chain([ADMIN]);
        Self(all.map(|name| (name.to_owned(), random_token())).collect())
    }

    pub(crate) fn token(&self, name: &str) -> Result<&str, Error> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| Error::UnknownUser(name.to_owned()))
    }

    pub(crate) fn write_token_file(&self, path: &Path) -> Result<(), Error> {
        let mut lines = String::new();
        for (name, token) in &self.0 {
            let group = match name.as_str() {
                ADMIN => "system:masters",
                node if node.starts_with("system:node:") => "system:nodes",
                _ => "soloist-testbed",
            };
            let _ = writeln!(lines, "{token},{name},{name},{group}");
        }
        fs::write(path, lines).map_err(Error::io("write", path))
    }
}

fn random_token() -> String {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel has random bytes");
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
