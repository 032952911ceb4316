//! A YAML text as a tree that knows where everything stands, so that it can be changed in place: what is not touched stays as it
//! is, comments included.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, anyhow, bail};
use granit_parser::{Event, Parser, Span, StrInput, StructureStyle};
use serde_json::Value;

/// A node, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    /// In bytes. Of a block, from its first character to the last of what is in it.
    pub(super) range: Range<usize>,
    /// The number of its anchor, 0 without one.
    anchor: usize,
    /// It has an anchor that is used: what is changed in it is changed elsewhere, too.
    pub(super) is_shared: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar {
        text: String,
        is_plain: bool,
    },
    List {
        items: Vec<Node>,
        is_flow: bool,
    },
    Map {
        entries: Vec<Entry>,
        is_flow: bool,
    },
    /// A reference to another node: what is changed there is changed in both.
    Alias,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_range: Range<usize>,
    pub(super) value: Node,
}

/// What people try.
const TEMPLATE: &str = " (a Helm chart's template is no YAML: inject what `helm template` prints)";

/// The documents of a text.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Node>> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        used: BTreeSet::new(),
    };
    let mut documents = Vec::new();
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => {
                for document in &mut documents {
                    mark_shared(document, &reader.used, false);
                }
                return Ok(documents);
            }
            (Event::DocumentStart(..), _) => {
                let (event, span) = reader.next()?;
                documents.push(reader.node(event, &span)?);
            }
            _ => {}
        }
    }
}

/// What is in a node that is used elsewhere is used there, too.
fn mark_shared(node: &mut Node, used: &BTreeSet<usize>, within: bool) {
    node.is_shared = within || used.contains(&node.anchor);
    let is_shared = node.is_shared;
    match &mut node.content {
        Content::List { items, .. } => {
            for item in items {
                mark_shared(item, used, is_shared);
            }
        }
        Content::Map { entries, .. } => {
            for entry in entries {
                mark_shared(&mut entry.value, used, is_shared);
            }
        }
        Content::Scalar { .. } | Content::Alias => {}
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The anchors that something refers to.
    used: BTreeSet<usize>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> anyhow::Result<(Event<'a>, Span)> {
        loop {
            let event = self
                .parser
                .next_event()
                .context("the YAML ends too early")?;
            let (event, span) =
                event.map_err(|error| anyhow!("no valid YAML: {error}{TEMPLATE}"))?;
            match event {
                Event::Comment(..) | Event::Anchor(..) => {}
                event => return Ok((event, span)),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span) -> anyhow::Result<Node> {
        let range = bytes(span)?;
        let (content, range, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let content = Content::Scalar {
                    text: text.into_owned(),
                    is_plain: style == granit_parser::ScalarStyle::Plain,
                };
                (content, range, anchor)
            }
            Event::SequenceStart(style, anchor, _) => {
                let (content, range) = self.list(style, range.start)?;
                (content, range, anchor)
            }
            Event::MappingStart(style, anchor, _) => {
                let (content, range) = self.map(style, range.start)?;
                (content, range, anchor)
            }
            Event::Alias(anchor) => {
                self.used.insert(anchor);
                (Content::Alias, range, 0)
            }
            other => return Err(anyhow!("not understood: {other:?}")),
        };
        Ok(Node {
            content,
            range,
            anchor,
            is_shared: false,
        })
    }

    fn list(&mut self, style: StructureStyle, start: usize) -> anyhow::Result<Found> {
        let is_flow = style == StructureStyle::Flow;
        let mut items: Vec<Node> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                let last = items.last().map(|item| item.range.end);
                let end = if is_flow {
                    bytes(&span)?.end
                } else {
                    last.unwrap_or(start)
                };
                return Ok((Content::List { items, is_flow }, start..end));
            }
            items.push(self.node(event, &span)?);
        }
    }

    fn map(&mut self, style: StructureStyle, start: usize) -> anyhow::Result<Found> {
        let is_flow = style == StructureStyle::Flow;
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                let last = entries.last().map(Entry::end);
                let end = if is_flow {
                    bytes(&span)?.end
                } else {
                    last.unwrap_or(start)
                };
                let start = match entries.first() {
                    Some(first) if !is_flow => first.key_range.start,
                    Some(_) | None => start,
                };
                return Ok((Content::Map { entries, is_flow }, start..end));
            }
            let key = self.node(event, &span)?;
            let (event, span) = self.next()?;
            let value = self.node(event, &span)?;
            let Some(text) = key.text().map(str::to_owned) else {
                bail!("a map's key is no text{TEMPLATE}");
            };
            entries.push(Entry {
                key: text,
                key_range: key.range,
                value,
            });
        }
    }
}

type Found = (Content, Range<usize>);

fn bytes(span: &Span) -> anyhow::Result<Range<usize>> {
    let start = span.start.byte_offset().context("no position")?;
    let end = span.end.byte_offset().context("no position")?;
    Ok(start..end)
}

impl Entry {
    fn end(&self) -> usize {
        self.value.range.end.max(self.key_range.end)
    }
}

impl Node {
    /// An entry of a map.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.content {
            Content::Map { entries, .. } => entries.iter().find(|entry| entry.key == key),
            Content::Scalar { .. } | Content::List { .. } | Content::Alias => None,
        }
    }

    /// What is at the end of these keys.
    pub(super) fn get(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter()
            .try_fold(self, |node, key| Some(&node.entry(key)?.value))
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List { .. } | Content::Map { .. } | Content::Alias => None,
        }
    }

    /// The text at the end of these keys.
    pub(super) fn text_at(&self, keys: &[&str]) -> Option<&str> {
        self.get(keys)?.text()
    }

    pub(super) fn items(&self) -> &[Self] {
        match &self.content {
            Content::List { items, .. } => items,
            Content::Scalar { .. } | Content::Map { .. } | Content::Alias => &[],
        }
    }

    /// A key without a value.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.content {
            Content::Scalar { text, is_plain } => {
                *is_plain && matches!(text.as_str(), "" | "~" | "null")
            }
            Content::List { .. } | Content::Map { .. } | Content::Alias => false,
        }
    }

    /// As JSON; of plain scalars only numbers and truth values as people write them are more than text.
    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            Content::Alias => Value::Null,
            Content::List { items, .. } => items.iter().map(Self::to_json).collect(),
            Content::Map { entries, .. } => {
                let entries = entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(entries.collect())
            }
            Content::Scalar {
                text,
                is_plain: false,
            } => Value::String(text.clone()),
            Content::Scalar {
                text,
                is_plain: true,
            } => match text.as_str() {
                "" | "~" | "null" => Value::Null,
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                text => text
                    .parse::<i64>()
                    .map_or_else(|_| text.into(), Value::from),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_is_found_where_it_stands() {
        let text = "# c\na: {b: [1, \"x\"]} # d\nlist:\n- é: 1\n  z: |\n    block\n- last\n---\nnext: true\n";
        let documents = parse(text).unwrap();
        assert_eq!(documents.len(), 2);
        let first = &documents[0];
        assert_eq!(
            &text[first.get(&["a", "b"]).unwrap().range.clone()],
            "[1, \"x\"]"
        );
        assert_eq!(
            &text[first.get(&["a"]).unwrap().range.clone()],
            "{b: [1, \"x\"]}"
        );
        let list = first.get(&["list"]).unwrap();
        assert_eq!(&text[list.items()[1].range.clone()], "last");
        assert_eq!(list.range.end, list.items()[1].range.end);
        assert_eq!(list.items()[0].text_at(&["z"]), Some("block\n"));
        let json = json!({"a": {"b": [1, "x"]}, "list": [{"é": 1, "z": "block\n"}, "last"]});
        assert_eq!(first.to_json(), json);
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        let error = parse("a: [1,\nb: }\n").unwrap_err().to_string();
        assert!(
            error.contains("no valid YAML") && error.contains("line 1"),
            "{error}"
        );
    }
}
