//! Route handlers: what a program puts in front of the route tables of a listener.
//!
//! Each request goes through the handlers of its listener, or of its chain, in the order of the file, before the tables are
//! asked. A handler is immutable and part of the snapshot, as a filter is; it sees the request as rules see it, and changes
//! nothing of it. It answers with a rule, which then does what it says, as if it had matched; with nothing, so that the
//! client gets 404; or it leaves the request to the next handler, and the last one to the tables.
//!
//! Handlers are the place for decisions that matchers cannot make: a user's unit by a number in a header, a tenant by a
//! table of its own. `examples/unit-routing` builds one.

use std::fmt;

use crate::resource::route::matching::Asked;

/// Decides which rule a request meets.
pub trait RouteHandler: fmt::Debug + Send + Sync {
    /// The rules that it answers with. The configuration is refused if one of them is missing. Asked when a configuration
    /// is read, and the same for the life of the handler.
    fn rules(&self) -> Vec<RuleName>;

    /// What becomes of a request. It runs on a worker's thread, which does nothing else meanwhile.
    fn handle(&self, asked: &Asked<'_>) -> Handled;
}

/// A rule by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName {
    /// One of the `routes` of the listener. Its hosts do not matter.
    pub table: Box<str>,
    /// The `name` of a rule of this table. What the rule matches does not matter.
    pub rule: Box<str>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It meets the rule at this place of [`RouteHandler::rules`].
    Rule(usize),
    /// The next handler decides, or the route tables.
    PassOn,
    /// It meets no rule.
    Refuse,
}
