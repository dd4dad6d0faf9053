//! The same question for a running process, through its admin interface.

use control::ExplainRequest;
use serde_json::Value;

use super::steps_text;
use crate::Failure;
use crate::admin_client::{AdminClient, AdminError, encode};

/// Bytes of a question: an admin interface reads heads of 64 KiB.
const PATH_BYTES_MAX: usize = 60 << 10;

/// The steps that the process whose admin interface is at `admin` has for a request.
pub(super) fn ask(admin: &str, request: &ExplainRequest) -> Result<String, Failure> {
    let failed = |error: AdminError| Failure::Explain(error.to_string());
    let mut client = AdminClient::new(admin).map_err(failed)?;
    let path = path(request);
    if path.len() > PATH_BYTES_MAX {
        return Err(Failure::Explain(format!(
            "the URL and the header fields have {} bytes where they are sent to {admin}, which takes {PATH_BYTES_MAX} at most: leave out \
             what no rule compares, or ask with -c",
            path.len()
        )));
    }
    let answer = client.get(&path).map_err(failed)?;
    let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let Some(steps) = value.get("steps").and_then(Value::as_array) else {
        return Err(failed(AdminError::Stranger(admin.to_owned())));
    };
    let text = |step: &Value, key: &str| {
        step.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let steps: Vec<_> = steps.iter().map(|step| (text(step, "step"), text(step, "text"))).collect();
    Ok(steps_text(steps.iter().map(|(step, text)| (&**step, &**text))))
}

/// The question as the page takes it.
fn path(request: &ExplainRequest) -> String {
    let ExplainRequest { method, url, headers, tls, listener, from } = request;
    let from = from.map(|address| address.to_string());
    let mut arguments = Vec::new();
    match tls {
        Some(host) => arguments.push(("tls", host)),
        None => arguments.extend([("method", method), ("url", url)]),
    }
    arguments.extend(headers.iter().map(|header| ("header", header)));
    arguments.extend(listener.iter().map(|name| ("listener", name)));
    arguments.extend(from.iter().map(|address| ("from", address)));
    let pairs: Vec<_> =
        arguments.into_iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("/explain?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_encoded_whole() {
        let request = ExplainRequest {
            method: "POST".to_owned(),
            url: "http://a/x?y=1&z".to_owned(),
            headers: vec!["a: 50%".to_owned(), "b: +".to_owned()],
            tls: None,
            listener: Some("edge".to_owned()),
            from: Some([192, 0, 2, 7].into()),
        };
        assert_eq!(
            path(&request),
            "/explain?method=POST&url=http%3A%2F%2Fa%2Fx%3Fy%3D1%26z&header=a%3A%2050%25\
             &header=b%3A%20%2B&listener=edge&from=192.0.2.7"
        );
        let request = ExplainRequest { tls: Some("a:443".to_owned()), ..ExplainRequest::default() };
        assert_eq!(path(&request), "/explain?tls=a%3A443");
    }
}
