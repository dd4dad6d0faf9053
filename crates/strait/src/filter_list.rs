//! Every filter there is, by name.

use std::sync::OnceLock;

use config::Loader;
use config::filters::FilterKinds;
use filters::headers::{Headers, HeadersConfig};
use proxy::filter::Filter;

use crate::{Extend, Failure, protocol_list};

/// The filters that a configuration may name. A new one is a line here.
pub(crate) fn filter_kinds() -> Result<FilterKinds<Box<dyn Filter>>, Failure> {
    let mut kinds = FilterKinds::new();
    kinds
        .register("headers", |config: HeadersConfig| boxed(Headers::new(&config)))
        .map_err(Failure::Filters)?;
    kinds.takes_rpc("headers");
    protocol_list::register(&mut kinds);
    if let Some(extend) = EXTEND.get() {
        extend(&mut kinds).map_err(Failure::Filters)?;
    }
    Ok(kinds)
}

/// What the binary adds. Set once, before anything asks.
static EXTEND: OnceLock<Extend> = OnceLock::new();

/// Adds what a binary has.
pub(crate) fn extend(extend: Extend) {
    EXTEND.get_or_init(|| extend);
}

/// A loader that knows every filter.
pub(crate) fn loader() -> Result<Loader<Box<dyn Filter>>, Failure> {
    Loader::new(filter_kinds()?).map_err(Failure::Filters)
}

fn boxed<F: Filter + 'static, E>(filter: Result<F, E>) -> Result<Box<dyn Filter>, E> {
    filter.map(|filter| Box::new(filter) as Box<dyn Filter>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test may ask whether to rewrite the page")]
    fn the_configuration_reference_is_up_to_date() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = root.join("docs/configuration/reference.md");
        let now = config::reference(&filter_kinds().unwrap()).unwrap();
        if std::env::var("BLESS").is_ok() {
            std::fs::write(&path, &now).unwrap();
        }
        let then = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            then == now,
            "docs/configuration/reference.md is old: BLESS=1 cargo test -p strait"
        );
    }

    #[test]
    fn every_filter_can_be_offered() {
        let kinds = filter_kinds().unwrap();
        assert_eq!(kinds.names().collect::<Vec<_>>(), ["headers"]);
    }
}
