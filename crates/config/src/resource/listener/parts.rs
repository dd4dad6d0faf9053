//! The filters and the route handlers of a listener or a chain.

use std::sync::Arc;

use crate::findings::Problem;
use crate::resource::filter::FilterSource;
use crate::resource::filter::handlers::RuleName;
use crate::resource::route::tables::Tables;
use crate::sections::context::Context;
use crate::snapshot::{BuiltHandler, FILTERS_MAX, HANDLERS_MAX, Handlers, Listener, RouteTableId};
use crate::text::tree::Site;

/// The chain: the former one if it was made from the same text, since filters may hold caches.
pub(crate) fn filters<F>(
    site: &Site<'_>,
    former: Option<&Listener<F>>,
    context: &mut Context<'_, '_, F>,
) -> (Arc<[FilterSource]>, Arc<[F]>) {
    if !site.is_written() {
        return (Arc::new([]), Arc::new([]));
    }
    let sources: Vec<_> =
        site.items().filter_map(|item| context.kinds.filters.source(&item)).collect();
    if let Some(former) = former.filter(|former| *former.filter_sources == *sources) {
        return (Arc::clone(&former.filter_sources), Arc::clone(&former.filters));
    }
    if sources.len() > FILTERS_MAX {
        let rule = format!("a chain has at most {FILTERS_MAX} filters");
        let hint = "do the same with fewer, or with a second listener behind this one";
        site.error(context.findings, Problem::new(rule, hint));
    }
    let filters =
        site.items().filter_map(|item| context.kinds.filters.build(&item, context.findings));
    let filters: Vec<F> = filters.collect();
    (sources.into(), filters.into())
}

/// The handlers in front of these tables, each the former one if it was made from the same text.
pub(crate) fn handlers<F>(
    site: &Site<'_>,
    routes: &[RouteTableId],
    former: Option<&Listener<F>>,
    tables: &Tables,
    context: &mut Context<'_, '_, F>,
) -> Handlers {
    if !site.is_written() {
        return Handlers::default();
    }
    if site.items().count() > HANDLERS_MAX {
        let rule = format!("a listener has at most {HANDLERS_MAX} handlers");
        let hint = "do the same with fewer, or with a second listener behind this one";
        site.error(context.findings, Problem::new(rule, hint));
    }
    let mut list = Vec::new();
    for site in site.items() {
        let kinds = &context.kinds.handlers;
        let Some(source) = kinds.source(&site) else { continue };
        let known = former.and_then(|former| former.handlers.find(&source)).map(Arc::clone);
        let Some(handler) = known.or_else(|| kinds.build(&site, context.findings)) else {
            continue;
        };
        let rules = handler.rules();
        let rules = rules.iter().filter_map(|rule| {
            handled_rule(rule, routes, tables)
                .map_err(|problem| site.error(context.findings, problem))
                .ok()
        });
        list.push(BuiltHandler { rules: rules.collect(), source, handler });
    }
    Handlers::new(list)
}

/// A rule that a handler answers with.
fn handled_rule(
    name: &RuleName,
    routes: &[RouteTableId],
    tables: &Tables,
) -> Result<(RouteTableId, Box<str>), Problem> {
    let RuleName { table, rule } = name;
    let mut listed = routes.iter().filter_map(|id| tables.find(*id));
    let Some(found) = listed.find(|found| *found.name == **table) else {
        let text = format!("this handler answers with rules of the route table `{table}`");
        return Err(Problem::new(text, format!("add {table} to `routes` of the listener")));
    };
    if found.place_of(rule).is_none() {
        let text = format!("this handler answers with the rule `{rule}` of `{table}`");
        return Err(Problem::new(text, format!("name a rule of `{table}` {rule}")));
    }
    Ok((found.id, rule.clone()))
}
