//! Files that hold the endpoints of clusters (`endpoints: { file: … }`).
//!
//! Such a file is read with the text that names it, and by itself whenever it changes: then nothing else is
//! read, and what follows costs as much as the clusters that name it. A mistake in it keeps the last good
//! list. Only where there is none yet is it a mistake of the text that names the file.

use std::io::ErrorKind;
use std::path::Path as FilePath;
use std::sync::Arc;

use crate::findings::{Errors, Finding, Findings, Path, Position, Problem, START};
use crate::map::Map;
use crate::outside::{DanglingLink, EndpointsFile, Outside};
use crate::resource::Assignment;
use crate::resource::assignment::endpoints;
use crate::resource::assignment::endpoints::AllowsUnix;
use crate::resource::cluster::file::Endpoint;
use crate::sections::files::{digest, unreadable};
use crate::snapshot::ClusterId;
use crate::text::shape::{self, SchemaError, Shape, schema_of};
use crate::text::tree::{self, Site};
use crate::wildcard::is_pattern;

/// What stands in a file without anything.
const EMPTY_HINT: &str = "write `- 127.0.0.1:8080` for each endpoint, or `[]` for none";

/// Endpoints of a file.
const ENDPOINTS_MAX: usize = 100_000;

/// What may stand in such a file.
#[derive(Debug)]
pub(crate) struct ListShape(Shape);

impl ListShape {
    pub(crate) fn new() -> Result<Self, SchemaError> {
        Shape::new(&schema_of::<Vec<Endpoint>>(), "").map(Self)
    }
}

/// A file whose content was taken up, or would be.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// Of its content.
    digest: u64,
    pub(crate) assignment: Arc<Assignment>,
    /// What looks like a mistake in it.
    warnings: Arc<[Finding]>,
    /// The clusters that name it.
    pub(crate) users: Vec<ClusterId>,
}

/// What came of one file of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsOutcome {
    /// The file, as the text names it.
    pub file: Arc<str>,
    /// Whether it has another content than before, which is good.
    pub is_new: bool,
    /// Why it is refused, so that its last good list stays; none if it is good.
    pub refused: Option<Errors>,
    /// Of its content, if that is refused: the same may be wrong with another one.
    pub refused_digest: Option<u64>,
}

/// The files that the configuration names, by their names there.
pub(crate) type EndpointFiles = Map<Arc<str>, Accepted>;

/// Why a file gives no endpoints.
struct Refused {
    why: Why,
    /// Of its content, if there is any.
    digest: Option<u64>,
}

enum Why {
    /// It cannot be read.
    Unreadable(Problem),
    /// Its content is wrong.
    Wrong(Errors),
}

/// What came of a file in one load of the text.
enum Read {
    Good(Accepted),
    /// The same, and as it was before.
    Same(Accepted),
    /// It is refused, and the endpoints of before stay.
    Kept(Accepted, Errors, Option<u64>),
    Refused(Problem),
    /// The same, and everything is said.
    Reported,
}

/// The files of one load of the text.
pub(crate) struct EndpointReads<'a> {
    reader: EndpointReader<'a>,
    former: &'a EndpointFiles,
    read: Map<Arc<str>, Read>,
}

/// Reads such files.
#[derive(Clone, Copy)]
pub(crate) struct EndpointReader<'a> {
    pub(crate) outside: &'a dyn Outside,
    pub(crate) shape: &'a ListShape,
}

impl EndpointReader<'_> {
    /// What `path` holds, or none if it is what was accepted before. `users` allow sockets of the file system,
    /// or do not.
    fn read(
        &self,
        path: &str,
        former: Option<&Accepted>,
        allows_unix: AllowsUnix<'_>,
    ) -> Result<Option<Accepted>, Refused> {
        let content = self.outside.read_endpoints(FilePath::new(path));
        let EndpointsFile { content, is_elsewhere } = content.map_err(|error| {
            let is_bare = error.kind() == ErrorKind::NotFound && !DanglingLink::is_in(&error);
            let is_pattern = is_bare && is_pattern(FilePath::new(path));
            let problem = if is_pattern { no_pattern() } else { unreadable(&error) };
            Refused { why: Why::Unreadable(problem), digest: None }
        })?;
        let digest = digest(&content);
        let refused = |why| Refused { why, digest: Some(digest) };
        if former.is_some_and(|former| former.digest == digest) {
            return Ok(None);
        }
        let text = std::str::from_utf8(&content).map_err(|error| {
            let good = content.get(..error.valid_up_to()).unwrap_or_default();
            let at = Position::behind(std::str::from_utf8(good).unwrap_or_default());
            let problem = Problem::new("this is not UTF-8", "write the file in UTF-8");
            let name = self.outside.name(FilePath::new(path));
            refused(Why::Wrong(Findings::new(&name, "").into_error(at, problem)))
        })?;
        let mut findings = Findings::new(&self.outside.name(FilePath::new(path)), text);
        if is_elsewhere {
            findings.conceal();
        }
        let assignment = self.lower(text, allows_unix, &mut findings).unwrap_or_default();
        let warnings = findings.into_result().map_err(|errors| refused(Why::Wrong(errors)))?.into();
        let assignment = Arc::new(assignment);
        Ok(Some(Accepted { digest, assignment, warnings, users: Vec::new() }))
    }

    fn lower(
        &self,
        text: &str,
        allows_unix: AllowsUnix<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Assignment> {
        let mut root = tree::read(text, EMPTY_HINT, findings)?;
        // Its writer decides about endpoints alone, and could have the environment sent to one of them.
        if tree::refuse_variables(&root, Path::Root, findings)
            || !shape::check(&mut root, &self.shape.0, Path::Root, findings)
        {
            return None;
        }
        let site = Site::root(&root);
        match tree::deserialize::<Vec<Endpoint>>(&root) {
            Ok(entries) => {
                let list = endpoints::lower(&entries, allows_unix, &site, findings);
                endpoints::check_addresses(&entries, &site, findings);
                let assignment = list.into_assignment();
                if let Err(problem) = check_bounds(&assignment) {
                    site.error(findings, problem);
                }
                Some(assignment)
            }
            Err(mismatch) => {
                let hint = "see docs/configuration/reference.md";
                let at = mismatch.at.unwrap_or(root.at);
                findings.error(at, Path::Root, "", Problem::new(mismatch.message, hint));
                None
            }
        }
    }

    /// What became of a file that the configuration names, by itself: new endpoints, or none if they are what
    /// they were; or why it is refused, and the digest of its content.
    pub(crate) fn read_again(
        &self,
        path: &str,
        former: &Accepted,
        allows_unix: AllowsUnix<'_>,
    ) -> Result<Option<Accepted>, (Errors, Option<u64>)> {
        match self.read(path, Some(former), allows_unix) {
            Ok(accepted) => Ok(accepted.map(|it| Accepted { users: former.users.clone(), ..it })),
            Err(Refused { why, digest }) => Err((self.errors(path, why), digest)),
        }
    }

    fn errors(&self, path: &str, why: Why) -> Errors {
        let problem = match why {
            Why::Wrong(errors) => return errors,
            Why::Unreadable(problem) => problem,
        };
        let name = self.outside.name(FilePath::new(path));
        Findings::new(&name, "").into_error(START, problem)
    }
}

/// What is wrong with a pattern, where no file has such a name.
fn no_pattern() -> Problem {
    let rule = "this is a pattern, and one file is needed here";
    Problem::new(
        rule,
        "write the path of one file; `include` has patterns for parts of the configuration",
    )
}

/// How many endpoints one assignment may hold.
pub(crate) fn check_bounds(assignment: &Assignment) -> Result<(), Problem> {
    let endpoints = &assignment.endpoints;
    if endpoints.len() > ENDPOINTS_MAX {
        let rule = format!("a list has at most {ENDPOINTS_MAX} endpoints");
        return Err(Problem::new(rule, "split the service among clusters"));
    }
    Ok(())
}

impl<'a> EndpointReads<'a> {
    pub(crate) fn new(reader: EndpointReader<'a>, former: &'a EndpointFiles) -> Self {
        Self { reader, former, read: Map::default() }
    }

    /// The endpoints of the cluster `user`, which the file at `path` has. `site` is where that is named.
    pub(crate) fn assignment(
        &mut self,
        path: &str,
        user: ClusterId,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Arc<Assignment> {
        if site.node().is_stand_in {
            return Arc::default();
        }
        match self.read_once(path, findings) {
            Some(Read::Good(accepted) | Read::Same(accepted) | Read::Kept(accepted, ..)) => {
                accepted.users.push(user);
                Arc::clone(&accepted.assignment)
            }
            Some(read @ Read::Refused(_)) => {
                // At the first place that names it. To create the file mends the others as well.
                if let Read::Refused(problem) = std::mem::replace(read, Read::Reported) {
                    site.error(findings, problem);
                }
                Arc::default()
            }
            Some(Read::Reported) | None => Arc::default(),
        }
    }

    /// Whether the file at `path` gives what it gave before to the cluster `user`, which had its endpoints from there. If so,
    /// the cluster goes on to have them.
    pub(crate) fn is_same(
        &mut self,
        path: &str,
        user: ClusterId,
        findings: &mut Findings<'_>,
    ) -> bool {
        match self.read_once(path, findings) {
            Some(Read::Same(accepted) | Read::Kept(accepted, ..)) => {
                accepted.users.push(user);
                true
            }
            Some(Read::Good(_) | Read::Refused(_) | Read::Reported) | None => false,
        }
    }

    fn read_once(&mut self, path: &str, findings: &mut Findings<'_>) -> Option<&mut Read> {
        if !self.read.contains_key(path) {
            let read = self.read(path, findings);
            self.read.insert(Arc::from(path), read);
        }
        self.read.get_mut(path)
    }

    fn read(&self, path: &str, findings: &mut Findings<'_>) -> Read {
        let former =
            self.former.get(path).map(|former| Accepted { users: Vec::new(), ..former.clone() });
        // Whether each of the clusters allows sockets of the file system is looked at there.
        match (self.reader.read(path, former.as_ref(), &|_| true), former) {
            (Ok(Some(accepted)), _) => {
                findings.absorb_warnings(&accepted.warnings);
                Read::Good(accepted)
            }
            (Ok(None), Some(accepted)) => {
                findings.absorb_warnings(&accepted.warnings);
                Read::Same(accepted)
            }
            (Err(Refused { why, digest }), Some(former)) => {
                Read::Kept(former, self.reader.errors(path, why), digest)
            }
            (Err(Refused { why: Why::Unreadable(problem), .. }), None) => Read::Refused(problem),
            (Err(Refused { why: Why::Wrong(errors), .. }), None) => {
                findings.absorb(errors);
                Read::Reported
            }
            (Ok(None), None) => Read::Reported,
        }
    }

    /// The files that were read, and what came of each. Of those that are refused the endpoints of before stay.
    pub(crate) fn into_files(self) -> (EndpointFiles, Vec<EndpointsOutcome>) {
        let mut files = EndpointFiles::default();
        let mut outcomes = Vec::new();
        for (file, read) in self.read {
            let (accepted, is_new, refused, refused_digest) = match read {
                Read::Good(accepted) => (accepted, true, None, None),
                Read::Same(accepted) => (accepted, false, None, None),
                Read::Kept(accepted, errors, digest) => (accepted, false, Some(errors), digest),
                Read::Refused(_) | Read::Reported => continue,
            };
            let named = Arc::clone(&file);
            outcomes.push(EndpointsOutcome { file: named, is_new, refused, refused_digest });
            files.insert(file, accepted);
        }
        outcomes.sort_by(|a, b| a.file.cmp(&b.file));
        (files, outcomes)
    }
}

impl Accepted {
    /// What looks like a mistake in it.
    pub(crate) fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
}
