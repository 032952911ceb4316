//! The manual pages under `deploy/man`: each is what the command line of today would give. They are files, and no part of the program.
//!
//! `SOLOIST_UPDATE_DEPLOY=1 cargo test -p soloist --lib man_pages` writes them anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;

use crate::cli::Cli;

#[test]
fn manual_pages_are_what_the_command_line_says() {
    let pages = pages();
    assert!(pages.contains_key("soloist-run.1"), "{:?}", pages.keys());
    if std::env::var_os("SOLOIST_UPDATE_DEPLOY").is_some() {
        fs::create_dir_all(folder()).unwrap();
        for (name, page) in &pages {
            fs::write(folder().join(name), page).unwrap();
        }
    }
    for (name, page) in &pages {
        let found = fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(
            found == *page,
            "deploy/man/{name} is not of today: SOLOIST_UPDATE_DEPLOY=1 cargo test -p soloist --lib man_pages"
        );
    }
    let names = fs::read_dir(folder()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let orphans: Vec<String> = names.filter(|name| !pages.contains_key(name)).collect();
    assert!(orphans.is_empty(), "of no command: {orphans:?}");
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/man")
}

/// One page for the program and one for each of its commands.
fn pages() -> BTreeMap<String, String> {
    let mut command = Cli::definition(false).disable_help_subcommand(true);
    command.build();
    let mut pages = BTreeMap::new();
    let commands = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(|sub| {
            let name: &'static str = format!("soloist-{}", sub.get_name()).leak();
            // The title must not change with every commit.
            sub.clone()
                .name(name)
                .version(Resettable::Reset)
                .long_version(Resettable::Reset)
        });
    let all: Vec<clap::Command> = commands.collect();
    let whole = command
        .version(env!("CARGO_PKG_VERSION"))
        .long_version(Resettable::Reset);
    for command in std::iter::once(whole).chain(all) {
        let name = format!("{}.1", command.get_name());
        let man = clap_mangen::Man::new(command)
            .date("")
            .source("soloist")
            .manual("soloist");
        let mut page = Vec::new();
        man.render(&mut page).unwrap();
        pages.insert(name, String::from_utf8(page).unwrap());
    }
    pages
}
