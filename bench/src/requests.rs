//! The requests that are sent and what is expected back.

/// Bytes of each response's body, and of each request's body where there is one.
pub const BODY_BYTES: usize = 1024;

/// One request as bytes: a GET, or a POST with a body.
#[must_use]
pub fn request(has_body: bool) -> Vec<u8> {
    let method = if has_body { "POST" } else { "GET" };
    let head = format!("{method} /bench HTTP/1.1\r\nHost: bench.test\r\nAccept: */*\r\n");
    let mut bytes = head.into_bytes();
    if has_body {
        bytes.extend_from_slice(b"Content-Type: application/octet-stream\r\n");
        bytes.extend_from_slice(format!("Content-Length: {BODY_BYTES}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    if has_body {
        bytes.resize(bytes.len() + BODY_BYTES, b'q');
    }
    bytes
}

/// A GET as bytes, behind which its connection is to be closed.
#[must_use]
pub fn last_request() -> Vec<u8> {
    let mut bytes = request(false);
    bytes.truncate(bytes.len().saturating_sub(b"\r\n".len()));
    bytes.extend_from_slice(b"Connection: close\r\n\r\n");
    bytes
}

/// The response of `upstream` as bytes.
#[must_use]
pub fn response() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: upstream\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + BODY_BYTES, b'a');
    bytes
}

/// Whether a response's head reports success.
#[must_use]
pub fn is_success(head: &[u8]) -> bool {
    head.starts_with(b"HTTP/1.1 200")
}
