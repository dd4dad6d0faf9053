//! Masks secrets in what is shown of a configuration.

use serde_json::Value as Json;

use crate::secrets::{MASK, is_secret_name};
use crate::text::shape::{Shape, ShapeKind};

/// What the keys of an item of a filter chain are.
pub(crate) const FILTER_NOUN: &str = "filter";

/// The same of the handlers in front of route tables.
pub(crate) const HANDLER_NOUN: &str = "handler";

/// Whether objects with this noun have names of such parts as keys.
fn is_part(noun: &str) -> bool {
    [FILTER_NOUN, HANDLER_NOUN].contains(&noun)
}

/// Masks what the shape marks as secret, and what stands under a name that says so. Names of filters
/// say nothing of the kind.
pub(crate) fn redact(value: &mut Json, shape: Option<&Shape>) {
    if shape.is_some_and(|shape| shape.is_secret) {
        *value = MASK.into();
        return;
    }
    let kind = shape.and_then(|shape| kind_of(value, &shape.kind));
    match value {
        Json::Array(items) => {
            let inner = match kind {
                Some(ShapeKind::List { items, .. }) => Some(items.as_ref()),
                _ => None,
            };
            items.iter_mut().for_each(|item| redact(item, inner));
        }
        Json::Object(entries) => {
            let is_filter =
                matches!(kind, Some(ShapeKind::Object(object)) if is_part(object.noun()));
            for (key, value) in entries {
                let inner = match kind {
                    Some(ShapeKind::Object(object)) => {
                        let field = object.fields.iter().find(|field| field.name == *key);
                        field.map(|field| &field.shape)
                    }
                    Some(ShapeKind::Map(values)) => Some(values.as_ref()),
                    _ => None,
                };
                let is_public = is_filter || inner.is_some_and(|inner| inner.is_public);
                if !is_public && is_secret_name(key) {
                    *value = MASK.into();
                    continue;
                }
                redact(value, inner);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The kind that a value has, of one or of several.
fn kind_of<'k>(value: &Json, kind: &'k ShapeKind) -> Option<&'k ShapeKind> {
    match kind {
        ShapeKind::Either(all) => all.iter().find_map(|shape| kind_of(value, &shape.kind)),
        ShapeKind::Object(_) | ShapeKind::Map(_) => value.is_object().then_some(kind),
        ShapeKind::List { .. } => value.is_array().then_some(kind),
        // One of a scalar.
        _ => (!value.is_object() && !value.is_array()).then_some(kind),
    }
}
