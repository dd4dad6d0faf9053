//! The regular expressions of a route table: compiled as one automaton, searched in linear time.
//!
//! A worker has the memory that searches need ([`Searches`]), and gives it to each search: what is shared is immutable.
//! An expression matches a whole value or none of it, as in Envoy. Classes are ASCII's and `.` is an octet, since
//! values of peers need not be UTF-8.

use std::sync::Arc;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::{self, PikeVM};
use regex_automata::nfa::thompson::{NFA, WhichCaptures};
use regex_automata::{Anchored, Input, MatchKind, PatternID, PatternSet};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, Look};

use super::template::Template;
use super::value::Case;
use crate::findings::Problem;
use crate::map::Map;

/// Bytes of one expression, compiled.
pub const REGEX_BYTES_MAX: usize = 64 << 10;

/// Bytes of all expressions of a kind in a route table, compiled.
pub const REGEXES_BYTES_MAX: usize = 32 << 20;

/// Bytes that a worker keeps for searches.
pub const SEARCH_BYTES_MAX: usize = 8 << 20;

/// Bytes of states that one table's search may keep. Those that were met are kept, and forgotten when they are more;
/// where they are forgotten too often, the search goes on without.
const CACHE_BYTES_MAX: usize = 2 << 20;

/// How often states are forgotten in a search before it goes on without them, unless each has served for so many
/// bytes.
const FORGOTTEN_MAX: usize = 3;
const BYTES_PER_STATE: usize = 10;

/// Parentheses within parentheses in an expression.
const NESTING_MAX: u32 = 50;

/// Expressions that are searched by one automaton.
#[derive(Debug, Default)]
pub struct Regexes {
    compiled: Option<Compiled>,
    sources: Box<[Source]>,
}

/// One automaton in two forms.
#[derive(Debug)]
struct Compiled {
    /// Its states are made as they are met.
    dfa: DFA,
    /// Needs no states; for values that would need too many.
    vm: PikeVM,
}

/// What an expression was written as.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    text: Box<str>,
    case: Case,
}

impl PartialEq for Regexes {
    fn eq(&self, other: &Self) -> bool {
        self.sources == other.sources
    }
}

impl Eq for Regexes {}

impl Regexes {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// The expressions of a table while it is built.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    sources: Vec<Source>,
    hirs: Vec<Hir>,
    places: Map<Source, u32>,
}

impl Patterns {
    /// The place that an expression has, or is given.
    ///
    /// # Errors
    ///
    /// If it is none, or too large once it is compiled.
    pub(crate) fn add(&mut self, text: &str, case: Case) -> Result<u32, Problem> {
        let source = Source { text: text.into(), case };
        if let Some(place) = self.places.get(&source) {
            return Ok(*place);
        }
        self.push(source, parse(text, case)?)
    }

    /// The same for what a template matches.
    ///
    /// # Errors
    ///
    /// If it is too large once it is compiled.
    pub(crate) fn add_template(&mut self, text: &str, template: &Template) -> Result<u32, Problem> {
        // No text of an expression begins so.
        let source = Source { text: format!("*{text}").into(), case: Case::default() };
        if let Some(place) = self.places.get(&source) {
            return Ok(*place);
        }
        self.push(source, whole(template.hir())?)
    }

    fn push(&mut self, source: Source, hir: Hir) -> Result<u32, Problem> {
        let place = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        self.places.insert(source.clone(), place);
        self.sources.push(source);
        self.hirs.push(hir);
        Ok(place)
    }

    /// All of them as one automaton; `former` is taken where it is the same.
    ///
    /// # Errors
    ///
    /// If they are too large together.
    pub(crate) fn compile(self, former: Option<&Arc<Regexes>>) -> Result<Arc<Regexes>, Problem> {
        let sources: Box<[Source]> = self.sources.into();
        if let Some(former) = former.filter(|former| former.sources == sources) {
            return Ok(Arc::clone(former));
        }
        if sources.is_empty() {
            return Ok(Arc::default());
        }
        let compiled = compile(&self.hirs).ok_or_else(|| {
            let rule = format!(
                "the regular expressions of a route table have at most {} MiB together",
                REGEXES_BYTES_MAX >> 20
            );
            Problem::new(rule, "make some simpler, or share the rules among several tables")
        })?;
        Ok(Arc::new(Regexes { compiled: Some(compiled), sources }))
    }
}

/// None if they are too large.
fn compile(hirs: &[Hir]) -> Option<Compiled> {
    let config = NFA::config()
        .which_captures(WhichCaptures::None)
        .utf8(false)
        .nfa_size_limit(Some(REGEXES_BYTES_MAX));
    let nfa = NFA::compiler().configure(config).build_many_from_hir(hirs).ok()?;
    let config = DFA::config()
        .match_kind(MatchKind::All)
        .starts_for_each_pattern(true)
        .cache_capacity(CACHE_BYTES_MAX)
        .skip_cache_capacity_check(true)
        .minimum_cache_clear_count(Some(FORGOTTEN_MAX))
        .minimum_bytes_per_state(Some(BYTES_PER_STATE));
    let dfa = DFA::builder().configure(config).build_from_nfa(nfa.clone()).ok()?;
    let config = PikeVM::config().match_kind(MatchKind::All);
    let vm = PikeVM::builder().configure(config).build_from_nfa(nfa).ok()?;
    Some(Compiled { dfa, vm })
}

/// An expression for a whole value.
///
/// # Errors
///
/// If it is none, or too large once it is compiled.
fn parse(text: &str, case: Case) -> Result<Hir, Problem> {
    whole(parse_part(text, case)?)
}

/// An expression for a part of a value.
///
/// # Errors
///
/// If it is none.
pub(crate) fn parse_part(text: &str, case: Case) -> Result<Hir, Problem> {
    let mut parser = ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .case_insensitive(case == Case::Insensitive)
        .nest_limit(NESTING_MAX)
        .build();
    parser.parse(text).map_err(|error| no_expression(text, &error))
}

/// The expression from the beginning of a value to its end.
///
/// # Errors
///
/// If it is too large once it is compiled.
pub(crate) fn whole(hir: Hir) -> Result<Hir, Problem> {
    let whole = Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]);
    let config = NFA::config()
        .which_captures(WhichCaptures::None)
        .utf8(false)
        .nfa_size_limit(Some(REGEX_BYTES_MAX));
    match NFA::compiler().configure(config).build_from_hir(&whole) {
        Ok(_) => Ok(whole),
        Err(_) => {
            let rule =
                format!("a compiled regular expression has at most {} KiB", REGEX_BYTES_MAX >> 10);
            Err(Problem::new(rule, "write smaller numbers of repetitions, or fewer alternatives"))
        }
    }
}

fn no_expression(text: &str, error: &regex_syntax::Error) -> Problem {
    let (what, at) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start.column),
        regex_syntax::Error::Translate(error) => {
            (error.kind().to_string(), error.span().start.column)
        }
        _ => ("it cannot be read".to_owned(), 1),
    };
    let is_perl = ["(?=", "(?!", "(?<=", "(?<!", "\\1", "\\2"].iter().any(|it| text.contains(it));
    let hint = if is_perl {
        "look-around and references to groups are left out, since they take more than linear time; \
         use several rules, or `not`"
            .to_owned()
    } else {
        format!("see its character {at}; write a `\\` before a character that stands for itself")
    };
    Problem::new(format!("this is no regular expression: {what}"), hint)
}

/// What a worker keeps for searches.
#[derive(Debug, Default)]
pub struct Searches {
    caches: Vec<Kept>,
    /// Room to put a value together in.
    text: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    /// Keeps the address from being another's.
    regexes: Arc<Regexes>,
    cache: Cache,
    /// None until a search is without states.
    vm_cache: Option<pikevm::Cache>,
    /// Room for the expressions that were found; none while it is lent.
    found: Option<PatternSet>,
}

impl Searches {
    /// Forgets everything, as when the configuration has changed.
    pub fn clear(&mut self) {
        self.caches.clear();
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_vm = |cache: &pikevm::Cache| cache.memory_usage();
        let bytes =
            |kept: &Kept| kept.cache.memory_usage() + kept.vm_cache.as_ref().map_or(0, of_vm);
        self.caches.iter().map(bytes).sum()
    }

    /// Room for a value, which comes back by [`Self::give_back_text`].
    pub(crate) fn take_text(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    pub(crate) fn give_back_text(&mut self, text: Vec<u8>) {
        self.text = text;
    }

    /// Whether the expression at this place matches the whole of `value`.
    pub(super) fn is_match(&mut self, regexes: &Arc<Regexes>, place: u32, value: &[u8]) -> bool {
        let Some(compiled) = &regexes.compiled else { return false };
        let Ok(place) = usize::try_from(place) else { return false };
        let Ok(pattern) = PatternID::new(place) else { return false };
        let Some(kept) = self.kept(regexes, compiled) else { return false };
        let input = Input::new(value).anchored(Anchored::Pattern(pattern)).earliest(true);
        compiled.dfa.try_search_fwd(&mut kept.cache, &input).map_or_else(
            |_| {
                let cache = kept.vm_cache.get_or_insert_with(|| compiled.vm.create_cache());
                compiled.vm.is_match(cache, input.clone())
            },
            |found| found.is_some(),
        )
    }

    /// The expressions that match the whole of `value`, which come back by [`Self::give_back`]; none if there are none.
    pub(crate) fn search(&mut self, regexes: &Arc<Regexes>, value: &[u8]) -> Option<PatternSet> {
        let compiled = regexes.compiled.as_ref()?;
        let kept = self.kept(regexes, compiled)?;
        let mut found = kept.found.take().unwrap_or_else(|| PatternSet::new(regexes.len()));
        found.clear();
        let input = Input::new(value).anchored(Anchored::Yes);
        let search =
            compiled.dfa.try_which_overlapping_matches(&mut kept.cache, &input, &mut found);
        if search.is_err() {
            found.clear();
            let cache = kept.vm_cache.get_or_insert_with(|| compiled.vm.create_cache());
            compiled.vm.which_overlapping_matches(cache, &input, &mut found);
        }
        Some(found)
    }

    /// Takes the room for expressions back.
    pub(crate) fn give_back(&mut self, regexes: &Arc<Regexes>, found: PatternSet) {
        let mut caches = self.caches.iter_mut();
        if let Some(kept) = caches.find(|kept| Arc::ptr_eq(&kept.regexes, regexes)) {
            kept.found = Some(found);
        }
    }

    fn kept(&mut self, regexes: &Arc<Regexes>, compiled: &Compiled) -> Option<&mut Kept> {
        let found = self.caches.iter().position(|kept| Arc::ptr_eq(&kept.regexes, regexes));
        let place = found.unwrap_or_else(|| {
            // Each may grow to its own bound: room is made for that.
            while (self.caches.len() + 1) * 2 * CACHE_BYTES_MAX > SEARCH_BYTES_MAX {
                self.caches.remove(0);
            }
            self.caches.push(Kept {
                regexes: Arc::clone(regexes),
                cache: compiled.dfa.create_cache(),
                vm_cache: None,
                found: None,
            });
            self.caches.len() - 1
        });
        self.caches.get_mut(place)
    }
}
