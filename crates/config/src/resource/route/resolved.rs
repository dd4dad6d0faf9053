//! What a route table says once every default is filled in: the source that its entry of a snapshot keeps, and what
//! `check --print` and `/config` show of it.

use std::sync::Arc;

use crate::defaults;
use crate::file::{OrNone, Timeout};
use crate::resource::error_pages::{self, ErrorPages};
use crate::resource::route::file::RouteTable;

pub(crate) fn route_table(file: &RouteTable, pages: &ErrorPages) -> Arc<RouteTable> {
    let mut all = file.clone();
    all.error_pages = error_pages::shown(pages);
    for rule in &mut all.rules {
        if rule.respond.is_none() && rule.redirect.is_none() {
            rule.timeout.get_or_insert(OrNone::Some(Timeout(defaults::EXCHANGE_TIMEOUT)));
            rule.upgrades.get_or_insert_with(|| Arc::clone(&defaults::UPGRADES));
        }
    }
    Arc::new(all)
}
