//! The filters and route handlers that a program knows: name ⇒ how its configuration looks and how it is built.
//!
//! This crate sees no filter. The binary registers each under its name with the type of its
//! configuration; the JSON Schema of that type becomes part of the file's schema, so that the
//! mistakes in it are reported like all others. What the type cannot say, the filter's
//! constructor reports as [`FilterError`]s, each with its place below the filter.

pub mod handlers;

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use wire::rpc::RpcProtocol;

use crate::findings::{Findings, Path, Problem};
use crate::protocols::Protocols;
use crate::redact::{FILTER_NOUN, HANDLER_NOUN, redact};
use crate::resource::filter::handlers::RouteHandler;
use crate::text::shape::{self, SchemaError, Shape};
use crate::text::tree::{Mismatch, Node, Site, deserialize};

/// The filters that a program knows, and the route handlers and RPC protocols beside them.
pub struct FilterKinds<F> {
    pub(crate) filters: Kinds<F>,
    pub(crate) handlers: Kinds<Arc<dyn RouteHandler>>,
    protocols: Protocols,
}

/// Parts of a program that a configuration names: name ⇒ how its configuration looks and how it is built.
pub(crate) struct Kinds<T> {
    noun: &'static str,
    kinds: Vec<Kind<T>>,
}

struct Kind<T> {
    name: Box<str>,
    /// Whether it takes calls of RPC, too.
    takes_rpc: bool,
    schema: Json,
    shape: Shape,
    build: Box<Build<T>>,
}

type Build<T> = dyn Fn(&Node) -> Result<T, Refusal> + Send + Sync;

/// Why a part was not built.
enum Refusal {
    Mismatch(Mismatch),
    Errors(Vec<FilterError>),
}

impl<F> FilterKinds<F> {
    /// No filters.
    #[must_use]
    pub fn new() -> Self {
        Self {
            filters: Kinds { noun: FILTER_NOUN, kinds: Vec::new() },
            handlers: Kinds { noun: HANDLER_NOUN, kinds: Vec::new() },
            protocols: Protocols::default(),
        }
    }

    /// Adds the filter `name`, whose configuration is a `C` and which `build` makes of it. The
    /// doc comments of `C` and of its fields are what the reference says about the filter.
    ///
    /// # Errors
    ///
    /// If the schema of `C` says more than a configuration's shape can hold, for instance because
    /// `C` lets unknown keys pass. This depends on nothing but `C`: a test finds it.
    pub fn register<C>(
        &mut self,
        name: &str,
        build: impl Fn(C) -> Result<F, Vec<FilterError>> + Send + Sync + 'static,
    ) -> Result<(), SchemaError>
    where
        C: DeserializeOwned + JsonSchema,
    {
        self.filters.register(name, build)
    }

    /// Says of the filter `name`, which is registered, that it takes calls of RPC as it takes requests of HTTP.
    pub fn takes_rpc(&mut self, name: &str) {
        self.filters.takes_rpc(name);
    }

    /// Adds the route handler `name`, as [`FilterKinds::register`] adds a filter. `takes_rpc`: it takes calls of RPC as
    /// it takes requests of HTTP.
    ///
    /// # Errors
    ///
    /// As for a filter.
    pub fn register_handler<C>(
        &mut self,
        name: &str,
        takes_rpc: bool,
        build: impl Fn(C) -> Result<Arc<dyn RouteHandler>, Vec<FilterError>> + Send + Sync + 'static,
    ) -> Result<(), SchemaError>
    where
        C: DeserializeOwned + JsonSchema,
    {
        self.handlers.register(name, build)?;
        if takes_rpc {
            self.handlers.takes_rpc(name);
        }
        Ok(())
    }

    /// Adds an RPC protocol, which listeners and clusters may name from then on.
    ///
    /// # Panics
    ///
    /// If its name is no name: that is a mistake in the program, which any test finds.
    pub fn register_protocol(&mut self, protocol: &'static dyn RpcProtocol) {
        self.protocols.add(protocol);
    }

    /// The RPC protocols.
    pub(crate) const fn protocols(&self) -> &Protocols {
        &self.protocols
    }

    /// The names of filters, in the order in which they were registered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.filters.names()
    }
}

impl<T> Kinds<T> {
    fn register<C>(
        &mut self,
        name: &str,
        build: impl Fn(C) -> Result<T, Vec<FilterError>> + Send + Sync + 'static,
    ) -> Result<(), SchemaError>
    where
        C: DeserializeOwned + JsonSchema,
    {
        let schema = shape::schema_of::<C>();
        let shape = Shape::new(&schema, name)?;
        let build = move |node: &Node| {
            let config = deserialize(node).map_err(Refusal::Mismatch)?;
            build(config).map_err(Refusal::Errors)
        };
        self.kinds.retain(|kind| *kind.name != *name);
        let takes_rpc = false;
        self.kinds.push(Kind {
            name: name.into(),
            takes_rpc,
            schema,
            shape,
            build: Box::new(build),
        });
        Ok(())
    }

    fn takes_rpc(&mut self, name: &str) {
        if let Some(kind) = self.kinds.iter_mut().find(|kind| *kind.name == *name) {
            kind.takes_rpc = true;
        }
    }

    /// Whether the part at `site` takes calls of RPC.
    pub(crate) fn is_for_rpc(&self, site: &Site<'_>) -> bool {
        let kind = |name: &str| self.kinds.iter().find(|kind| *kind.name == *name);
        // One that is not known is an error of its own.
        site.entries().all(|(name, _)| kind(name).is_none_or(|kind| kind.takes_rpc))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().map(|kind| kind.name.as_ref())
    }

    /// Whether the program knows none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The schema of one item of a chain.
    pub(crate) fn schema(&self) -> Json {
        let properties: serde_json::Map<String, Json> =
            self.kinds.iter().map(|kind| (kind.name.to_string(), kind.schema.clone())).collect();
        let one_of: Vec<Json> =
            self.names().map(|name| serde_json::json!({ "required": [name] })).collect();
        let mut schema = serde_json::json!({
            "type": "object",
            "description": format!("A map with one key, the {}'s name.", self.noun),
            "properties": properties,
            "additionalProperties": false,
            "x-noun": self.noun,
        });
        if let Some(schema) = schema.as_object_mut().filter(|_| !one_of.is_empty()) {
            schema.insert("oneOf".to_owned(), one_of.into());
        }
        schema
    }

    /// Builds the part at `site`, a map with one key that was checked against the schema. If it
    /// has more keys, which is reported there, all of them are looked at.
    pub(crate) fn build(&self, site: &Site<'_>, findings: &mut Findings<'_>) -> Option<T> {
        let built =
            site.entries().filter_map(|(name, config)| self.build_one(name, &config, findings));
        built.last()
    }

    fn build_one(&self, name: &str, config: &Site<'_>, findings: &mut Findings<'_>) -> Option<T> {
        let kind = self.kinds.iter().find(|kind| *kind.name == *name)?;
        match (kind.build)(config.node()) {
            Ok(built) => Some(built),
            Err(Refusal::Mismatch(mismatch)) if mismatch.is_about_stand_in => None,
            Err(Refusal::Mismatch(mismatch)) => {
                let at = mismatch.at.unwrap_or_else(|| config.at());
                let hint = format!("see the reference of this {}", self.noun);
                let problem = Problem::new(mismatch.message, hint);
                findings.error(at, config.path(), "", problem);
                None
            }
            Err(Refusal::Errors(errors)) => {
                for FilterError { steps, problem } in errors {
                    report(config.node(), config.path(), &steps, problem, findings);
                }
                None
            }
        }
    }

    /// What the part at `site` is built from.
    pub(crate) fn source(&self, site: &Site<'_>) -> Option<FilterSource> {
        let (name, config) = site.entries().next()?;
        let kind = self.kinds.iter().find(|kind| *kind.name == *name)?;
        let config = config.node().to_json();
        let mut shown = config.clone();
        redact(&mut shown, Some(&kind.shape));
        Some(FilterSource { name: name.into(), config, shown })
    }
}

impl<F> Default for FilterKinds<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> fmt::Debug for FilterKinds<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// What a filter or a handler was built from. Those of equal sources are equal, and are not built again.
#[derive(Clone, PartialEq, Eq)]
pub struct FilterSource {
    name: Box<str>,
    config: Json,
    /// `config` without secrets.
    shown: Json,
}

impl FilterSource {
    /// The filter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The filter's configuration, with secrets masked.
    #[must_use]
    pub const fn shown(&self) -> &Json {
        &self.shown
    }
}

impl fmt::Debug for FilterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.shown)
    }
}

/// What is wrong with a filter's configuration, and where below the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    steps: Vec<Step>,
    problem: Problem,
}

/// One step down in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(Box<str>),
    Index(usize),
}

impl FilterError {
    /// An error in the configuration as a whole.
    #[must_use]
    pub const fn new(problem: Problem) -> Self {
        Self { steps: Vec::new(), problem }
    }

    /// The error is in what stands under `key`, further down than said so far.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.steps.push(Step::Key(key.into()));
        self
    }

    /// The error is in the item `index` of a list, further down than said so far.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.steps.push(Step::Index(index));
        self
    }
}

/// Follows `steps` from `node` as far as they go, and reports there.
fn report(
    node: &Node,
    path: Path<'_>,
    steps: &[Step],
    problem: Problem,
    findings: &mut Findings<'_>,
) {
    let (inner, path, rest) = match steps.split_first() {
        None if node.is_stand_in => return,
        None => return findings.error(node.at, path, &node.shown(), problem),
        Some((Step::Key(key), rest)) => (node.find(key), Path::Key(&path, key), rest),
        Some((Step::Index(index), rest)) => {
            // A filter counts what it was given, which is without what was cut.
            let mut items = node.items().iter().enumerate().filter(|(_, item)| !item.is_cut());
            let found = items.nth(*index);
            let place = found.map_or(*index, |(place, _)| place);
            (found.map(|(_, item)| item), Path::Index(&path, place), rest)
        }
    };
    match inner {
        Some(inner) => report(inner, path, rest, problem, findings),
        None if node.is_stand_in => {}
        None => findings.error(node.at, path, "", problem),
    }
}
