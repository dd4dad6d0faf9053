//! A request tried out on a worker's state without a network.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use config::snapshot::{Address, ListenerProtocol, OriginalDestination};
use proxy::time::Time;
use proxy::{ConnKey, Op, PeerAddress, Proxy, SLICES_MAX, Settings, Share, Snapshot};
use telemetry::Emitter;
use wire::buffer::Buffer;
use wire::h1::{Scan, decode_request};
use wire::h2::{Element, Http2, Limits, RequestForm, Scheme, Scratch, head_len_max};
use wire::head::HeadIndex;

use super::Listener;
use super::request::Request;

/// What became of the request.
#[derive(Debug)]
pub(super) enum Trial {
    /// A connection to this endpoint is asked for.
    Forwarded(Address),
    /// A connection to where the client's was going is asked for.
    ForwardedOnward,
    /// The proxy answers.
    Answered { head: String, body: String },
    /// A filter asks this topic.
    Suspended(Arc<str>),
    /// No answer.
    Refused,
}

/// Tries `request` on `listener`, as from a client on this machine.
pub(super) fn try_out(snapshot: &Arc<Snapshot>, listener: &Listener, request: &Request) -> Trial {
    const NOW: Time = Time::from_nanos(0);
    let settings = Settings { share: Share { worker: 0, workers: 1 }, seed: 0 };
    let (emitter, _reports) = Emitter::new(64 << 10);
    let mut proxy = Proxy::new(settings, Arc::clone(snapshot), emitter, NOW);
    let local = PeerAddress::from(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
    // Of a block that is for documentation (RFC 5737), so that no endpoint has it.
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 1));
    let is_told = listener.socket.original_destination != OriginalDestination::Off;
    let original = is_told.then_some(elsewhere);
    let Some(key) = proxy.on_accepted(listener.id, local.clone(), local, original, NOW) else {
        return Trial::Refused;
    };
    if listener.http.proxy_protocol {
        proxy.on_received(key, b"PROXY UNKNOWN\r\n", NOW);
    }
    let mut client = Client::new(listener);
    let Some(bytes) = client.ask(&request.head) else { return Trial::Refused };
    proxy.on_received(key, &bytes, NOW);
    while let Some(op) = proxy.poll_op(NOW) {
        match op {
            Op::Connect { address, .. } if address == Address::Tcp(elsewhere) => {
                return Trial::ForwardedOnward;
            }
            Op::Connect { address, .. } => return Trial::Forwarded(address),
            Op::Ask { question, .. } => return Trial::Suspended(question.topic),
            Op::Send(sender) if sender == key => {
                if let Some(answered) = client.read(&unsent(&proxy, key)) {
                    return answered;
                }
            }
            _ => {}
        }
    }
    Trial::Refused
}

fn unsent(proxy: &Proxy, key: ConnKey) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = proxy.unsent(key, &mut slices);
    slices.iter().take(count).flat_map(|slice| slice.iter().copied()).collect()
}

/// Who asks, in the version that the listener speaks.
enum Client {
    Http1,
    Http2(Box<Http2>),
}

impl Client {
    fn new(listener: &Listener) -> Self {
        match listener.protocol {
            ListenerProtocol::Http2 => Self::Http2(Box::new(Http2::client(&Limits::default()))),
            ListenerProtocol::Auto | ListenerProtocol::Http1 | ListenerProtocol::Tcp => Self::Http1,
        }
    }

    /// What it sends; none for a head that HTTP/2 cannot say.
    fn ask(&mut self, head: &[u8]) -> Option<Vec<u8>> {
        let Self::Http2(codec) = self else { return Some(head.to_vec()) };
        let limits = Limits::default().head;
        let mut index = HeadIndex::default();
        let (head, _) =
            decode_request(head, &mut Scan::default(), &limits, &mut index).ok().flatten()?;
        let mut out = Buffer::new(1024 + head_len_max(&head));
        codec.send_control(&mut out);
        codec.send_request(&head, Scheme::Http, RequestForm::Same, true, &mut out)?;
        Some(out.filled().to_vec())
    }

    /// What it is answered; none if that is not there yet.
    fn read(&mut self, bytes: &[u8]) -> Option<Trial> {
        let Self::Http2(codec) = self else {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
            return Some(Trial::Answered { head: head.to_owned(), body: body.to_owned() });
        };
        let (mut scratch, mut at) = (Scratch::default(), 0);
        let (mut answered, mut said) = (None, String::new());
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let Ok((n, element)) = codec.decode(rest, &Limits::default(), &mut scratch) else {
                return Some(Trial::Refused);
            };
            at += n;
            match element {
                Element::NeedMore => break,
                Element::Response { head, .. } => {
                    let text = String::from_utf8_lossy(head.block()).into_owned();
                    answered = Some(text.trim_end().to_owned());
                }
                Element::Data { bytes, .. } => said.push_str(&String::from_utf8_lossy(bytes)),
                _ => {}
            }
        }
        answered.map(|head| Trial::Answered { head, body: said })
    }
}
