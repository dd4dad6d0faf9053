//! What the entries of all sections are built with.

use std::sync::Arc;

use tls::ProcessSessions;

use crate::findings::Findings;
use crate::ids::Draft;
use crate::resource::assignment::answers::NameReads;
use crate::resource::assignment::delivered::Assignments;
use crate::resource::assignment::files::EndpointReads;
use crate::resource::cluster::drained::Drained;
use crate::resource::filter::FilterKinds;
use crate::sections::files::Files;
use crate::snapshot::Snapshot;
use crate::text::unchanged::Entries;

/// What one load has to work with.
pub(crate) struct Context<'a, 'text, F> {
    pub(crate) kinds: &'a FilterKinds<F>,
    /// The snapshot before, whose equal parts are shared.
    pub(crate) former: Option<&'a Snapshot<F>>,
    /// The entries of the text before that may be taken over.
    pub(crate) entries: &'a Entries,
    /// What the text names beside itself.
    pub(crate) files: Files<'a>,
    /// Whether clusters may come from elsewhere than the text.
    pub(crate) has_sources: bool,
    /// The process's own keys of session tickets.
    pub(crate) sessions: &'a ProcessSessions,
    /// The endpoints that operators drain.
    pub(crate) drained: &'a Drained,
    /// Ids for what is new.
    pub(crate) ids: Draft<'a>,
    /// The files that endpoints stand in.
    pub(crate) endpoint_files: EndpointReads<'a>,
    /// The host names among endpoints.
    pub(crate) names: NameReads<'a>,
    /// What sources have assigned to clusters.
    pub(crate) assignments: Assignments<'a>,
    pub(crate) findings: &'a mut Findings<'text>,
}

/// `new`, or the former value if it is the same: what did not change is shared.
pub(crate) fn share<T: PartialEq>(new: T, former: Option<&Arc<T>>) -> Arc<T> {
    match former {
        Some(former) if **former == new => Arc::clone(former),
        _ => Arc::new(new),
    }
}
