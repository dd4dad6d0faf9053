//! What is not shown, in reports and in the effective configuration: values that a name says are
//! secrets.
//!
//! A name says so, wherever it stands, if it holds one of a few words. That masks more than has to
//! be (`x-cache-key`), and a secret under another name is not known as one. A field of a filter's
//! configuration can be marked as well, with `x-secret` in its schema.

/// What stands in for a secret.
pub const MASK: &str = "***";

/// In lower case.
const WORDS: [&str; 7] = ["auth", "cookie", "credential", "key", "password", "secret", "token"];

/// Whether what stands under `name` is taken for a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// Whether a line of a file may hold a secret: behind a key that says so, on this line or at the
/// end of the line before. This looks at the text alone, since a file that is not YAML has errors,
/// too.
pub(crate) fn may_hold_secret(line: &str, before: Option<&str>) -> bool {
    let is_dangling = |line: &str| line.trim_end().ends_with(':') && has_secret_key(line);
    has_secret_key(line) || is_pem_line(line) || before.is_some_and(is_dangling)
}

/// Whether `text` is a key or a certificate, where only the path of one should stand.
pub(crate) fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN")
}

fn is_pem_line(line: &str) -> bool {
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
    let line = line.trim();
    let is_data = line.len() >= PEM_LINE_BYTES && line.bytes().all(is_base64);
    is_data || is_pem(line) || line.contains("-----END")
}

/// Bytes in a line of PEM (RFC 7468, section 2), but for a few in case that it was cut. Nothing else in
/// a configuration has that many without a dot, a dash or a space.
const PEM_LINE_BYTES: usize = 60;

/// Whether the text before a colon names a secret. A colon within a word ends no key, one behind a
/// quote does.
fn has_secret_key(line: &str) -> bool {
    let mut pieces = line.split(':').peekable();
    while let Some(piece) = pieces.next() {
        let Some(next) = pieces.peek() else { return false };
        let ends_key = piece.ends_with(['"', '\''])
            || next.is_empty()
            || next.starts_with(|c: char| c.is_whitespace());
        let key = piece.rsplit(['{', ',', '[']).next().unwrap_or(piece);
        if ends_key && is_secret_name(key) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_any_case_and_as_a_part() {
        for name in
            ["authorization", "Proxy-Authorization", "SET-COOKIE", "x-api-key", "x-internal-token"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["client_secret", "password", "credentials", "x-amz-security-token", "auth"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["address", "keepalive", "x-edge", "host", ""] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn lines_with_a_secret_are_known_by_their_keys() {
        for line in [
            "authorization: Bearer x",
            "  - X-Token: x",
            "set: { a: b, \"x-token\": x }",
            "{\"a\":1,\"x-token\":\"x\"}",
            "  'api_key' : x",
            "    tokens:",
            "# password: x",
            "token: \"x",
            "  -----BEGIN PRIVATE KEY-----",
            "  MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2",
        ] {
            assert!(may_hold_secret(line, None), "{line}");
        }
        for line in [
            "address: 127.0.0.1:80",
            "- match: { prefix: /token }",
            "url: http://tokens.example:80/",
            "remove: [x-token]",
            "x-edge: strait",
            "",
        ] {
            assert!(!may_hold_secret(line, None), "{line}");
        }
    }

    #[test]
    fn a_value_on_the_line_behind_its_key_is_a_secret_too() {
        assert!(may_hold_secret("  Bearer x", Some("authorization:")));
        assert!(may_hold_secret("  Bearer x", Some("{ a: b, authorization:  ")));
        assert!(!may_hold_secret("x: y", Some("authorization: Bearer x")));
    }
}
