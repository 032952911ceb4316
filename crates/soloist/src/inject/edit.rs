//! Changes to a YAML text, each in the style of what is around it.

use std::cmp::Reverse;

use anyhow::{Context, bail, ensure};

use super::tree::{Content, Entry, Node, parse};
use crate::manifests::yaml::indented;

/// Changes to one text, applied all at once.
#[derive(Debug)]
pub(super) struct Edits<'a> {
    text: &'a str,
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Change {
    /// In bytes.
    at: usize,
    removed: usize,
    text: String,
    within: Within,
}

/// Several additions may come to the same place, where inner and outer blocks end together: the inner ones come first, and in a map
/// what belongs to its last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Within {
    /// An inner map begins later.
    map: Reverse<usize>,
    is_new_entry: bool,
}

impl<'a> Edits<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            changes: Vec::new(),
        }
    }

    /// The new text.
    pub(super) fn apply(mut self) -> String {
        self.changes
            .sort_by_key(|change| (change.at, change.within));
        let ending = if self.text.contains("\r\n") {
            "\r\n"
        } else {
            "\n"
        };
        let (mut new, mut done) = (String::new(), 0);
        for change in &self.changes {
            new += &self.text[done..change.at];
            new += &change.text.replace('\n', ending);
            done = change.at + change.removed;
        }
        new + &self.text[done..]
    }

    pub(super) fn replace(&mut self, node: &Node, text: &str) {
        self.changes.push(Change {
            at: node.range.start,
            removed: node.range.len(),
            text: text.to_owned(),
            within: Within {
                map: Reverse(node.range.start),
                is_new_entry: false,
            },
        });
    }

    /// Puts strings before the others of a list.
    pub(super) fn prepend(&mut self, list: &Node, words: &[String]) -> anyhow::Result<()> {
        refuse_shared(list)?;
        let quoted: Vec<String> = words
            .iter()
            .map(|word| serde_json::json!(word).to_string())
            .collect();
        match &list.content {
            Content::List { is_flow: true, .. } => {
                self.insert_in_flow(list, &quoted.join(", "), list.items().is_empty());
            }
            Content::List {
                items,
                is_flow: false,
            } => {
                let first = items.first().context("a block list is never empty")?;
                let dash = self.dash_of(first)?;
                let lines: String = quoted.iter().map(|word| format!("- {word}\n")).collect();
                let line = self.line_start(dash);
                // The list may begin behind its key's or another list's mark.
                if !self.text[line..dash].trim().is_empty() {
                    bail!(
                        "the list at {:?} begins in the middle of a line",
                        &self.text[line..dash]
                    );
                }
                self.insert(line, indented(&lines, dash - line), list, false);
            }
            Content::Scalar { .. } | Content::Map { .. } | Content::Alias => bail!("it is no list"),
        }
        Ok(())
    }

    /// Adds items (a block list as text) to the list under `key` of a map, which is made if it is not there.
    pub(super) fn add_items(&mut self, map: &Node, key: &str, items: &str) -> anyhow::Result<()> {
        let Some(entry) = map.entry(key) else {
            return self.add_entry(map, &format!("{key}:\n{items}"));
        };
        refuse_shared(map)?;
        refuse_shared(&entry.value).context(entry.key.clone())?;
        if entry.value.is_nothing() {
            return self.under_empty(map, entry, items);
        }
        match &entry.value.content {
            Content::List {
                items: found,
                is_flow: true,
            } => {
                let flow = flow(items)?;
                let inner = flow
                    .trim_start_matches('[')
                    .strip_suffix(']')
                    .context("a list")?;
                self.insert_in_flow(&entry.value, inner, found.is_empty());
            }
            Content::List {
                items: found,
                is_flow: false,
            } => {
                let last = found.last().context("a block list is never empty")?;
                let dash = self.dash_of(last)?;
                let indent = dash - self.line_start(dash);
                let at = self.line_end(entry.value.range.end);
                self.insert(at, indented(items, indent), map, false);
            }
            Content::Alias => bail!(
                "{key} is a YAML alias (*): write it out first, so that only this container is changed"
            ),
            Content::Scalar { .. } | Content::Map { .. } => bail!("{key} is no list"),
        }
        Ok(())
    }

    /// Adds an entry (as a block) to a map, at its end.
    pub(super) fn add_entry(&mut self, map: &Node, entry: &str) -> anyhow::Result<()> {
        refuse_shared(map)?;
        match &map.content {
            Content::Map {
                entries,
                is_flow: true,
            } => {
                let flow = flow(entry)?;
                let inner = flow
                    .strip_prefix('{')
                    .and_then(|rest| rest.strip_suffix('}'))
                    .context("a map")?;
                self.insert_in_flow(map, inner, entries.is_empty());
            }
            Content::Map {
                entries,
                is_flow: false,
            } => {
                let first = entries.first().context("a block map is never empty")?;
                let start = first.key_range.start;
                let indent = start - self.line_start(start);
                let at = self.line_end(map.range.end);
                self.insert(at, indented(entry, indent), map, true);
            }
            Content::Alias => {
                bail!("a YAML alias (*) stands where something has to be added: write it out first")
            }
            Content::Scalar { .. } | Content::List { .. } => bail!("it is no map"),
        }
        Ok(())
    }

    fn under_empty(&mut self, map: &Node, entry: &Entry, items: &str) -> anyhow::Result<()> {
        let start = entry.key_range.start;
        let line = self.line_start(start);
        if !entry.value.range.is_empty() {
            bail!("{} is null: remove it or write it as a list", entry.key);
        }
        let at = self.line_end(entry.key_range.end);
        self.insert(at, indented(items, start - line), map, false);
        Ok(())
    }

    fn insert_in_flow(&mut self, node: &Node, inner: &str, is_empty: bool) {
        let comma = if is_empty { "" } else { ", " };
        self.insert(node.range.start + 1, format!("{inner}{comma}"), node, false);
    }

    fn insert(&mut self, at: usize, text: String, map: &Node, is_new_entry: bool) {
        self.changes.push(Change {
            at,
            removed: 0,
            text,
            within: Within {
                map: Reverse(map.range.start),
                is_new_entry,
            },
        });
    }

    /// Where the mark of a block list's item is.
    fn dash_of(&self, item: &Node) -> anyhow::Result<usize> {
        let before = &self.text[..item.range.start];
        let dash = before
            .trim_end_matches([' ', '\n', '\r'])
            .len()
            .checked_sub(1);
        match dash {
            Some(dash) if before.as_bytes()[dash] == b'-' => Ok(dash),
            Some(_) | None => bail!(
                "a list that cannot be changed here (an anchor, a tag or a comment after its mark); write it out plainly"
            ),
        }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The start of the line after what ends here. A block scalar ends on the line after it, before or behind that one's indent.
    fn line_end(&self, at: usize) -> usize {
        let line = self.line_start(at);
        if self.text[line..at].trim().is_empty() {
            return line;
        }
        let newline = self.text[at..].find('\n');
        newline.map_or(self.text.len(), |newline| at + newline + 1)
    }
}

fn refuse_shared(node: &Node) -> anyhow::Result<()> {
    ensure!(
        !node.is_shared,
        "what has to be changed has a YAML anchor (&) that is used elsewhere (*), and would be changed there, too: write it out first"
    );
    Ok(())
}

/// A block as JSON, which is YAML's flow style.
fn flow(block: &str) -> anyhow::Result<String> {
    let documents = parse(block)?;
    let node = documents.first().context("nothing to add")?;
    Ok(node.to_json().to_string())
}
