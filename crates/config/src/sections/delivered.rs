//! Resources that other sources deliver, each lowered by itself with the checks that an entry of the file has.
//!
//! What they name may not be there (yet): clusters have the ids then that they will have, and of route configurations
//! and secrets it is said which are missing.

use std::collections::BTreeSet;

use crate::map::Map;
use crate::sections::context::Context;
use crate::sections::names::Names;
use crate::snapshot::ClusterId;

/// A resource, and what it names and is not there.
pub(crate) struct Lowered<T> {
    pub(crate) resource: T,
    pub(crate) routes_missing: BTreeSet<Box<str>>,
    pub(crate) secrets_missing: BTreeSet<Box<str>>,
    pub(crate) assignments_missing: BTreeSet<Box<str>>,
}

/// These clusters with their ids, whether they are there or not.
pub(crate) fn held<'n, F>(
    names: impl Iterator<Item = &'n str>,
    context: &mut Context<'_, '_, F>,
) -> Names<'static, ClusterId> {
    let ids = names.map(|name| (Box::from(name), context.ids.hold(name)));
    Names::elsewhere(ids.collect(), Map::default())
}

pub(crate) fn lowered<T, F>(
    resource: T,
    routes_missing: BTreeSet<Box<str>>,
    context: &Context<'_, '_, F>,
) -> Lowered<T> {
    let secrets_missing = context.files.missing().map(Box::from).collect();
    let assignments_missing = context.assignments.missing().clone();
    Lowered { resource, routes_missing, secrets_missing, assignments_missing }
}
