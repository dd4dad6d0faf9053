//! Asking DNS servers: one question after the other, over UDP and, where an answer does not fit, TCP.
//!
//! Each question has a socket of its own, connected, so that the kernel lets only the server's datagrams in,
//! and with a random port beside the random id. Which server is asked first is `failover`'s to say.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::failover::Failover;
use super::failure::{Absence, Failure};
use super::message::{ALIASES_MAX, NotOurs, Question, Reply};

/// Bytes of a datagram that are read: more than is asked for, as servers may send.
const DATAGRAM_BYTES_MAX: usize = 4096;

/// Servers to ask, and how.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    /// In this order, as far as they answer.
    pub(super) addresses: Vec<SocketAddr>,
    /// How long one may take.
    pub(super) timeout: Duration,
    /// How often each is asked.
    pub(super) attempts: u32,
    /// Whether all is asked over TCP.
    pub(super) is_tcp: bool,
    /// Which of them do not answer, for all questions to the same list.
    pub(super) failover: Arc<Mutex<Failover>>,
}

/// What a name has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Records {
    /// None, if the name does not exist or has no such records.
    pub(super) data: Vec<RData>,
    /// Why there are none, if that was said.
    pub(super) absence: Option<Absence>,
    /// For how many seconds that holds, if it is known.
    pub(super) ttl: Option<u32>,
}

impl Servers {
    /// The records of a name, along its aliases.
    pub(super) async fn look_up(&self, name: &Name, kind: RecordType) -> Result<Records, Failure> {
        let mut question = Question { name: name.clone(), kind };
        let mut seen: Vec<Name> = Vec::new();
        let mut ttl = u32::MAX;
        loop {
            match self.ask(&question).await? {
                Reply::Records(data, holds) => {
                    return Ok(Records { data, absence: None, ttl: Some(ttl.min(holds)) });
                }
                Reply::Nothing(absence, holds) => {
                    let ttl = holds.map(|it| ttl.min(it));
                    return Ok(Records { data: Vec::new(), absence: Some(absence), ttl });
                }
                Reply::Alias(target, holds) => {
                    ttl = ttl.min(holds);
                    seen.push(std::mem::replace(&mut question.name, target));
                    if seen.contains(&question.name) || seen.len() > ALIASES_MAX {
                        return Err(Failure::AliasLoop);
                    }
                }
                Reply::Truncated => return Err(Failure::Malformed),
            }
        }
    }

    /// Asks until a server answers. What a server said counts for more than another's silence.
    async fn ask(&self, question: &Question) -> Result<Reply, Failure> {
        let mut failure = Failure::NoServer("there is no DNS server to ask".to_owned());
        for _ in 0..self.attempts {
            for server in self.order(question) {
                match self.ask_server(server, question).await {
                    Ok(reply) => return Ok(reply),
                    Err(next) if next.is_said() || !failure.is_said() => failure = next,
                    Err(_) => {}
                }
            }
        }
        Err(failure)
    }

    /// The order in which to ask now. Servers that did not answer and may be back are asked the same beside, by a task of its own
    /// for each of them, which takes twice the timeout at most.
    fn order(&self, question: &Question) -> Vec<SocketAddr> {
        let (order, due) = {
            let mut failover = self.failover.lock().unwrap_or_else(PoisonError::into_inner);
            let order = failover.order(&self.addresses);
            let due = failover.take_due(&order, self.timeout.saturating_mul(2), Instant::now());
            (order, due)
        };
        for server in due {
            let (this, question) = (self.clone(), question.clone());
            // Whatever it says is noted there.
            tokio::spawn(async move { drop(this.exchange(server, &question, true).await) });
        }
        order
    }

    /// Takes note of what a server that was asked at `asked` said, or that it did not.
    fn note(&self, server: SocketAddr, asked: Instant, result: &Result<Reply, Failure>) {
        let mut failover = self.failover.lock().unwrap_or_else(PoisonError::into_inner);
        // With a single one there is no order, and its names report that it does not answer.
        let has_others = self.addresses.len() > 1;
        match result {
            Err(failure @ (Failure::Timeout | Failure::Unreachable(_))) => {
                if failover.on_silence(server, asked, Instant::now()) && has_others {
                    tracing::warn!(%server, reason = %failure, "DNS server does not answer: it is asked last until it does");
                }
            }
            // That says nothing of the server.
            Err(Failure::NoSocket(_)) => {}
            Ok(_) | Err(_) => {
                if failover.on_answer(server, Instant::now()) && has_others {
                    tracing::info!(%server, "DNS server answers again");
                }
            }
        }
    }

    async fn ask_server(&self, server: SocketAddr, question: &Question) -> Result<Reply, Failure> {
        match self.exchange(server, question, true).await {
            // Servers of before EDNS.
            Err(Failure::NotUnderstood) => self.exchange(server, question, false).await,
            result => result,
        }
    }

    async fn exchange(
        &self,
        server: SocketAddr,
        question: &Question,
        has_edns: bool,
    ) -> Result<Reply, Failure> {
        let asked = Instant::now();
        if !self.is_tcp {
            let result = within(self.timeout, over_udp(server, question, has_edns)).await;
            self.note(server, asked, &result);
            match result? {
                Reply::Truncated => {}
                reply => return Ok(reply),
            }
        }
        let result = within(self.timeout, over_tcp(server, question, has_edns)).await;
        self.note(server, asked, &result);
        result
    }
}

async fn within<T>(
    timeout: Duration,
    exchange: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout_at(Instant::now() + timeout, exchange).await.unwrap_or(Err(Failure::Timeout))
}

async fn over_udp(
    server: SocketAddr,
    question: &Question,
    has_edns: bool,
) -> Result<Reply, Failure> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let id = random_id();
    let message = question.write(id, has_edns)?;
    let socket = UdpSocket::bind(any).await.map_err(no_socket)?;
    socket.connect(server).await.map_err(unreachable)?;
    socket.send(&message).await.map_err(unreachable)?;
    let mut received = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let length = socket.recv(&mut received).await.map_err(unreachable)?;
        match question.read(id, received.get(..length).unwrap_or_default()) {
            // A guess: the answer may still come.
            Err(NotOurs) => {}
            Ok(reply) => return reply,
        }
    }
}

async fn over_tcp(
    server: SocketAddr,
    question: &Question,
    has_edns: bool,
) -> Result<Reply, Failure> {
    let id = random_id();
    let message = question.write(id, has_edns)?;
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.map_err(no_socket)?;
    let mut stream = socket.connect(server).await.map_err(unreachable)?;
    let length = u16::try_from(message.len()).map_err(|_| Failure::Malformed)?;
    let framed = [&length.to_be_bytes()[..], &message].concat();
    stream.write_all(&framed).await.map_err(unreachable)?;
    let length = stream.read_u16().await.map_err(unreachable)?;
    let mut received = vec![0; usize::from(length)];
    stream.read_exact(&mut received).await.map_err(unreachable)?;
    question.read(id, &received).unwrap_or(Err(Failure::Malformed))
}

#[expect(clippy::needless_pass_by_value, reason = "the form of what `map_err` takes")]
fn unreachable(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::UnexpectedEof => Failure::Malformed,
        _ => Failure::Unreachable(error.to_string()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the form of what `map_err` takes")]
fn no_socket(error: io::Error) -> Failure {
    Failure::NoSocket(error.to_string())
}

/// An id that cannot be guessed.
fn random_id() -> u16 {
    hickory_proto::op::Message::query().metadata.id
}
