//! What the admin interface sends back: text, JSON, metrics, a page for a browser.

/// What is sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Answer {
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, body: body.into().into_bytes() }
    }

    pub(crate) fn metrics(body: String) -> Self {
        Self { status: 200, content_type: PROMETHEUS, body: body.into_bytes() }
    }

    pub(crate) fn json_bytes(status: u16, body: Vec<u8>) -> Self {
        Self { status, content_type: JSON, body }
    }

    /// Indented, since people read it with curl.
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
        body.push(b'\n');
        Self::json_bytes(200, body)
    }

    pub(super) fn html(body: String) -> Self {
        Self { status: 200, content_type: HTML, body: body.into_bytes() }
    }

    pub(super) fn slow(as_text: bool, body: Vec<u8>) -> Self {
        Self { status: 200, content_type: if as_text { TEXT } else { JSON }, body }
    }
}
