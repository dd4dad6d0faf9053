//! What is wrong with a file, and where: errors and warnings that an operator can act on.
//!
//! A [`Finding`] says seven things: file, line, column, path, value, rule and what would be right.
//! All findings of a file are reported together, up to a bound, in the order of the file. A
//! [`Problem`] is the half of it that a parser of one value knows: the rule and what would be right.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub(crate) use self::kept::{EntryWarning, KeptWarning, Step};
use crate::printable::Printable;
use crate::secrets::{MASK, is_pem, is_secret_name, may_hold_secret};

mod kept;

/// Findings kept of one kind; a machine-made file with the same mistake in every entry must not
/// make a report larger than itself.
pub const FINDINGS_MAX: usize = 200;

/// Findings of one file that are logged at once. Who wants to see more of them checks the file, or asks the admin interface.
pub const FINDINGS_LOGGED_MAX: usize = 20;

/// Stands in for a hint that may hold a secret.
const HINT_MASKED: &str = "the correction is not shown, because it may reveal the secret";

/// The hint for a text that is concealed, behind what else can be said.
const CONCEALED: &str =
    "the file is a link that leads out of its folder, so its content is not shown";

/// Characters of a value or of a line of the file that are shown.
const SHOWN_CHARS_MAX: usize = 120;

/// The same of a rule or a hint, which may repeat a value.
const TOLD_CHARS_MAX: usize = 600;

/// One mistake, or one thing that looks like one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, as it was named to the loader.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Where in the structure: `listeners[1].address`; empty for the file as a whole.
    pub path: String,
    /// The value as written, shortened if it is long; empty if nothing was written, and
    /// [`MASK`] if its name says that it is a secret.
    pub value: String,
    /// The rule that is broken.
    pub rule: String,
    /// What would be right.
    pub hint: String,
    /// The line of the file, empty if it is too long to help or may hold a secret.
    pub source: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some of it is what others wrote, and must not look like lines of a log.
        write!(f, "{}:{}:{}: ", Printable(&self.file), self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", Printable(&self.path))?;
        }
        if !self.value.is_empty() {
            write!(f, "{}: ", Printable(&self.value))?;
        }
        write!(f, "{}", Printable(&self.rule))?;
        if !self.hint.is_empty() {
            write!(f, "; {}", Printable(&self.hint))?;
        }
        if !self.source.is_empty() {
            let indent = self.column.saturating_sub(1) as usize;
            write!(f, "\n  | {}\n  | {:indent$}^", self.source, "")?;
        }
        Ok(())
    }
}

/// All errors of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Errors {
    /// In the order of the file; at least one, at most [`FINDINGS_MAX`].
    pub errors: Vec<Finding>,
    /// How many more there are.
    pub more: usize,
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.errors.iter().enumerate() {
            let separator = if place == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl Errors {
    /// As [`first_findings`].
    #[must_use]
    pub fn first(&self, see: &str) -> String {
        first_findings(&self.errors, self.more, see)
    }
}

/// The first [`FINDINGS_LOGGED_MAX`] of what was found, for a log, and the number of the others, of which there are `more` than `found`
/// has. `see` says where these are.
#[must_use]
pub fn first_findings(found: &[impl fmt::Display], more: usize, see: &str) -> String {
    let mut shown: Vec<_> =
        found.iter().take(FINDINGS_LOGGED_MAX).map(ToString::to_string).collect();
    let others = (found.len() - shown.len()).saturating_add(more);
    if others > 0 {
        shown.push(format!("and {others} more, see {see}"));
    }
    shown.join("\n")
}

/// Why a value is refused, without where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The rule that is broken, without the value: that is shown beside it, unless it is a secret.
    pub rule: Cow<'static, str>,
    /// What would be right. It may hold the value, and is then not shown if that is a secret.
    pub hint: Cow<'static, str>,
}

impl Problem {
    /// A problem out of its rule and what would be right.
    pub fn new(rule: impl Into<Cow<'static, str>>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { rule: rule.into(), hint: hint.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.rule, self.hint)
    }
}

/// A place in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// From 1.
    pub(crate) line: u32,
    /// In characters, from 1.
    pub(crate) column: u32,
}

impl Position {
    /// The place behind this text.
    pub(crate) fn behind(text: &str) -> Self {
        let (lines, last) = text.rsplit_once('\n').map_or((0, text), |(before, last)| {
            (1 + before.bytes().filter(|byte| *byte == b'\n').count(), last)
        });
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        Self { line: number(lines), column: number(last.chars().count()) }
    }
}

/// A place in the structure, written as in `listeners[1].address`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// The file.
    Root,
    /// What stands under a key.
    Key(&'a Self, &'a str),
    /// What stands in a list, from 0.
    Index(&'a Self, usize),
}

impl Path<'_> {
    /// The beginning of the path, up to its first key: keys are part of the text.
    const fn before_keys(self) -> Self {
        let (mut path, mut walked) = (self, self);
        loop {
            match walked {
                Self::Root => return path,
                Self::Index(parent, _) => walked = *parent,
                Self::Key(parent, _) => {
                    walked = *parent;
                    path = *parent;
                }
            }
        }
    }

    /// Whether a key on the way here says that what stands behind it is a secret. Names of filters
    /// say nothing of the kind, the `key` of a certificate is the path of a file, and `match`, `sticky` and `hash` have names of
    /// cookies.
    fn is_secret(&self) -> bool {
        match self {
            Self::Root => false,
            Self::Index(parent, _) => parent.is_secret(),
            Self::Key(parent, key) => {
                let is_filter =
                    matches!(parent, Self::Index(Self::Key(_, list), _) if *list == "filters");
                let is_path = *key == "key" && parent.is_certificate();
                (!is_filter && !is_path && !names_cookies(parent, key) && is_secret_name(key))
                    || parent.is_secret()
            }
        }
    }

    /// Whether the files of a certificate stand here: in `tls` of a listener, a chain or a cluster.
    fn is_certificate(&self) -> bool {
        let (Self::Index(Self::Key(tls, "certificates"), _) | Self::Key(tls, "certificate")) = self
        else {
            return false;
        };
        let Self::Key(Self::Index(Self::Key(above, section), _), "tls") = tls else { return false };
        matches!(
            (above, *section),
            (Self::Root, "listeners" | "clusters")
                | (Self::Index(Self::Key(Self::Root, "listeners"), _), "chains")
                | (Self::Index(Self::Key(Self::Root, "clusters"), _), "transports")
        )
    }
}

/// Whether what stands under this key are names of cookies, in a rule.
fn names_cookies(parent: &Path<'_>, key: &str) -> bool {
    match parent {
        Path::Key(_, "match") => key == "cookies",
        Path::Key(_, "sticky") | Path::Index(Path::Key(_, "hash"), _) => key == "cookie",
        _ => false,
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => {
                let dot = if matches!(parent, Path::Root) { "" } else { "." };
                // Header names may hold dots; in quotes the path stays unambiguous.
                let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                if !key.is_empty() && key.bytes().all(is_plain) {
                    write!(f, "{parent}{dot}{key}")
                } else {
                    write!(f, "{parent}{dot}{}", shorten(&format!("{key:?}"), SHOWN_CHARS_MAX))
                }
            }
        }
    }
}

/// The beginning of a file.
pub(crate) const START: Position = Position { line: 1, column: 1 };

/// The files that lines stand in: the first one, and those that it includes.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    file: Arc<str>,
    /// Included files, each with the number of lines before it.
    included: Vec<(u32, Arc<str>)>,
}

impl Places {
    /// The file in which a line stands, and the line there.
    pub(crate) fn locate(&self, line: u32) -> (&Arc<str>, u32) {
        let found = self.included.iter().rev().find(|(before, _)| *before < line);
        found.map_or((&self.file, line), |(before, file)| (file, line - before))
    }

    /// What a line is called beside another one: `line 3`, or `line 3 of conf.d/shop.yaml`.
    pub(crate) fn line_name(&self, line: u32) -> String {
        match self.locate(line) {
            (_, own) if self.included.is_empty() => format!("line {own}"),
            (file, own) => format!("line {own} of {file}"),
        }
    }
}

/// Gathers what is found while one file is read.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    places: Places,
    /// Of the file, and then those of included ones.
    lines: Vec<Cow<'a, str>>,
    errors: Vec<Finding>,
    errors_more: usize,
    warnings: Vec<Finding>,
    /// What is warned of in entries, all of it, while that is kept.
    kept: Option<Vec<EntryWarning>>,
    /// Whether nothing that the text has is shown, but for places in it.
    is_concealed: bool,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &str, text: &'a str) -> Self {
        Self {
            places: Places { file: file.into(), included: Vec::new() },
            lines: lines(text).into_iter().map(Cow::Borrowed).collect(),
            errors: Vec::new(),
            errors_more: 0,
            warnings: Vec::new(),
            kept: None,
            is_concealed: false,
        }
    }

    /// Shows none of the text from now on: who reads the findings may have no right to read the file.
    pub(crate) const fn conceal(&mut self) {
        self.is_concealed = true;
    }

    /// Adds a file that the first one includes: its lines follow those before, so that places in it are places behind them. Returns
    /// how many there were.
    pub(crate) fn add_file(&mut self, file: &str, text: &str) -> u32 {
        let before = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
        self.places.included.push((before, file.into()));
        self.lines.extend(lines(text).into_iter().map(|line| Cow::Owned(line.to_owned())));
        before
    }

    /// As [`Places::line_name`].
    pub(crate) fn line_name(&self, line: u32) -> String {
        self.places.line_name(line)
    }

    /// What the file is called in which the first lines stand.
    pub(crate) fn file(&self) -> &str {
        &self.places.file
    }

    /// The files that lines stand in.
    pub(crate) const fn places(&self) -> &Places {
        &self.places
    }

    /// Notes a mistake. `value` is what was written, empty for nothing.
    pub(crate) fn error(&mut self, at: Position, path: Path<'_>, value: &str, problem: Problem) {
        let is_secret = path.is_secret() || is_pem(value);
        self.push_error(|findings| findings.finding(at, path, value, is_secret, problem));
    }

    /// Notes a mistake in a key, the last one of `path`, rather than in its value.
    pub(crate) fn key_error(&mut self, at: Position, path: Path<'_>, problem: Problem) {
        let (key, is_secret) = match path {
            Path::Key(parent, key) => (format!("{key:?}"), parent.is_secret()),
            Path::Root | Path::Index(..) => (String::new(), path.is_secret()),
        };
        self.push_error(|findings| findings.finding(at, path, &key, is_secret, problem));
    }

    fn push_error(&mut self, error: impl FnOnce(&Self) -> Finding) {
        if self.errors.len() < FINDINGS_MAX {
            let error = error(self);
            self.errors.push(error);
        } else {
            self.errors_more = self.errors_more.saturating_add(1);
        }
    }

    /// Keeps the warnings of entries from now on, to be given again while these stay as they are.
    pub(crate) fn keep_warnings(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// The warnings that were kept. Those that follow are not.
    pub(crate) fn take_kept(&mut self) -> Vec<EntryWarning> {
        self.kept.take().unwrap_or_default()
    }

    /// Notes what is allowed but looks like a mistake.
    pub(crate) fn warning(&mut self, at: Position, path: Path<'_>, value: &str, problem: Problem) {
        if let Some(kept) = &mut self.kept {
            kept.extend(EntryWarning::new(path, &problem));
        }
        self.passing_warning(at, path, value, problem);
    }

    /// The same of what may be in order later although the text stays as it is, such as the mode of a file: it is not kept.
    pub(crate) fn passing_warning(
        &mut self,
        at: Position,
        path: Path<'_>,
        value: &str,
        problem: Problem,
    ) {
        if self.warnings.len() < FINDINGS_MAX {
            let is_secret = path.is_secret() || is_pem(value);
            let warning = self.finding(at, path, value, is_secret, problem);
            self.warnings.push(warning);
        }
    }

    /// Notes the mistakes of a file that this one names.
    pub(crate) fn absorb(&mut self, Errors { errors, more }: Errors) {
        let room = FINDINGS_MAX.saturating_sub(self.errors.len()).min(errors.len());
        self.errors_more = self.errors_more.saturating_add(more + errors.len() - room);
        self.errors.extend(errors.into_iter().take(room));
    }

    /// Notes what looks like a mistake in a file that this one names.
    pub(crate) fn absorb_warnings(&mut self, warnings: &[Finding]) {
        let room = FINDINGS_MAX.saturating_sub(self.warnings.len());
        self.warnings.extend(warnings.iter().take(room).cloned());
    }

    /// One mistake, and that is all.
    pub(crate) fn into_error(self, at: Position, problem: Problem) -> Errors {
        let error = self.finding(at, Path::Root, "", false, problem);
        Errors { errors: vec![error], more: 0 }
    }

    /// Whether another mistake is shown, and not only counted: what explains it may take long to find.
    pub(crate) fn has_room(&self) -> bool {
        self.errors.len() < FINDINGS_MAX
    }

    /// How many mistakes were noted.
    pub(crate) const fn errors_len(&self) -> usize {
        self.errors.len().saturating_add(self.errors_more)
    }

    /// The warnings, or all the errors if there is one.
    pub(crate) fn into_result(self) -> Result<Vec<Finding>, Errors> {
        let Self {
            places: Places { file, .. }, mut errors, errors_more: more, mut warnings, ..
        } = self;
        // Those of the files that it names stand behind its own.
        let place = |finding: &Finding| {
            let other = (finding.file != file).then(|| Arc::clone(&finding.file));
            (other, finding.line, finding.column)
        };
        if errors.is_empty() {
            warnings.sort_by_key(place);
            Ok(warnings)
        } else {
            errors.sort_by_key(place);
            Err(Errors { errors, more })
        }
    }

    fn finding(
        &self,
        at: Position,
        path: Path<'_>,
        value: &str,
        is_secret: bool,
        problem: Problem,
    ) -> Finding {
        if self.is_concealed {
            return self.concealed(at, path, problem);
        }
        let Problem { rule, hint } = problem;
        let (value, hint) = match hint {
            _ if !is_secret || value.is_empty() => {
                (shorten(value, SHOWN_CHARS_MAX).into_owned(), hint)
            }
            // What was known before the value was read does not hold it.
            Cow::Borrowed(_) => (MASK.to_owned(), hint),
            Cow::Owned(_) => (MASK.to_owned(), Cow::Borrowed(HINT_MASKED)),
        };
        let (file, line) = self.places.locate(at.line);
        Finding {
            file: Arc::clone(file),
            line,
            column: at.column,
            path: path.to_string(),
            value,
            rule: shorten(&rule, TOLD_CHARS_MAX).into_owned(),
            hint: shorten(&hint, TOLD_CHARS_MAX).into_owned(),
            source: if is_secret { String::new() } else { self.source(at) },
        }
    }

    /// What is wrong, without anything that was written. A rule does not hold the value, and a hint that was known before the value was
    /// read does not either.
    fn concealed(&self, at: Position, path: Path<'_>, Problem { rule, hint }: Problem) -> Finding {
        let (file, line) = self.places.locate(at.line);
        let hint = match hint {
            Cow::Borrowed(hint) if !hint.is_empty() => format!("{hint}; {CONCEALED}"),
            _ => CONCEALED.to_owned(),
        };
        Finding {
            file: Arc::clone(file),
            line,
            column: at.column,
            path: path.before_keys().to_string(),
            value: String::new(),
            rule: shorten(&rule, TOLD_CHARS_MAX).into_owned(),
            hint,
            source: String::new(),
        }
    }

    /// The line at `at`, as far as it can be shown.
    fn source(&self, at: Position) -> String {
        let line = |back| {
            let line = (at.line as usize).checked_sub(back)?;
            self.lines.get(line).map(AsRef::as_ref)
        };
        line(1)
            .filter(|line| line.chars().nth(SHOWN_CHARS_MAX).is_none())
            .filter(|shown| !may_hold_secret(shown, line(2)))
            .map(|line: &str| line.replace(|c: char| c.is_control(), " "))
            .unwrap_or_default()
    }
}

/// The lines of a text as YAML counts them: a carriage return alone ends one too (YAML 1.2,
/// section 5.4).
fn lines(text: &str) -> Vec<&str> {
    text.split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .flat_map(|line| line.split('\r'))
        .collect()
}

/// `text` with its end cut off if it is too long to show.
fn shorten(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => Cow::Borrowed(text),
        Some((end, _)) => {
            let mut short = text.get(..end).unwrap_or_default().to_owned();
            short.push('…');
            Cow::Owned(short)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_like_a_compilers_with_its_line_and_a_caret() {
        let mut findings = Findings::new("strait.yaml", "a: 1\nbc: \"x\"\n");
        let at = Position { line: 2, column: 5 };
        findings.error(at, Path::Key(&Path::Root, "bc"), "\"x\"", Problem::new("no", "write y"));
        assert_eq!(
            findings.into_result().unwrap_err().to_string(),
            "strait.yaml:2:5: bc: \"x\": no; write y\n  | bc: \"x\"\n  |     ^"
        );
    }

    #[test]
    fn what_others_wrote_begins_no_line_of_its_own() {
        let mut findings = Findings::new("a source\ncluster/x", "");
        let problem = Problem::new("no\u{1b}[2J", "write\r\nERROR y");
        findings.error(START, Path::Root, "x\ny", problem);
        assert_eq!(
            findings.into_result().unwrap_err().to_string(),
            "a source\\ncluster/x:1:1: x\\ny: no\\u{1b}[2J; write\\r\\nERROR y"
        );
    }

    #[test]
    fn paths_name_keys_and_places_and_quote_what_holds_a_dot() {
        let listeners = Path::Key(&Path::Root, "listeners");
        let first = Path::Index(&listeners, 1);
        let header = Path::Key(&first, "x.y");
        assert_eq!(header.to_string(), "listeners[1].\"x.y\"");
    }

    #[test]
    fn findings_beyond_the_bound_are_counted() {
        let mut findings = Findings::new("f", "");
        for _ in 0..FINDINGS_MAX + 3 {
            let problem = Problem::new("no", "yes");
            findings.error(Position::default(), Path::Root, "", problem.clone());
            findings.warning(Position::default(), Path::Root, "", problem);
        }
        let errors = findings.into_result().unwrap_err();
        assert_eq!((errors.errors.len(), errors.more), (FINDINGS_MAX, 3));
        assert!(errors.to_string().ends_with("and 3 more"));
    }

    #[test]
    fn a_log_has_the_first_findings_and_the_number_of_all_others() {
        let logged = |count| {
            let mut findings = Findings::new("f", "");
            for line in 1..=count {
                let at = Position { line, column: 1 };
                findings.error(at, Path::Root, "", Problem::new("no", "yes"));
            }
            findings.into_result().unwrap_err().first("/config")
        };
        assert_eq!(logged(1), "f:1:1: no; yes");
        assert!(logged(20).ends_with("\nf:20:1: no; yes"));
        let logged = logged(1000);
        assert_eq!(logged.lines().count(), FINDINGS_LOGGED_MAX + 1);
        assert!(logged.ends_with("\nand 980 more, see /config"), "{logged}");
    }

    #[test]
    fn errors_stand_in_the_order_of_the_file() {
        let mut findings = Findings::new("f", "");
        for line in [3, 1, 2] {
            let at = Position { line, column: 1 };
            findings.error(at, Path::Root, "", Problem::new("no", "yes"));
        }
        let lines: Vec<u32> =
            findings.into_result().unwrap_err().errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }

    #[test]
    fn lines_end_as_yaml_says() {
        assert_eq!(lines("a\nb\r\nc\rd\r\n"), ["a", "b", "c", "d", ""]);
        assert_eq!(lines("a\r\r\nb"), ["a", "", "b"]);
    }

    #[test]
    fn long_values_and_lines_are_cut() {
        let line = "x".repeat(SHOWN_CHARS_MAX + 1);
        let mut findings = Findings::new("f", &line);
        let at = Position { line: 1, column: 1 };
        findings.error(at, Path::Root, &line, Problem::new("no", "yes"));
        let errors = findings.into_result().unwrap_err();
        assert_eq!(errors.errors[0].value.chars().count(), SHOWN_CHARS_MAX + 1);
        assert!(errors.errors[0].value.ends_with('…'));
        assert_eq!(errors.errors[0].source, "");
    }
}
