//! Templates of paths: `/items/{id}/{rest=**}`, as in Envoy's URI template.
//!
//! `*` stands for what is between two slashes, at least one octet of it, and `**` for anything, slashes included, with
//! nothing but text behind it. `{name}` is `{name=*}`; a variable may hold a pattern of its own, `{name=a/*/b}`.

use regex_syntax::hir::{Capture, Class, ClassBytes, ClassBytesRange, Dot, Hir, Repetition};

use crate::findings::Problem;

/// Variables in one template.
const VARIABLES_MAX: usize = 5;

/// Bytes of the name of a variable.
const NAME_BYTES_MAX: usize = 16;

/// A template that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Itself.
    Text(Box<[u8]>),
    /// `*`.
    One,
    /// `**`.
    Many,
    /// `{name=...}`.
    Variable(Box<str>, Vec<Self>),
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        if !text.starts_with('/') {
            return Err(Problem::new(
                "a template begins with `/`",
                format!("write {:?}", format!("/{text}")),
            ));
        }
        let mut parser = Parser { rest: text, names: Vec::new(), has_many: false };
        let pieces = parser.pieces(false)?;
        Ok(Self { pieces })
    }

    /// The names of its variables, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let names = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(name, _) => Some(&**name),
            Piece::Text(_) | Piece::One | Piece::Many => None,
        });
        names.collect()
    }

    /// The expression that matches what it matches; its groups are its variables, from 1 on.
    pub(crate) fn hir(&self) -> Hir {
        let mut groups = 0;
        of_pieces(&self.pieces, &mut groups)
    }
}

fn of_pieces(pieces: &[Piece], groups: &mut u32) -> Hir {
    let pieces = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => Hir::literal(text.clone()),
        Piece::One => repeated(1, Hir::class(Class::Bytes(no_slash()))),
        Piece::Many => repeated(0, Hir::dot(Dot::AnyByte)),
        Piece::Variable(name, inner) => {
            *groups += 1;
            let (index, name) = (*groups, Some(name.clone()));
            Hir::capture(Capture { index, name, sub: Box::new(of_pieces(inner, groups)) })
        }
    });
    Hir::concat(pieces.collect())
}

fn repeated(min: u32, hir: Hir) -> Hir {
    Hir::repetition(Repetition { min, max: None, greedy: true, sub: Box::new(hir) })
}

fn no_slash() -> ClassBytes {
    let ranges = [ClassBytesRange::new(0, b'/' - 1), ClassBytesRange::new(b'/' + 1, u8::MAX)];
    ClassBytes::new(ranges)
}

struct Parser<'t> {
    rest: &'t str,
    names: Vec<&'t str>,
    has_many: bool,
}

impl<'t> Parser<'t> {
    /// Everything up to the end, or to the brace that closes a variable.
    fn pieces(&mut self, is_inner: bool) -> Result<Vec<Piece>, Problem> {
        let mut pieces = Vec::new();
        while !self.rest.is_empty() {
            let end = self.rest.find(['*', '{', '}']).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            if !text.is_empty() {
                pieces.push(Piece::Text(literal(text)?));
            }
            self.rest = rest;
            if let Some(rest) = rest.strip_prefix("**") {
                (self.rest, self.has_many) = (rest, true);
                pieces.push(Piece::Many);
            } else if let Some(rest) = rest.strip_prefix('*') {
                self.rest = rest;
                self.check_last()?;
                pieces.push(Piece::One);
            } else if let Some(rest) = rest.strip_prefix('{') {
                if is_inner {
                    let rule = "a variable cannot contain another variable";
                    return Err(Problem::new(rule, "write {name=*} or {name=**}"));
                }
                self.rest = rest;
                self.check_last()?;
                pieces.push(self.variable()?);
            } else if rest.starts_with('}') {
                if is_inner {
                    return Ok(pieces);
                }
                return Err(Problem::new("a `}` has no `{` before it", "remove it, or write %7D"));
            }
        }
        if is_inner {
            return Err(Problem::new("a `{` is not closed", "add a `}` behind the variable"));
        }
        Ok(pieces)
    }

    /// What stands behind `**` would be taken by it.
    fn check_last(&self) -> Result<(), Problem> {
        if self.has_many {
            let rule = "`**` must come last in a template, followed by text only";
            return Err(Problem::new(rule, "write `*` in its place, or remove what follows"));
        }
        Ok(())
    }

    fn variable(&mut self) -> Result<Piece, Problem> {
        let end = self.rest.find(['=', '}', '{']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name || name.len() > NAME_BYTES_MAX {
            let rule = format!(
                "a variable has a name of letters, digits and `_`, {NAME_BYTES_MAX} at most, that begins with a \
                 letter"
            );
            return Err(Problem::new(rule, "write {id}, for instance"));
        }
        if self.names.contains(&name) {
            let rule = format!("the variable `{name}` occurs twice");
            return Err(Problem::new(rule, "give one of them another name"));
        }
        self.names.push(name);
        if self.names.len() > VARIABLES_MAX {
            let rule = format!("a template has {VARIABLES_MAX} variables at most");
            return Err(Problem::new(rule, "write `*` where no name is needed, or use `regex`"));
        }
        self.rest = rest;
        let inner = match rest.strip_prefix('=') {
            Some(rest) => {
                self.rest = rest;
                let inner = self.pieces(true)?;
                if inner.is_empty() {
                    let rule = "a variable without a pattern matches nothing";
                    return Err(Problem::new(rule, format!("write {{{name}}}")));
                }
                inner
            }
            None => vec![Piece::One],
        };
        match self.rest.strip_prefix('}') {
            Some(rest) => self.rest = rest,
            None => {
                return Err(Problem::new("a `{` is not closed", "add a `}` behind the variable"));
            }
        }
        Ok(Piece::Variable(name.into(), inner))
    }
}

/// Text in the one spelling of paths.
fn literal(text: &str) -> Result<Box<[u8]>, Problem> {
    if let Some(wrong) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#')) {
        let rule = format!("{wrong:?} is not allowed unencoded in a path");
        return Err(Problem::new(rule, "write it percent-encoded; the query is no part of a path"));
    }
    let mut normal = Vec::with_capacity(text.len() + 1);
    wire::path::normalise_octets(format!("/{text}").as_bytes(), &mut normal).map_err(|error| {
        Problem::new(error.to_string(), "remove it: requests with it are refused")
    })?;
    normal.remove(0);
    Ok(normal.into())
}

#[cfg(test)]
mod tests {
    use regex_automata::nfa::thompson::pikevm::PikeVM;
    use regex_automata::nfa::thompson::{Config, NFA};
    use regex_syntax::hir::Look;

    use super::*;

    fn groups(template: &str, path: &str) -> Option<Vec<String>> {
        let hir =
            Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}")).hir();
        let whole = Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]);
        let nfa =
            NFA::compiler().configure(Config::new().utf8(false)).build_from_hir(&whole).unwrap();
        let vm = PikeVM::new_from_nfa(nfa).unwrap();
        let (mut cache, mut captures) = (vm.create_cache(), vm.create_captures());
        vm.captures(&mut cache, path, &mut captures);
        captures.is_match().then(|| {
            let groups = captures.iter().skip(1).flatten();
            groups.map(|span| path[span.range()].to_owned()).collect()
        })
    }

    #[test]
    fn variables_hold_what_stands_in_their_place() {
        for (template, path, expected) in [
            ("/items/{id}", "/items/7", Some(&["7"][..])),
            ("/items/{id}", "/items/7/", None),
            ("/items/{id}", "/items/", None),
            ("/items/{id}/{rest=**}", "/items/7/a/b", Some(&["7", "a/b"])),
            ("/items/{id}/{rest=**}", "/items/7/", Some(&["7", ""])),
            ("/items/{id}/{rest=**}", "/items/7", None),
            ("/{a=b/*}/c", "/b/x/c", Some(&["b/x"])),
            ("/{a=b/*}/c", "/d/x/c", None),
            ("/*/x", "/a/x", Some(&[])),
            ("/*/x", "/a/b/x", None),
            ("/**.mpd", "/a/b.mpd", Some(&[])),
            ("/{path=**}.mpd", "/a/b.mpd", Some(&["a/b"])),
            ("/v*/x", "/v2/x", Some(&[])),
            ("/v*/x", "/v/x", None),
            ("/%7euser/{f}", "/~user/a%2Fb", Some(&["a%2Fb"])),
            ("/a.b", "/axb", None),
        ] {
            let expected = expected.map(|groups| groups.iter().map(ToString::to_string).collect());
            assert_eq!(groups(template, path), expected, "{template} {path}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused_with_a_hint() {
        for (template, hint) in [
            ("items", "\"/items\""),
            ("/{}", "{id}"),
            ("/{7}", "{id}"),
            ("/{a", "add a `}`"),
            ("/{a=*", "add a `}`"),
            ("/a}", "%7D"),
            ("/{a}/{a}", "another name"),
            ("/{a={b}}", "{name=*}"),
            ("/{a=}", "{a}"),
            ("/**/x/*", "remove what follows"),
            ("/**/{x}", "remove what follows"),
            ("/{a}/{b}/{c}/{d}/{e}/{f}", "`regex`"),
            ("/{abcdefghijklmnopq}", "{id}"),
            ("/a?b", "percent-encoded"),
            ("/a\\b", "remove it"),
            ("/%zz", "remove it"),
        ] {
            let problem = Template::parse(template).unwrap_err();
            assert!(problem.hint.contains(hint), "{template}: {problem}");
        }
        assert_eq!(Template::parse("/a/{id}/{rest=**}").unwrap().names(), ["id", "rest"]);
    }
}
