//! The parts of gRPC that a proxy handles: content types, message boundaries, deadlines, statuses,
//! and the translation of gRPC-Web.
//!
//! From the specifications in `grpc/grpc`, folder `doc`: PROTOCOL-HTTP2, PROTOCOL-WEB and
//! http-grpc-status-mapping. gRPC is HTTP with further rules: the outcome is in the trailers, under
//! a status of 200; a reply of the proxy has to put it there too. The content of messages is not
//! read and not buffered, but for those of health checks: bodies pass through in pieces.
//!
//! Where to look: [`is_grpc`] recognises requests and responses, [`MessageCounter`] sees messages
//! pass, [`parse_timeout`] and [`encode_timeout`] are the deadline, [`Status`] is the outcome,
//! [`web`] makes gRPC of what a browser sends, and back, and [`health`] is the one service that is called from here.

mod base64;
pub mod health;
mod messages;
mod status;
mod timeout;
pub mod web;

use serde::{Deserialize, Serialize};

pub use base64::TextError;
pub use messages::{MESSAGE_PREFIX_LEN, MessageCounter};
pub use status::{Status, decode_message, encode_message};
pub use timeout::{TimeoutText, encode_timeout, parse_timeout};

use crate::octets;

/// In which of its forms a message speaks gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GrpcVariant {
    /// gRPC proper.
    Grpc,
    /// gRPC-Web: trailers are in the body.
    Web,
    /// gRPC-Web whose body is in base64.
    WebText,
}

impl GrpcVariant {
    /// How the body is encoded, if this is gRPC-Web.
    #[must_use]
    pub fn web_encoding(self) -> Option<web::Encoding> {
        match self {
            Self::Grpc => None,
            Self::Web => Some(web::Encoding::Binary),
            Self::WebText => Some(web::Encoding::Text),
        }
    }

    fn media_type(self) -> &'static [u8] {
        match self {
            Self::Grpc => b"application/grpc",
            Self::Web => b"application/grpc-web",
            Self::WebText => b"application/grpc-web-text",
        }
    }
}

/// Which gRPC a `Content-Type` names, in any case, if it names one.
///
/// The format of messages behind a `+`, and parameters, may be any. Names that only begin like
/// these are not gRPC.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> Option<GrpcVariant> {
    kind_and_format(content_type).map(|(kind, _)| kind)
}

/// Appends to `out` the content type for `kind` that corresponds to `content_type`. Returns whether
/// `content_type` was gRPC at all; nothing is appended otherwise.
///
/// The format of messages is kept: `application/grpc-web+proto` becomes `application/grpc+proto`,
/// and the other way round. Parameters are not: gRPC has none, and servers take them for a part of
/// the format.
pub fn convert_content_type(content_type: &[u8], kind: GrpcVariant, out: &mut Vec<u8>) -> bool {
    let Some((_, format)) = kind_and_format(content_type) else {
        return false;
    };
    out.extend_from_slice(kind.media_type());
    out.extend_from_slice(format);
    true
}

/// The gRPC variant that a `Content-Type` names, and the format of messages with its `+`, or
/// nothing.
fn kind_and_format(content_type: &[u8]) -> Option<(GrpcVariant, &[u8])> {
    let media_type = content_type.split(|&octet| octet == b';').next().unwrap_or_default();
    let media_type = octets::trim(media_type);
    let name_len = octets::find(media_type, 0, b'+').unwrap_or(media_type.len());
    let (name, format) = media_type.split_at_checked(name_len)?;
    if let [_, format @ ..] = format
        && !octets::is_token(format)
    {
        return None;
    }
    let is_named = |media_type: &[u8]| name.eq_ignore_ascii_case(media_type);
    let kind = [GrpcVariant::Grpc, GrpcVariant::Web, GrpcVariant::WebText]
        .into_iter()
        .find(|kind| is_named(kind.media_type()))
        .or_else(|| is_named(WEB_TEXT_BASE64).then_some(GrpcVariant::WebText))?;
    Some((kind, format))
}

/// The longer name of [`GrpcVariant::WebText`], with the same meaning (PROTOCOL-WEB, text-encoded
/// streams).
const WEB_TEXT_BASE64: &[u8] = b"application/grpc-web-text-base64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_recognised_exactly() {
        for (content_type, expected) in [
            (&b"application/grpc"[..], Some(GrpcVariant::Grpc)),
            (b"Application/GRPC", Some(GrpcVariant::Grpc)),
            (b"application/grpc+proto", Some(GrpcVariant::Grpc)),
            (b"application/grpc+x.y-z+json", Some(GrpcVariant::Grpc)),
            (b"application/grpc;charset=utf-8", Some(GrpcVariant::Grpc)),
            (b"application/grpc+proto ; a=b", Some(GrpcVariant::Grpc)),
            (b" application/grpc\t", Some(GrpcVariant::Grpc)),
            (b"application/grpc;", Some(GrpcVariant::Grpc)),
            (b"application/grpc-web", Some(GrpcVariant::Web)),
            (b"application/grpc-web+proto", Some(GrpcVariant::Web)),
            (b"application/gRPC-Web; a=\"b+c\"", Some(GrpcVariant::Web)),
            (b"application/grpc-web-text", Some(GrpcVariant::WebText)),
            (b"application/grpc-web-text+proto", Some(GrpcVariant::WebText)),
            (b"application/grpc-web-text-base64", Some(GrpcVariant::WebText)),
            (b"application/grpc-web-text-base64+proto;a=b", Some(GrpcVariant::WebText)),
            (b"", None),
            (b";", None),
            (b"+proto", None),
            (b"application/grp", None),
            (b"application/grpc+", None),
            (b"application/grpc+;a=b", None),
            (b"application/grpc+a b", None),
            (b"application/grpc proto", None),
            (b"application/grpcweb", None),
            (b"application/grpc-", None),
            (b"application/grpc-webtext", None),
            (b"application/grpc-web-tex", None),
            (b"application/grpc-web-text-hex", None),
            (b"application/grpc, application/grpc", None),
            (b"application/json", None),
            (b"text/grpc", None),
        ] {
            assert_eq!(is_grpc(content_type), expected, "{}", content_type.escape_ascii());
        }
    }

    #[test]
    fn a_content_type_keeps_its_format_and_loses_its_parameters() {
        for (content_type, kind, expected) in [
            (&b"application/grpc-web+proto"[..], GrpcVariant::Grpc, &b"application/grpc+proto"[..]),
            (b"application/grpc-web", GrpcVariant::Grpc, b"application/grpc"),
            (b"application/grpc-web-text", GrpcVariant::Grpc, b"application/grpc"),
            (
                b"application/grpc-web-text+json; charset=utf-8",
                GrpcVariant::Grpc,
                b"application/grpc+json",
            ),
            (b"application/grpc", GrpcVariant::Web, b"application/grpc-web"),
            (b"Application/GRPC+proto", GrpcVariant::Web, b"application/grpc-web+proto"),
            (b"application/grpc+proto", GrpcVariant::WebText, b"application/grpc-web-text+proto"),
            (
                b"application/grpc-web-text-base64",
                GrpcVariant::WebText,
                b"application/grpc-web-text",
            ),
        ] {
            let mut out = b"=".to_vec();
            assert!(convert_content_type(content_type, kind, &mut out));
            assert_eq!(out.strip_prefix(b"="), Some(expected), "{}", content_type.escape_ascii());
        }
        let mut out = Vec::new();
        assert!(!convert_content_type(b"text/html", GrpcVariant::Web, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn only_grpc_web_has_an_encoding() {
        assert_eq!(GrpcVariant::Grpc.web_encoding(), None);
        assert_eq!(GrpcVariant::Web.web_encoding(), Some(web::Encoding::Binary));
        assert_eq!(GrpcVariant::WebText.web_encoding(), Some(web::Encoding::Text));
    }
}
