//! A client of TLS that keeps its connection, and its tickets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use ::tls::{ClientContext, ClientOptions, Established, Handshake, TicketKeeper, Verify, Version};
use wire::buffer::Buffer;
use wire::tls::record::{Opened, RecordLayer};

use crate::kit::text;

/// A connection over TLS.
pub(crate) struct TlsClient {
    socket: TcpStream,
    records: Box<RecordLayer>,
    /// Keeps tickets for later connections.
    tickets: Option<TicketKeeper>,
    /// What was read and not opened.
    unread: Vec<u8>,
    pub(crate) address: SocketAddr,
    /// Whether it went on from an earlier connection's session.
    pub(crate) is_resumed: bool,
}

/// What clients share that resume each other's sessions.
pub(crate) fn context(versions: Version) -> Arc<ClientContext> {
    let options = ClientOptions {
        verify: Verify::Nothing,
        certificate: None,
        versions: versions..=versions,
        cipher_suites: Vec::new(),
        groups: Vec::new(),
        alpn: Vec::new(),
        names: Vec::new(),
    };
    Arc::new(ClientContext::new(options).unwrap())
}

impl TlsClient {
    pub(crate) fn connect(to: SocketAddr, context: &Arc<ClientContext>) -> Self {
        let mut handshake = Handshake::connect(context, "shop.example.com").unwrap();
        let mut socket = TcpStream::connect(to).unwrap();
        let (mut unread, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let mut out = Vec::new();
            handshake.poll_output(&mut out);
            socket.write_all(&out).unwrap();
            if handshake.is_done() {
                break;
            }
            let n = socket.read(&mut piece).unwrap();
            assert!(n > 0, "it ended during the handshake");
            unread.extend_from_slice(&piece[..n]);
            let consumed = handshake.on_bytes(&unread).unwrap();
            unread.drain(..consumed);
        }
        let Established { records, facts, tickets } = handshake.finish().unwrap();
        let address = socket.local_addr().unwrap();
        Self { socket, records, tickets, unread, address, is_resumed: facts.is_resumed }
    }

    /// Asks, and says what came back: the head, and a body of the length that it names.
    pub(crate) fn get(&mut self, path: &str) -> String {
        let mut out = Buffer::new(1024);
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop.example.com\r\n\r\n");
        self.records.seal(&[request.as_bytes()], &mut out).unwrap();
        self.socket.write_all(out.filled()).unwrap();
        let mut heard = Vec::new();
        while !is_whole(&heard) {
            let (n, opened) = self.records.open(&mut self.unread).unwrap();
            match opened {
                Opened::Data { bytes, .. } => heard.extend_from_slice(bytes),
                Opened::Ticket(ticket) => {
                    if let Some(keeper) = &mut self.tickets {
                        keeper.keep(&ticket);
                    }
                }
                Opened::End => panic!("it ended after {:?}", text(&heard)),
                Opened::NeedMore { .. } => {
                    let mut piece = [0; 4096];
                    let n = self.socket.read(&mut piece).unwrap();
                    assert!(n > 0, "it was cut off after {:?}", text(&heard));
                    self.unread.extend_from_slice(&piece[..n]);
                    continue;
                }
            }
            self.unread.drain(..n);
        }
        text(&heard)
    }
}

fn is_whole(heard: &[u8]) -> bool {
    let heard = String::from_utf8_lossy(heard);
    let Some((head, body)) = heard.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
