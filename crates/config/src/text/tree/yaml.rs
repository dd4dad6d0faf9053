//! YAML text to a tree, bounded in every direction a text can grow in.
//!
//! The parser only pulls events, so nothing here depends on the depth of the text but a list.
//! Aliases are copied in place of expanding them later, and what they copy is counted.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::{Entry, Node, Value, environment, unreadable};
use crate::findings::{Findings, Path, Position, Problem, START};
use crate::map::Map;

/// Bytes of a file of the configuration, or of one that it names. Ten thousand clusters take about two MiB.
pub const FILE_BYTES_MAX: usize = 64 << 20;

/// Lists and maps within each other. The deepest key of ours is at seven.
pub(super) const DEPTH_MAX: usize = 32;

/// Nodes that anchors and aliases may copy: an alias may name what holds aliases, so that a dozen
/// lines could otherwise grow to any size.
const ALIAS_NODES_MAX: usize = 100_000;

/// Octets of text that these may copy.
const ALIAS_BYTES_MAX: usize = 8 << 20;

/// Reads `text`. What is wrong with it is reported, with `empty_hint` if it is empty; none means that
/// nothing can be read.
pub(crate) fn read(
    text: &str,
    empty_hint: &'static str,
    findings: &mut Findings<'_>,
) -> Option<Node> {
    if text.len() > FILE_BYTES_MAX {
        let rule = format!("a file has at most {} MiB", FILE_BYTES_MAX >> 20);
        let problem = Problem::new(rule, "split the configuration among processes");
        findings.error(START, Path::Root, "", problem);
        return None;
    }
    let mut reader = Reader {
        findings,
        open: Vec::new(),
        anchors: Map::default(),
        copied: Copied::default(),
        root: None,
        is_unbraced: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match reader.run(text) {
        Ok(()) => {}
        Err(stop) => {
            let Reader { findings, open, .. } = reader;
            report(findings, stop, &open, Wrong::Value, Path::Root);
            return None;
        }
    }
    let root = reader.root;
    match root {
        Some(node) if node.scalar() != Some(super::Scalar::Null) => Some(node),
        _ => {
            let problem = Problem::new("the file is empty", empty_hint);
            findings.error(START, Path::Root, "", problem);
            None
        }
    }
}

/// What ends the reading: where and why.
pub(super) type Stop = (Position, Problem);

/// Puts the tree together from events.
struct Reader<'a, 'text> {
    findings: &'a mut Findings<'text>,
    /// The lists and maps around the place that is read.
    open: Vec<Open>,
    /// What an anchor stands for.
    anchors: Map<usize, (Node, Extent)>,
    copied: Copied,
    root: Option<Node>,
    /// Whether variables have other characters for their braces in what is read.
    is_unbraced: bool,
}

/// What anchors and aliases have copied so far.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    nodes: usize,
    bytes: usize,
}

impl Copied {
    fn add(&mut self, extent: Extent, at: Position) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(extent.nodes);
        self.bytes = self.bytes.saturating_add(extent.bytes);
        let is_within = self.nodes <= ALIAS_NODES_MAX && self.bytes <= ALIAS_BYTES_MAX;
        if is_within { Ok(()) } else { Err(too_many_copies(at)) }
    }
}

/// A list or a map whose end was not yet seen.
struct Open {
    at: Position,
    anchor: usize,
    extent: Extent,
    holds: Holds,
}

/// How large a value is.
#[derive(Clone, Copy)]
struct Extent {
    /// Values in it and itself.
    nodes: usize,
    /// Octets of their texts.
    bytes: usize,
    /// Lists and maps within each other.
    depth: usize,
}

impl Extent {
    const EMPTY: Self = Self { nodes: 1, bytes: 0, depth: 1 };

    const fn of_text(text: &str) -> Self {
        Self { nodes: 1, bytes: text.len(), depth: 0 }
    }

    fn add(&mut self, inner: Self) {
        self.nodes = self.nodes.saturating_add(inner.nodes);
        self.bytes = self.bytes.saturating_add(inner.bytes);
        self.depth = self.depth.max(inner.depth.saturating_add(1));
    }
}

enum Holds {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// Where each key was first written, to find a second.
        keys: Map<Box<str>, Position>,
        /// A key that waits for its value, and whether the value is wanted.
        pending: Option<(Box<str>, Position, bool)>,
    },
}

impl Reader<'_, '_> {
    fn run(&mut self, text: &str) -> Result<(), Stop> {
        let unbraced = environment::without_braces(text);
        self.is_unbraced = unbraced.is_some();
        let read = unbraced.as_deref().unwrap_or(text);
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(read);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| unreadable::explain(text, &error))?;
            self.on_event(event, position(&span))?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event<'_>, at: Position) -> Result<(), Stop> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.on_document(at),
            Event::Alias(anchor) => self.on_alias(anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                no_tag(tag.is_some(), at)?;
                let is_plain = style == ScalarStyle::Plain;
                let text = match self.is_unbraced {
                    true => environment::with_braces(&text).into_owned().into(),
                    false => text,
                };
                let extent = Extent::of_text(&text);
                let value = Value::Scalar { text: text.into(), is_plain };
                self.on_node(Node::new(at, value), anchor, extent)
            }
            Event::SequenceStart(anchor, tag) => {
                no_tag(tag.is_some(), at)?;
                self.open(at, anchor, Holds::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                no_tag(tag.is_some(), at)?;
                let holds = Holds::Map { entries: Vec::new(), keys: Map::default(), pending: None };
                self.open(at, anchor, holds)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
        }
    }

    fn on_document(&self, at: Position) -> Result<(), Stop> {
        if self.root.is_none() {
            return Ok(());
        }
        let hint = "remove the `---` or the `...` before it, or put the rest into another file";
        Err((at, Problem::new("a file holds one document", hint)))
    }

    fn open(&mut self, at: Position, anchor: usize, holds: Holds) -> Result<(), Stop> {
        if self.open.len() >= DEPTH_MAX {
            return Err(too_deep(at));
        }
        if let Some(Open { holds: Holds::Map { pending: None, .. }, .. }) = self.open.last() {
            return Err(key_not_text(at));
        }
        self.open.push(Open { at, anchor, extent: Extent::EMPTY, holds });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Stop> {
        let Some(Open { at, anchor, extent, holds }) = self.open.pop() else { return Ok(()) };
        let value = match holds {
            Holds::List(items) => Value::List(items),
            Holds::Map { entries, .. } => Value::Map(entries),
        };
        self.on_node(Node::new(at, value), anchor, extent)
    }

    fn on_alias(&mut self, anchor: usize, at: Position) -> Result<(), Stop> {
        let Some((node, extent)) = self.anchors.get(&anchor) else {
            let hint = "an alias must come after the end of its anchor";
            return Err((at, Problem::new("this alias has no anchor before it", hint)));
        };
        if self.open.len().saturating_add(extent.depth) > DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.copied.add(*extent, at)?;
        let (node, extent) = (node.clone(), *extent);
        self.on_node(node, 0, extent)
    }

    /// A whole node: it becomes a key, a value, an item or the root.
    fn on_node(&mut self, node: Node, anchor: usize, extent: Extent) -> Result<(), Stop> {
        if anchor != 0 {
            self.copied.add(extent, node.at)?;
            self.anchors.insert(anchor, (node.clone(), extent));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.extent.add(extent);
        match &mut open.holds {
            Holds::List(items) => items.push(node),
            Holds::Map { entries, pending, .. } if pending.is_some() => {
                if let Some((key, key_at, true)) = pending.take() {
                    entries.push(Entry { key, key_at, value: node });
                }
            }
            Holds::Map { keys, pending, .. } => {
                let at = node.at;
                let Value::Scalar { text: key, .. } = node.value else {
                    return Err(key_not_text(at));
                };
                let former = keys.get(&key).copied();
                if former.is_none() {
                    keys.insert(key.clone(), at);
                }
                *pending = Some((key, at, former.is_none()));
                if let Some(former) = former {
                    let hint =
                        format!("it is on line {} already; keep one of the two", former.line);
                    let stop = (at, Problem::new("a key may occur only once in a map", hint));
                    report(self.findings, stop, &self.open, Wrong::Key, Path::Root);
                }
            }
        }
        Ok(())
    }
}

/// Whether the last key is wrong, or what stands behind it.
#[derive(Clone, Copy)]
enum Wrong {
    Key,
    Value,
}

/// Reports what is wrong at the place that is read, with the path of that place.
fn report(
    findings: &mut Findings<'_>,
    (at, problem): Stop,
    open: &[Open],
    wrong: Wrong,
    path: Path<'_>,
) {
    let Some((first, inner)) = open.split_first() else {
        return match wrong {
            Wrong::Key => findings.key_error(at, path, problem),
            Wrong::Value => findings.error(at, path, "", problem),
        };
    };
    let path = match &first.holds {
        Holds::List(items) => Path::Index(&path, items.len()),
        Holds::Map { pending: Some((key, ..)), .. } => Path::Key(&path, key),
        Holds::Map { pending: None, .. } => path,
    };
    report(findings, (at, problem), inner, wrong, path);
}

fn too_deep(at: Position) -> Stop {
    let rule = format!("lists and maps may be nested at most {DEPTH_MAX} deep");
    (at, Problem::new(rule, "no key of a configuration is that deep"))
}

fn too_many_copies(at: Position) -> Stop {
    let mib = ALIAS_BYTES_MAX >> 20;
    let rule = format!("anchors and aliases copy at most {ALIAS_NODES_MAX} values, and {mib} MiB");
    (at, Problem::new(rule, "write out what differs, or use fewer aliases"))
}

fn no_tag(has_tag: bool, at: Position) -> Result<(), Stop> {
    if has_tag {
        let hint = "remove the tag; put quotes around what is text";
        return Err((at, Problem::new("tags (`!name`) have no meaning here", hint)));
    }
    Ok(())
}

fn key_not_text(at: Position) -> Stop {
    let hint = "write `key: value`; put quotes around a key with special characters";
    (at, Problem::new("a key is text", hint))
}

fn position(span: &Span) -> Position {
    marker(span.start)
}

pub(super) fn marker(marker: saphyr_parser::Marker) -> Position {
    // The bound on a file's size keeps both within 32 bits.
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: count(marker.line()), column: count(marker.col()).saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Errors;

    fn parse(text: &str) -> Result<Node, Errors> {
        let mut findings = Findings::new("f", text);
        let node = read(text, "begin with `listeners:`; examples/ has files", &mut findings);
        findings.into_result().map(|_| node.unwrap())
    }

    fn json(text: &str) -> String {
        parse(text).unwrap().to_json().to_string()
    }

    #[test]
    fn text_becomes_a_tree_with_positions() {
        let root = parse("a:\n  - 1\n  - {b: \"x\"}\n").unwrap();
        let list = root.find("a").unwrap();
        assert_eq!(list.items()[0].at, Position { line: 2, column: 5 });
        let b = list.items()[1].find("b").unwrap();
        assert_eq!(b.at, Position { line: 3, column: 9 });
        assert_eq!(root.to_json().to_string(), r#"{"a":[1,{"b":"x"}]}"#);
    }

    #[test]
    fn columns_count_characters_not_bytes() {
        let root = parse("{é: ü, b: 1}").unwrap();
        assert_eq!(root.find("b").unwrap().at, Position { line: 1, column: 11 });
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(json("\u{feff}a: 1"), r#"{"a":1}"#);
    }

    #[test]
    fn aliases_stand_for_their_anchor() {
        assert_eq!(json("a: &x {b: 1}\nc: *x\n"), r#"{"a":{"b":1},"c":{"b":1}}"#);
    }

    #[test]
    fn a_laughing_file_is_stopped_at_the_bound() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..30 {
            let below = format!("*a{}", level - 1);
            let items = vec![below; 10].join(",");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        let errors = parse(&text).unwrap_err();
        assert!(errors.errors[0].rule.contains("100000 values"), "{errors}");
    }

    #[test]
    fn what_anchors_copy_of_a_long_text_is_bounded_too() {
        let text = |len: usize| format!("- &a {}\n{}", "x".repeat(len), "- *a\n".repeat(1_000));
        assert_eq!(parse(&text(8_000)).unwrap().items().len(), 1_001);
        let errors = parse(&text(9_000)).unwrap_err();
        assert!(errors.errors[0].rule.contains("and 8 MiB"), "{errors}");
    }

    #[test]
    fn brackets_without_an_end_are_refused_as_fast_as_they_are_read() {
        // By an error that looks for each of them at the rest of the line, this takes minutes.
        assert!(parse(&"[".repeat(4 << 20)).is_err());
        assert!(parse(&"[a, ".repeat(1 << 20)).is_err());
    }

    #[test]
    fn an_anchor_within_itself_is_no_anchor() {
        assert!(parse("a: &x [*x]").is_err());
    }

    #[test]
    fn aliases_do_not_deepen_a_file_beyond_the_bound() {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(20), "]".repeat(20));
        let errors = parse(&format!("a: &a {}\nb: {}\n", nested("1"), nested("*a"))).unwrap_err();
        assert!(errors.errors[0].rule.contains("32 deep"), "{errors}");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        let errors = parse(&nested(DEPTH_MAX + 1)).unwrap_err();
        assert!(errors.errors[0].rule.contains("32 deep"), "{errors}");
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn each_mistake_of_the_text_is_told_with_its_place() {
        for (text, line, column, path, rule, hint) in [
            ("", 1, 1, "", "the file is empty", "begin with `listeners:`"),
            ("# only a remark\n", 1, 1, "", "the file is empty", "examples/"),
            ("---\n~\n", 1, 1, "", "the file is empty", "examples/"),
            ("a: 1\nb: 2\na: 3\n", 3, 1, "a", "a key may occur only once", "line 1"),
            ("x: [{a: 1, a: 2}]", 1, 12, "x[0].a", "a key may occur only once", "line 1"),
            ("a: !!str 1", 1, 4, "a", "tags", "remove the tag"),
            ("a: 1\n---\nb: 2\n", 2, 1, "", "one document", "another file"),
            ("? [a]\n: 1\n", 1, 3, "", "a key is text", "key: value"),
            ("a: [1\nb: 2\n", 2, 2, "a", "not YAML", "brackets"),
            ("a: \"x\n", 1, 4, "a", "not YAML", "quotes"),
            ("a: *x\n", 1, 4, "", "not YAML", ""),
            ("a: b: c\n", 1, 5, "", "not YAML", "indentation"),
            ("a:\n\t- b: 1\n", 2, 1, "a", "this is a tab", "spaces"),
            ("a:\n  - b: 1\n\t  c: 2\n", 3, 1, "a[0]", "this is a tab", "spaces"),
            ("a:\n  b:\t1\n  c: 1\n", 2, 5, "a", "this is a tab", "spaces"),
            ("a:\n  b: [::]:80\n  c: 1\n", 2, 6, "a", "beginning of a list", "write \"[::]:80\""),
            ("a: { b: ${C:-[]}, d: e }", 1, 9, "a", "a variable", "write \"${C:-[]}\""),
            ("a: { b: $${5}, d: e }", 1, 9, "a", "these characters", "write \"$${5}\""),
            ("a: { b: ${c-d}, d: e }", 1, 9, "a", "letters, digits and `_`", "write ${NAME}"),
            ("a: [::1]:80", 1, 4, "", "beginning of a list", "write \"[::1]:80\""),
        ] {
            let errors = parse(text).unwrap_err();
            let error = &errors.errors[0];
            assert!(error.rule.contains(rule) && error.hint.contains(hint), "{text:?}: {error:?}");
            assert_eq!((error.line, error.column), (line, column), "{text:?}: {error:?}");
            assert!(error.path.starts_with(path), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn all_duplicate_keys_are_reported_and_the_first_stays() {
        let text = "a: 1\na: 2\nb: {c: 1, c: 2, c: {d: 1, d: 2}}\n";
        let mut findings = Findings::new("f", text);
        let root = read(text, "", &mut findings).unwrap();
        assert_eq!(root.to_json().to_string(), r#"{"a":1,"b":{"c":1}}"#);
        let paths: Vec<String> =
            findings.into_result().unwrap_err().errors.into_iter().map(|e| e.path).collect();
        assert_eq!(paths, ["a", "b.c", "b.c", "b.c.d"]);
    }
}
