//! The pieces of HTTP that a file names: paths, fields, authorities.

use crate::findings::Problem;
use crate::hosts::authority_of;

/// The outcome for a piece that may be absent.
pub(crate) type Found<'a> = Option<Result<(), Problem>>;

/// Fields of a message that Strait sets itself, because they say where it ends and what happens
/// to its connection.
const OWN_FIELDS: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
];

/// Whether `text` is a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Checks the name, in lower case, of a field of a direct response or of a health check.
pub(crate) fn check_field(name: &str) -> Result<(), Problem> {
    if !is_token(name) {
        let rule = "a header name consists of letters, digits and !#$%&'*+-.^_`|~";
        return Err(Problem::new(rule, "write a name such as cache-control"));
    }
    if OWN_FIELDS.contains(&name) {
        return Err(Problem::new("Strait sets this header itself", "remove it"));
    }
    Ok(())
}

/// Checks the value of a field (RFC 9110, section 5.5, without its obsolete bytes).
pub(crate) fn check_value(value: &str) -> Result<(), Problem> {
    let is_value_byte = |b: u8| b.is_ascii_graphic() || b == b' ' || b == b'\t';
    if !value.bytes().all(is_value_byte) {
        let rule = "a header value consists of visible ASCII characters, spaces and tabs";
        return Err(Problem::new(rule, "encode what is beyond ASCII, and remove line ends"));
    }
    if value.trim_matches([' ', '\t']) != value {
        let rule = "a header value has no spaces at its ends";
        return Err(Problem::new(rule, format!("write {:?}", value.trim())));
    }
    Ok(())
}

/// Checks what a redirect puts in the place of a path. It may bring its own query.
pub(crate) fn check_location(path: &str) -> Result<(), Problem> {
    if !path.starts_with('/') {
        return Err(Problem::new(
            "a path begins with `/`",
            format!("write {:?}", format!("/{path}")),
        ));
    }
    if path.starts_with("//") {
        let rule = "a path that begins with `//` would lead to another host";
        return Err(Problem::new(rule, "write one `/`, and use `host` for another host"));
    }
    check_path_bytes(path)
}

/// Bytes that may stand in a request target as they are.
pub(crate) fn check_path_bytes(path: &str) -> Result<(), Problem> {
    let wrong = path.chars().find(|c| {
        !c.is_ascii_graphic() || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')
    });
    if let Some(wrong) = wrong {
        return Err(must_be_encoded(wrong));
    }
    let is_hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let escapes = path.bytes().enumerate().filter(|(_, b)| *b == b'%').map(|(at, _)| at);
    let bytes = path.as_bytes();
    for at in escapes {
        if !is_hex(bytes.get(at + 1)) || !is_hex(bytes.get(at + 2)) {
            let rule = "`%` is followed by two hexadecimal digits";
            return Err(Problem::new(rule, "write %25 for the character itself"));
        }
    }
    Ok(())
}

pub(crate) fn must_be_encoded(wrong: char) -> Problem {
    let mut utf8 = [0; 4];
    let encoded: String =
        wrong.encode_utf8(&mut utf8).bytes().map(|b| format!("%{b:02X}")).collect();
    let rule = format!("{wrong:?} must be percent-encoded in a path");
    Problem::new(rule, format!("write {encoded} in its place"))
}

/// Checks a host with or without a port.
pub(crate) fn check_authority(text: &str) -> Result<(), Problem> {
    if text.contains('/') {
        let authority = authority_of(text);
        let hint = match !authority.contains('/') && check_authority(authority).is_ok() {
            true => {
                format!("write \"{authority}\"; the scheme and the path have keys of their own")
            }
            false => "write a name such as shop.example.com".to_owned(),
        };
        return Err(Problem::new("a host has no scheme and no path", hint));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    if port.is_some_and(|port| {
        !port.bytes().all(|b| b.is_ascii_digit()) || port.parse::<u16>().is_err()
    }) {
        return Err(Problem::new("a port is a number up to 65535", format!("write {host}:443")));
    }
    match host.parse()? {
        crate::hosts::Host::Exact(_) => Ok(()),
        crate::hosts::Host::Suffix(_) | crate::hosts::Host::Prefix(_) | crate::hosts::Host::Any => {
            Err(Problem::new("a redirect leads to one host", "write a name without `*`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_say_where_a_response_ends_are_ours() {
        for name in ["content-length", "transfer-encoding", "connection", "a b", "", "a:"] {
            assert!(check_field(name).is_err(), "{name}");
        }
        for name in ["cache-control", "x-a", "content-type", "set-cookie"] {
            assert_eq!(check_field(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn values_hold_no_line_ends_and_no_outer_spaces() {
        for value in ["a\r\nb", "a\nb", "a\0", "é", " a", "a\t"] {
            assert!(check_value(value).is_err(), "{value:?}");
        }
        for value in ["", "a", "a b\tc", "max-age=3"] {
            assert_eq!(check_value(value), Ok(()), "{value:?}");
        }
    }

    #[test]
    fn authorities_are_one_host_with_or_without_a_port() {
        for text in ["a.b", "a.b:443", "[::1]", "[::1]:80", "127.0.0.1:80"] {
            assert_eq!(check_authority(text), Ok(()), "{text}");
        }
        for text in ["", "*", "*.a", "a:", "a:x", "a:65536", "a/b", "::1:80", "a@b"] {
            assert!(check_authority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirect_does_not_lead_astray() {
        assert!(check_location("//evil.example").is_err());
        assert!(check_location("x").is_err());
        assert_eq!(check_location("/new?from=old"), Ok(()));
    }
}
