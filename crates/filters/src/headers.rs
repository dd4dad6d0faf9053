//! Sets, appends and removes header fields.
//!
//! Config: `headers: { request: { set: { x-edge: strait } }, response: { remove: [x-powered-by] } }`.
//! Counters: none of its own; it never answers a request.
//! Posture: trusts neither side, reads no body, buffers nothing, keeps nothing of an exchange.
//! Names and values come from the configuration alone and are checked when it is read.

mod config;
mod edits;

pub use self::config::{EditsConfig, HeadersConfig};

use ::config::filters::FilterError;
use proxy::filter::{Filter, Part, Verdict};
use wire::head::{RequestHead, ResponseHead};

use self::edits::{Edits, Side};

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
        let request = Edits::new(&config.request, Side::Request, &mut errors);
        let response = Edits::new(&config.response, Side::Response, &mut errors);
        if errors.is_empty() { Ok(Self { request, response }) } else { Err(errors) }
    }
}

impl Filter for Headers {
    fn on_request(&self, head: &mut RequestHead<'_>, _slot: &mut [u8]) -> Verdict {
        self.request.apply(head);
        Verdict::Continue
    }

    fn on_reply(&self, head: &mut ResponseHead<'_>) {
        self.response.apply(head);
    }

    fn on_response(&self, head: &mut ResponseHead<'_>, _slot: &mut [u8]) -> Part {
        self.response.apply(head);
        Part::Done
    }
}
