//! Whether an answer to a check is the expected one, and if not, why.

use memchr::memmem;
use wire::grpc::Status;
use wire::grpc::health::{ServingStatus, decode_response};

use super::Probe;

/// Bytes of an answer's body, or of a connection, that are looked at.
pub const ANSWER_BYTES_MAX: usize = 64 * 1_024;

/// Bytes of an answer of the health service that are kept: its message has two.
const CALL_BYTES_MAX: usize = 1_024;

impl Probe {
    /// Bytes of the body of an answer, or of a connection, that are kept to be judged.
    #[must_use]
    pub const fn kept_bytes_max(&self) -> usize {
        match self {
            Self::Http { body: Some(_), .. } => ANSWER_BYTES_MAX,
            Self::Grpc { .. } => CALL_BYTES_MAX,
            Self::Tcp { expect, .. } if !expect.is_empty() => ANSWER_BYTES_MAX,
            Self::Http { .. } | Self::Tcp { .. } => 0,
        }
    }

    /// Whether an answer of HTTP is the expected one; `grpc_status` is that of a call.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn judge(&self, status: u16, grpc_status: Option<u8>, body: &[u8]) -> Result<(), String> {
        match self {
            Self::Http { statuses, body: expected, .. } => {
                if !statuses.iter().any(|range| range.contains(&status)) {
                    return Err(format!("status {status} is not expected"));
                }
                match expected {
                    Some(expected) if memmem::find(body, expected).is_none() => {
                        let expected = String::from_utf8_lossy(expected);
                        Err(format!("the body does not contain {expected:?}"))
                    }
                    _ => Ok(()),
                }
            }
            Self::Grpc { .. } => match (status, grpc_status) {
                (200, Some(0)) => match decode_response(body) {
                    Ok(ServingStatus::Serving) => Ok(()),
                    Ok(other) => Err(format!("the service answered {}", other.as_str())),
                    Err(error) => Err(error.to_string()),
                },
                (200, Some(code)) => Err(refused(code)),
                (200, None) => Err("the answer has no grpc-status".to_owned()),
                (status, _) => Err(format!("status {status} is no answer of gRPC")),
            },
            Self::Tcp { .. } => Err("what was expected did not come".to_owned()),
        }
    }

    /// Whether what came on a connection has all that is expected; if not, more may come.
    #[must_use]
    pub fn has_come(&self, bytes: &[u8]) -> bool {
        let Self::Tcp { expect, .. } = self else { return false };
        let mut rest = bytes;
        expect.iter().all(|expected| match memmem::find(rest, expected) {
            Some(at) => {
                rest = rest.get(at + expected.len()..).unwrap_or_default();
                true
            }
            None => false,
        })
    }
}

/// What a status of gRPC other than OK says of the service that was asked for (`grpc.health.v1`).
fn refused(code: u8) -> String {
    let status = Status::ALL.into_iter().find(|status| status.code() == code);
    let name = status.map_or("not a status of gRPC", Status::name);
    let meaning = match status {
        Some(Status::NotFound) => ": the server does not know the service that is asked for",
        Some(Status::Unimplemented) => ": the server does not implement grpc.health.v1.Health",
        _ => "",
    };
    format!("grpc-status {code} ({name}){meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_and_a_body_are_judged_together() {
        let probe = |body: Option<&str>| Probe::Http {
            request: [].into(),
            statuses: [200..=299, 404..=404].into(),
            body: body.map(|body| body.as_bytes().into()),
        };
        for (status, expected) in [
            (200, Ok(())),
            (299, Ok(())),
            (404, Ok(())),
            (301, Err("status 301 is not expected".to_owned())),
            (503, Err("status 503 is not expected".to_owned())),
        ] {
            assert_eq!(probe(None).judge(status, None, b""), expected);
        }
        assert_eq!(probe(Some("ok")).judge(200, None, b"it is ok."), Ok(()));
        let missing = probe(Some("ok")).judge(200, None, b"o k");
        assert_eq!(missing, Err("the body does not contain \"ok\"".to_owned()));
    }

    #[test]
    fn a_call_has_to_say_that_it_serves() {
        let probe = Probe::Grpc { request: [].into(), message: [].into() };
        let serving = [0, 0, 0, 0, 2, 8, 1];
        let not_serving = [0, 0, 0, 0, 2, 8, 2];
        for (status, code, body, expected) in [
            (200, Some(0), &serving[..], Ok(())),
            (200, Some(0), &not_serving, Err("the service answered NOT_SERVING")),
            (200, Some(0), &[], Err("the answer has no whole message")),
            (
                200,
                Some(12),
                &[],
                Err(
                    "grpc-status 12 (UNIMPLEMENTED): the server does not implement grpc.health.v1.Health",
                ),
            ),
            (200, Some(14), &[], Err("grpc-status 14 (UNAVAILABLE)")),
            (200, Some(77), &[], Err("grpc-status 77 (not a status of gRPC)")),
            (200, None, &serving, Err("the answer has no grpc-status")),
            (404, None, &[], Err("status 404 is no answer of gRPC")),
        ] {
            assert_eq!(probe.judge(status, code, body), expected.map_err(str::to_owned));
        }
    }

    #[test]
    fn bytes_come_in_their_order() {
        let expect = [b"+PONG".as_slice(), b"\r\n"].map(Into::into);
        let probe = Probe::Tcp { send: [].into(), expect: expect.into() };
        for (bytes, expected) in [
            ("", false),
            ("+PON", false),
            ("+PONG", false),
            ("\r\n+PONG", false),
            ("+PONG\r\n", true),
            ("hello\r\n+PONG and more\r\n and", true),
        ] {
            assert_eq!(probe.has_come(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }
}
