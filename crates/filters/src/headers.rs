//! Sets, appends and removes header fields.
//!
//! Config: `headers: { request: { set: { x-edge: strait } }, response: { remove: [x-powered-by] } }`.
//! Counters: none of its own; it never answers a request.
//! Posture: trusts neither side, reads no body, buffers nothing, keeps nothing of an exchange.
//! Names and values come from the configuration alone and are checked when it is read ([`::config::edits`], which rules
//! have as well).

mod config;

pub use self::config::{EditsConfig, HeadersConfig};

use ::config::edits::{EditPlace, Editor, Edits, Side};
use ::config::filters::FilterError;
use proxy::filter::{Filter, Part, Verdict};
use wire::head::{RequestHead, ResponseHead};

/// The filter. Edits of requests happen before they are routed, so a new `host` counts there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    request: Edits,
    response: Edits,
}

impl Headers {
    /// The filter that does what `config` says.
    ///
    /// # Errors
    ///
    /// Every name and value that no head may have, or that is not a filter's to write.
    pub fn new(config: &HeadersConfig) -> Result<Self, Vec<FilterError>> {
        let mut errors = Vec::new();
        let request = edits(&config.request, Side::Request, &mut errors);
        let response = edits(&config.response, Side::Response, &mut errors);
        if errors.is_empty() { Ok(Self { request, response }) } else { Err(errors) }
    }
}

impl Filter for Headers {
    fn on_request(&self, head: &mut RequestHead<'_>, _slot: &mut [u8]) -> Verdict {
        self.request.apply_texts(head);
        Verdict::Continue
    }

    fn on_reply(&self, head: &mut ResponseHead<'_>) {
        self.response.apply_texts(head);
    }

    fn on_response(&self, head: &mut ResponseHead<'_>, _slot: &mut [u8]) -> Part {
        self.response.apply_texts(head);
        Part::Done
    }
}

fn edits(config: &EditsConfig, side: Side, errors: &mut Vec<FilterError>) -> Edits {
    let mut found = Vec::new();
    let edits = Edits::new(&config.clone().into(), side, Editor::Filter, &mut found);
    errors.extend(found.into_iter().map(|error| {
        let filter_error = FilterError::new(error.problem).key(side.key()).key(error.verb);
        match &error.at {
            EditPlace::Name(name) => filter_error.key(name),
            EditPlace::Index(index) => filter_error.index(*index),
        }
    }));
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_are_reported_each_with_its_place() {
        let set = [("a b", "x"), ("ok", "100%")].map(|(name, value)| (name.into(), value.into()));
        let remove = ["ok", "upgrade"].map(String::from).to_vec();
        let response = EditsConfig { set: set.into(), remove, ..EditsConfig::default() };
        let config = HeadersConfig { response, ..HeadersConfig::default() };
        let errors = Headers::new(&config).unwrap_err();
        let at = |error: &FilterError| format!("{error:?}");
        assert_eq!(errors.len(), 2);
        for (error, parts) in errors
            .iter()
            .zip([&["response", "remove", "Index(1)"][..], &["response", "set", "a b"]])
        {
            assert!(parts.iter().all(|part| at(error).contains(part)), "{error:?} {parts:?}");
        }
    }
}
