//! What alerts of TLS are called (RFC 8446, section 6; the registry of IANA has those of its extensions).

use std::fmt;

/// An alert of a peer by its code: its name in the registry of IANA, or the code where there is none.
#[derive(Clone, Copy, Debug)]
pub struct AlertName(pub u8);

impl AlertName {
    /// The name, or `unknown`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            21 => "decryption_failed",
            22 => "record_overflow",
            30 => "decompression_failure",
            40 => "handshake_failure",
            41 => "no_certificate",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            52 => "too_many_cids_requested",
            60 => "export_restriction",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            111 => "certificate_unobtainable",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            114 => "bad_certificate_hash_value",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            117 => "general_error",
            120 => "no_application_protocol",
            121 => "ech_required",
            _ => "unknown",
        }
    }
}

impl fmt::Display for AlertName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            "unknown" => write!(f, "{}", self.0),
            name => f.write_str(name),
        }
    }
}

#[test]
fn a_code_without_a_name_is_its_own() {
    let printed = |code| AlertName(code).to_string();
    assert_eq!(
        [printed(48), printed(116), printed(200)],
        ["unknown_ca", "certificate_required", "200"]
    );
}
