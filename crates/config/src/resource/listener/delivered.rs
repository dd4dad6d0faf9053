//! A listener that another source than the file delivers.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::file;
use crate::file::one_or_several::OneOrSeveral;
use crate::map::Map;
use crate::resource::cluster::build::named_by_listener;
use crate::resource::listener::build;
use crate::resource::route::tables;
use crate::sections::context::Context;
use crate::sections::delivered::{Lowered, held, lowered};
use crate::sections::names::Names;
use crate::snapshot::{Listener, ListenerId, RouteTable};
use crate::text::tree::Site;

/// The names of route configurations in a listener and its chains.
pub(crate) fn route_names(file: &file::Listener) -> BTreeSet<&str> {
    let ends = file.chains.iter().map(|chain| &chain.routes).chain([&file.routes]);
    ends.flatten().flat_map(OneOrSeveral::as_slice).map(String::as_str).collect()
}

/// A listener. `find` has the tables of route configurations, and of the file.
pub(crate) fn delivered<F>(
    file: &file::Listener,
    site: &Site<'_>,
    id: Option<ListenerId>,
    find: &dyn Fn(&str) -> Option<Vec<Arc<RouteTable>>>,
    context: &mut Context<'_, '_, F>,
) -> Lowered<Arc<Listener<F>>> {
    let former = id.and_then(|id| context.former?.listener(id)).map(|(_, listener)| listener);
    let ends = former.iter().flat_map(|former| {
        let chains = former.chains.iter().map(|chain| &chain.listener);
        chains.chain([&***former])
    });
    for tls in ends.filter_map(|end| end.tls.as_ref()) {
        let client = tls.source.client.as_ref();
        context.files.know(&tls.source.certificates, client.map(|client| &client.roots));
    }
    let (mut groups, mut tables, mut missing) = (Map::default(), Vec::new(), BTreeSet::new());
    for name in route_names(file) {
        let found = find(name).unwrap_or_else(|| {
            missing.insert(Box::from(name));
            Vec::new()
        });
        groups.insert(Box::from(name), found.iter().map(|table| table.id).collect());
        tables.extend(found);
    }
    let mut route_tables = Names::elsewhere(Map::default(), groups);
    let mut clusters = held(named_by_listener(file), context);
    let names = (&mut route_tables, &mut clusters);
    let tables = tables::Tables::new(tables);
    let listener = build::delivered(file, site, former, names, &tables, context);
    lowered(listener, missing, context)
}
