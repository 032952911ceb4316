//! The sources that a mutant is a patch on: the pure crate and the simulator, as they are in the workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::patch::Mutant;

/// The folders that are copied: the rules, and the edges that the simulator models.
pub(crate) const FOLDERS: [&str; 2] = ["crates/core", "sim"];

/// Not part of the simulator, though in its folder: this program, and tests that nobody builds in the copy.
const LEFT_OUT: [&str; 2] = ["sim/mutants", "sim/tests"];

/// Files by their path from the root of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources(BTreeMap<PathBuf, String>);

impl Sources {
    /// Reads them.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut sources = Self::default();
        for folder in FOLDERS {
            sources.read_folder(root, Path::new(folder))?;
        }
        Ok(sources)
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) -> Result<()> {
        if LEFT_OUT
            .iter()
            .any(|left_out| folder == Path::new(left_out))
        {
            return Ok(());
        }
        let place = root.join(folder);
        let entries = std::fs::read_dir(&place)
            .with_context(|| format!("cannot read {}", place.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.read_folder(root, &path)?;
            } else {
                let text = std::fs::read_to_string(entry.path())
                    .with_context(|| format!("cannot read {}", path.display()))?;
                self.0.insert(path, text);
            }
        }
        Ok(())
    }

    /// The sources with one rule broken.
    ///
    /// # Errors
    /// When the mutant is stale: what it would replace is not there any more.
    pub(crate) fn with(&self, mutant: &Mutant) -> Result<Self> {
        let mut broken = self.clone();
        for edit in &mutant.edits {
            let text = broken
                .0
                .get_mut(&edit.file)
                .with_context(|| format!("there is no {}", edit.file.display()))?;
            *text = edit.apply(text)?;
        }
        Ok(broken)
    }

    /// Writes them under this folder. Files that are already as they should be are left alone, so that only what differs is
    /// built again.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|(path, text)| write_if_other(&folder.join(path), text))
    }
}

/// Makes this the file's text, unless it is.
pub(crate) fn write_if_other(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quick, so that whoever changes the rules hears of it before the mutants are built.
    #[test]
    fn every_mutant_fits_the_code_of_today() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = Sources::read(&here.join("../..")).unwrap();
        let mutants = Mutant::read_all(&here.join("patches")).unwrap();
        let stale: Vec<_> = mutants
            .iter()
            .filter_map(|m| sources.with(m).err().map(|e| format!("{}: {e:#}", m.name)))
            .collect();
        assert!(stale.is_empty(), "stale:\n{}", stale.join("\n"));
    }
}
