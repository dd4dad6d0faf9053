//! A DNS server for tests: what it says to each question is up to the test, wrong answers included.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// More of an answer is cut off over UDP, wherever that is.
const DATAGRAM_BYTES_MAX: usize = 1232;

/// What it says to a question.
#[derive(Clone)]
#[allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each of the tests that share it uses a part"
)]
pub(crate) enum Says {
    /// These records, of any name and kind, with how many seconds they hold.
    Records(Vec<(String, u32, RData)>),
    /// This code, and nothing else.
    Code(ResponseCode),
    /// Nothing at all.
    Silence,
    /// Over UDP, that the answer does not fit; over TCP, these addresses.
    TruncatedUnlessTcp(Vec<IpAddr>),
    /// Over UDP that it does not fit; over TCP these addresses, one byte every so often.
    Dripping(Vec<IpAddr>, Duration),
    /// Messages made of the right answer, one after the other.
    Changed(Vec<IpAddr>, fn(&Message) -> Vec<Vec<u8>>),
}

/// The server, which ends with the process.
#[derive(Clone)]
pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    says: Arc<Mutex<BTreeMap<(String, RecordType), Says>>>,
    asked: Arc<AtomicUsize>,
}

impl DnsServer {
    /// Nothing exists at first.
    pub(crate) fn start() -> Self {
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let address = tcp.local_addr().unwrap();
        let server = Self { address, says: Arc::default(), asked: Arc::default() };
        let (of_udp, of_tcp) = (server.clone(), server.clone());
        std::thread::spawn(move || of_udp.serve_udp(&udp));
        std::thread::spawn(move || {
            for stream in tcp.incoming().map_while(Result::ok) {
                let server = of_tcp.clone();
                std::thread::spawn(move || drop(server.serve_tcp(stream)));
            }
        });
        server
    }

    /// What it says to questions about `name` from now on.
    pub(crate) fn set(&self, name: &str, kind: RecordType, says: Says) {
        self.says.lock().unwrap().insert((name.to_owned(), kind), says);
    }

    /// These are the addresses of `name` from now on, for `ttl` seconds at a time.
    pub(crate) fn set_addresses(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        for (kind, is_v4) in [(RecordType::A, true), (RecordType::AAAA, false)] {
            let of_kind = addresses.iter().filter(|ip| ip.is_ipv4() == is_v4);
            let records = of_kind.map(|ip| (name.to_owned(), ttl, address(*ip))).collect();
            self.set(name, kind, Says::Records(records));
        }
    }

    /// The name exists no more.
    pub(crate) fn remove(&self, name: &str) {
        self.says.lock().unwrap().retain(|(known, _), _| known != name);
    }

    /// Whatever kind `name` is asked for, this is said.
    pub(crate) fn set_all(&self, name: &str, says: &Says) {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::SRV] {
            self.set(name, kind, says.clone());
        }
    }

    /// How many questions there were.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut received = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut received) {
            let Ok(question) = Message::from_vec(&received[..length]) else { continue };
            for message in self.answers(&question, false) {
                socket.send_to(&message, peer).unwrap();
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a peer that is slow in fact")]
    fn serve_tcp(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut length = [0; 2];
        loop {
            stream.read_exact(&mut length)?;
            let mut received = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut received)?;
            let question = Message::from_vec(&received).unwrap();
            let pause = match self.says(&question) {
                Says::Dripping(_, pause) => Some(pause),
                _ => None,
            };
            for message in self.answers(&question, true) {
                let length = u16::try_from(message.len()).unwrap().to_be_bytes();
                let framed = [&length[..], &message].concat();
                match pause {
                    None => stream.write_all(&framed)?,
                    Some(pause) => {
                        for byte in framed {
                            stream.write_all(&[byte])?;
                            std::thread::sleep(pause);
                        }
                    }
                }
            }
        }
    }

    fn says(&self, question: &Message) -> Says {
        let query = &question.queries[0];
        let name = query.name().to_ascii().to_ascii_lowercase();
        let name = name.trim_end_matches('.').to_owned();
        let says = self.says.lock().unwrap();
        let known = says.keys().any(|(known, _)| *known == name);
        match says.get(&(name, query.query_type())) {
            Some(says) => says.clone(),
            None if known => Says::Records(Vec::new()),
            None => Says::Code(ResponseCode::NXDomain),
        }
    }

    fn answers(&self, question: &Message, is_tcp: bool) -> Vec<Vec<u8>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let query = &question.queries[0];
        let name = query.name().to_ascii();
        let mut answer = answer_to(question);
        let add = |answer: &mut Message, addresses: &[IpAddr]| {
            let is_v4 = query.query_type() == RecordType::A;
            for ip in addresses.iter().filter(|ip| ip.is_ipv4() == is_v4) {
                answer.add_answer(record(&name, 60, address(*ip)));
            }
        };
        match self.says(question) {
            Says::Silence => return Vec::new(),
            Says::Code(code) => {
                answer.metadata.response_code = code;
                if code == ResponseCode::NXDomain {
                    answer.add_authority(record("test", 60, soa(1)));
                }
            }
            Says::Records(records) => {
                for (name, ttl, data) in &records {
                    answer.add_answer(record(name, *ttl, data.clone()));
                }
                if records.is_empty() {
                    answer.add_authority(record("test", 60, soa(1)));
                }
            }
            Says::TruncatedUnlessTcp(_) | Says::Dripping(..) if !is_tcp => {
                answer.metadata.truncation = true;
            }
            Says::TruncatedUnlessTcp(addresses) | Says::Dripping(addresses, _) => {
                add(&mut answer, &addresses);
            }
            Says::Changed(addresses, change) => {
                add(&mut answer, &addresses);
                return change(&answer);
            }
        }
        let mut bytes = answer.to_vec().unwrap();
        if !is_tcp && bytes.len() > DATAGRAM_BYTES_MAX {
            answer.metadata.truncation = true;
            bytes = answer.to_vec().unwrap();
            bytes.truncate(DATAGRAM_BYTES_MAX);
        }
        vec![bytes]
    }
}

/// An answer without records.
pub(crate) fn answer_to(question: &Message) -> Message {
    let mut answer =
        Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
    answer.metadata.recursion_available = true;
    answer.add_query(question.queries[0].clone());
    answer
}

pub(crate) fn name(text: &str) -> Name {
    let mut name = Name::from_str(text).unwrap();
    name.set_fqdn(true);
    name
}

pub(crate) fn record(owner: &str, ttl: u32, data: RData) -> Record {
    Record::from_rdata(name(owner), ttl, data)
}

pub(crate) fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

#[allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each of the tests that share it uses a part"
)]
pub(crate) fn alias(target: &str) -> RData {
    RData::CNAME(CNAME(name(target)))
}

pub(crate) fn service(priority: u16, weight: u16, port: u16, target: &str) -> RData {
    RData::SRV(SRV::new(priority, weight, port, name(target)))
}

fn soa(minimum: u32) -> RData {
    RData::SOA(SOA::new(name("ns.test"), name("admin.test"), 1, 60, 60, 60, minimum))
}
