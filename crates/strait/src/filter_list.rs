//! Every filter there is, by name.

use config::filters::FilterKinds;
use filters::headers::{Headers, HeadersConfig};
use proxy::filter::Filter;

use crate::Failure;

/// The filters that a configuration may name. A new one is a line here.
pub(crate) fn filter_kinds() -> Result<FilterKinds<Box<dyn Filter>>, Failure> {
    let mut kinds = FilterKinds::new();
    kinds
        .register("headers", |config: HeadersConfig| boxed(Headers::new(&config)))
        .map_err(Failure::Filters)?;
    Ok(kinds)
}

fn boxed<F: Filter + 'static, E>(filter: Result<F, E>) -> Result<Box<dyn Filter>, E> {
    filter.map(|filter| Box::new(filter) as Box<dyn Filter>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_can_be_offered() {
        let kinds = filter_kinds().unwrap();
        assert_eq!(kinds.names().collect::<Vec<_>>(), ["headers"]);
    }
}
