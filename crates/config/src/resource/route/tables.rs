//! The route tables that could be made, for whatever else is built of them.

use std::sync::Arc;

use crate::map::Map;
use crate::snapshot::{RouteTable, RouteTableId};

/// The route tables that could be made, by id.
#[derive(Default)]
pub(crate) struct Tables {
    in_order: Vec<Arc<RouteTable>>,
    places: Map<RouteTableId, usize>,
}

impl Tables {
    pub(crate) fn new(tables: impl IntoIterator<Item = Arc<RouteTable>>) -> Self {
        let mut all = Self::default();
        tables.into_iter().for_each(|table| all.push(table));
        all
    }

    pub(crate) fn find(&self, id: RouteTableId) -> Option<&Arc<RouteTable>> {
        self.places.get(&id).and_then(|place| self.in_order.get(*place))
    }

    pub(crate) fn named(&self, name: &str) -> Option<&RouteTable> {
        self.in_order.iter().find(|table| *table.name == *name).map(AsRef::as_ref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RouteTable> {
        self.in_order.iter().map(AsRef::as_ref)
    }

    pub(crate) fn into_values(self) -> Vec<Arc<RouteTable>> {
        self.in_order
    }

    pub(crate) fn push(&mut self, table: Arc<RouteTable>) {
        self.places.insert(table.id, self.in_order.len());
        self.in_order.push(table);
    }
}
