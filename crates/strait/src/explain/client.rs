//! The client of `explain`: of either version of HTTP, in the clear or over TLS.

use std::sync::Arc;

use config::snapshot::ListenerProtocol;
use tls::{
    Alert, Certificate, ClientContext, ClientOptions, Established, Handshake, HandshakeError,
    HandshakeFacts, Verify, Version,
};
use wire::buffer::Buffer;
use wire::h1::{Scan, decode_request};
use wire::h2::{Element, Http2, Limits, RequestForm, Scheme, Scratch, head_len_max};
use wire::head::HeadIndex;
use wire::tls::record::{Opened, RecordError, RecordLayer};

/// The protocols that browsers and curl offer.
pub(super) const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A client that sends one request.
pub(super) struct Client {
    security: Security,
    /// The listener's protocol, for a client without ALPN.
    protocol: ListenerProtocol,
    speech: Option<Speech>,
}

enum Security {
    Plain,
    Handshake(Box<Handshake>),
    Records(Box<RecordLayer>, Box<HandshakeFacts>),
    Failed(String),
}

/// The version of HTTP that it speaks.
enum Speech {
    Http1,
    Http2(Box<Http2>),
}

impl Client {
    pub(super) const fn plain(protocol: ListenerProtocol) -> Self {
        Self { security: Security::Plain, protocol, speech: None }
    }

    /// A client that connects over TLS with this server name, accepts any certificate, and has this
    /// one itself.
    pub(super) fn secure(
        protocol: ListenerProtocol,
        server_name: &str,
        certificate: Option<Arc<Certificate>>,
    ) -> Self {
        let security = match begin(server_name, certificate) {
            Ok(handshake) => Security::Handshake(Box::new(handshake)),
            Err(error) => Security::Failed(error),
        };
        Self { security, protocol, speech: None }
    }

    /// What the handshake negotiated, or why it failed; none without TLS.
    pub(super) fn into_facts(self) -> Option<Result<HandshakeFacts, String>> {
        match self.security {
            Security::Plain => None,
            Security::Handshake(_) => Some(Err("it does not come to its end".to_owned())),
            Security::Records(_, facts) => Some(Ok(*facts)),
            Security::Failed(error) => Some(Err(error)),
        }
    }

    /// The bytes to send next: the handshake, then the request.
    pub(super) fn speak(&mut self, request: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let Security::Handshake(handshake) = &mut self.security {
            handshake.poll_output(&mut out);
            if !handshake.is_done() {
                return out;
            }
            self.establish();
        }
        let can_ask = matches!(self.security, Security::Plain | Security::Records(..));
        if can_ask && self.speech.is_none() {
            let said = self.ask(request).unwrap_or_default();
            match &mut self.security {
                Security::Records(records, _) => out.extend(seal(records, &said)),
                _ => out.extend(said),
            }
        }
        out
    }

    /// Takes what the listener sent: the head of the answer, once it is there.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Option<String> {
        match &mut self.security {
            Security::Plain => self.read(bytes),
            Security::Handshake(handshake) => {
                let heard = handshake.on_bytes(bytes);
                if let Err(error) = heard {
                    self.security = Security::Failed(error.to_string());
                }
                None
            }
            Security::Records(records, _) => {
                let (data, failure) = open(records, bytes);
                if let Some(failure) = failure {
                    self.security = Security::Failed(failure);
                }
                self.read(&data)
            }
            Security::Failed(_) => None,
        }
    }

    fn establish(&mut self) {
        let Security::Handshake(handshake) = std::mem::replace(&mut self.security, Security::Plain)
        else {
            return;
        };
        self.security = match handshake.finish() {
            Ok(Established { records, facts, .. }) => Security::Records(records, Box::new(facts)),
            Err(error) => Security::Failed(error.to_string()),
        };
    }

    /// The request's bytes; none for a head that HTTP/2 cannot say.
    fn ask(&mut self, head: &[u8]) -> Option<Vec<u8>> {
        let alpn = match &self.security {
            Security::Records(_, facts) => facts.alpn.as_deref(),
            _ => None,
        };
        let is_http2 = match alpn {
            Some(alpn) => alpn == b"h2",
            None => self.protocol == ListenerProtocol::Http2,
        };
        if !is_http2 {
            self.speech = Some(Speech::Http1);
            return Some(head.to_vec());
        }
        let codec = Box::new(Http2::client(&Limits::default()));
        let Speech::Http2(codec) = self.speech.insert(Speech::Http2(codec)) else { return None };
        let limits = Limits::default().head;
        let mut index = HeadIndex::default();
        let (head, _) =
            decode_request(head, &mut Scan::default(), &limits, &mut index).ok().flatten()?;
        let mut out = Buffer::new(1024 + head_len_max(&head));
        let scheme = match self.security {
            Security::Records(..) => Scheme::Https,
            _ => Scheme::Http,
        };
        codec.send_control(&mut out);
        codec.send_request(&head, scheme, RequestForm::Same, true, &mut out)?;
        Some(out.filled().to_vec())
    }

    /// Reads the head of an answer out of data.
    fn read(&mut self, bytes: &[u8]) -> Option<String> {
        let codec = match self.speech.as_mut()? {
            Speech::Http1 if bytes.is_empty() => return None,
            Speech::Http1 => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let (head, _) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
                return Some(head.to_owned());
            }
            Speech::Http2(codec) => codec,
        };
        let (mut scratch, mut at) = (Scratch::default(), 0);
        let mut answered = None;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (n, element) = codec.decode(rest, &Limits::default(), &mut scratch).ok()?;
            at += n;
            match element {
                Element::NeedMore => break,
                Element::Response { head, .. } => {
                    let text = String::from_utf8_lossy(head.block()).into_owned();
                    answered = Some(text.trim_end().to_owned());
                }
                _ => {}
            }
        }
        answered
    }
}

fn begin(server_name: &str, certificate: Option<Arc<Certificate>>) -> Result<Handshake, String> {
    let options = ClientOptions {
        verify: Verify::Nothing,
        certificate,
        versions: Version::Tls12..=Version::Tls13,
        cipher_suites: Vec::new(),
        groups: Vec::new(),
        alpn: ALPN.iter().map(|&name| name.into()).collect(),
        names: Vec::new(),
    };
    let context = ClientContext::new(options).map_err(|error| error.to_string())?;
    Handshake::connect(&Arc::new(context), server_name)
        .map_err(|error: HandshakeError| error.to_string())
}

fn seal(records: &mut RecordLayer, data: &[u8]) -> Vec<u8> {
    let mut out = Buffer::new(records.sealed_len(data.len()));
    // Keys this young take everything.
    let _sealed = records.seal(&[data], &mut out);
    out.filled().to_vec()
}

/// The data in whole records, and why there is no more of it, if there is not.
fn open(records: &mut RecordLayer, bytes: &[u8]) -> (Vec<u8>, Option<String>) {
    let (mut bytes, mut at, mut data) = (bytes.to_vec(), 0, Vec::new());
    loop {
        match records.open(bytes.get_mut(at..).unwrap_or_default()) {
            Ok((_, Opened::NeedMore { .. } | Opened::End)) => return (data, None),
            Ok((n, opened)) => {
                at += n;
                if let Opened::Data { bytes, .. } = opened {
                    data.extend_from_slice(bytes);
                }
            }
            Err(RecordError::AlertReceived(code)) => {
                let error = HandshakeError::AlertReceived(Alert::from_code(code));
                return (data, Some(error.to_string()));
            }
            Err(error) => return (data, Some(error.to_string())),
        }
    }
}
