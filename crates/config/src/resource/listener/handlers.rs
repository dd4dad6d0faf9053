//! The route handlers of a listener, as they were built.

use std::sync::Arc;

use crate::resource::filter::FilterSource;
use crate::resource::filter::handlers::{Handled, RouteHandler};
use crate::resource::route::matching::Asked;
use crate::snapshot::id::RouteTableId;

/// Handlers of one listener or chain, at most.
pub const HANDLERS_MAX: usize = 16;

/// The handlers of a listener or a chain.
#[derive(Clone, Debug, Default)]
pub struct Handlers {
    list: Arc<[BuiltHandler]>,
}

#[derive(Clone, Debug)]
pub(crate) struct BuiltHandler {
    pub(crate) source: FilterSource,
    pub(crate) handler: Arc<dyn RouteHandler>,
    /// For each of its rules, the table and the name.
    pub(crate) rules: Box<[(RouteTableId, Box<str>)]>,
}

/// A rule that a handler has answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandledRule<'h> {
    /// The handler's name.
    pub handler: &'h str,
    /// The table of the rule.
    pub table: RouteTableId,
    /// The name of the rule.
    pub rule: &'h str,
}

/// What a chain of handlers has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'h> {
    /// This rule.
    Rule(HandledRule<'h>),
    /// No rule, says the handler of this name.
    Refused(&'h str),
    /// None of them decides.
    PassedOn,
}

impl Handlers {
    pub(crate) fn new(list: Vec<BuiltHandler>) -> Self {
        Self { list: list.into() }
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|built| built.source.name())
    }

    /// What they were built from.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &FilterSource> {
        self.list.iter().map(|built| &built.source)
    }

    /// The handler that was built from the same text.
    pub(crate) fn find(&self, source: &FilterSource) -> Option<&Arc<dyn RouteHandler>> {
        let found = self.list.iter().find(|built| built.source == *source);
        found.map(|built| &built.handler)
    }

    /// Asks one after the other.
    #[must_use]
    pub fn decide(&self, asked: &Asked<'_>) -> Decision<'_> {
        for built in self.list.iter() {
            let handler = built.source.name();
            match built.handler.handle(asked) {
                Handled::PassOn => {}
                Handled::Refuse => return Decision::Refused(handler),
                Handled::Rule(place) => {
                    return match built.rules.get(place) {
                        Some((table, rule)) => {
                            Decision::Rule(HandledRule { handler, table: *table, rule })
                        }
                        // It has no such rule: a mistake of the handler, which meets none then.
                        None => Decision::Refused(handler),
                    };
                }
            }
        }
        Decision::PassedOn
    }
}

impl PartialEq for Handlers {
    /// Handlers cannot be compared; what they were built from can.
    fn eq(&self, other: &Self) -> bool {
        let parts = |built: &BuiltHandler| (built.source.clone(), built.rules.clone());
        self.list.iter().map(parts).eq(other.list.iter().map(parts))
    }
}

impl Eq for Handlers {}
