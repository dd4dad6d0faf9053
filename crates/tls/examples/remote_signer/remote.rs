//! A signer that has the keys, behind a Unix socket, and what asks it.
//!
//! What is asked and answered is framed alike: the token, a number (which kind of signature, or
//! whether it was made), and octets behind their length. A question begins with the fingerprint of
//! the key.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::SigningKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tls::signing::{KeyOperations, SignError, SignJob, Signature, Signed, Tally};

/// Nanoseconds within which it has to answer.
pub(crate) const TIMEOUT_NANOS: u64 = 1_000_000_000;

/// Questions without an answer.
const ASKED_MAX: usize = 64;

const FINGERPRINT_LEN: usize = 32;
const HEADER_LEN: usize = 8 + 2 + 2;

/// The side that asks.
pub(crate) struct Remote {
    socket: UnixStream,
    unread: Vec<u8>,
    /// Deadlines by token.
    asked: BTreeMap<u64, u64>,
    done: VecDeque<Signed>,
    tally: Tally,
}

impl Remote {
    /// Starts a signer with these keys, by their fingerprints.
    pub(crate) fn start(keys: Vec<([u8; 32], String)>) -> Self {
        let (socket, there) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        std::thread::spawn(move || serve(there, &keys));
        Self::behind(socket)
    }

    /// A client of the signer behind a non-blocking socket.
    pub(crate) fn behind(socket: UnixStream) -> Self {
        Self {
            socket,
            unread: Vec::new(),
            asked: BTreeMap::new(),
            done: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Sleeps until something comes: what a loop does by watching the socket.
    pub(crate) fn wait(&mut self) {
        self.socket.set_nonblocking(false).unwrap();
        self.read();
        self.socket.set_nonblocking(true).unwrap();
    }

    /// Reads once.
    fn read(&mut self) {
        let mut piece = [0; 4096];
        match self.socket.read(&mut piece) {
            Ok(n) => self.unread.extend_from_slice(&piece[..n]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

impl KeyOperations for Remote {
    fn submit(&mut self, token: u64, job: SignJob, now_nanos: u64) {
        let question = frame(&job.key.fingerprint(), token, job.scheme.code(), &job.message);
        let result = match self.socket.write(&question) {
            Ok(n) if n == question.len() && self.asked.len() < ASKED_MAX => {
                self.asked.insert(token, now_nanos + TIMEOUT_NANOS);
                return;
            }
            Ok(_) | Err(_) => Err(SignError::Refused),
        };
        self.done.push_back(Signed { token, result });
    }

    fn poll(&mut self, now_nanos: u64) -> Option<Signed> {
        self.read();
        while let Some((token, made, octets)) = take_frame(&mut self.unread) {
            // The job may have been cancelled.
            if self.asked.remove(&token).is_some() {
                let signature = Signature::from_elsewhere(octets);
                let result = if made == 1 { Ok(signature) } else { Err(SignError::Failed) };
                self.done.push_back(Signed { token, result });
            }
        }
        while let Some((&token, _)) = self.asked.iter().find(|(_, at)| **at <= now_nanos) {
            self.asked.remove(&token);
            self.done.push_back(Signed { token, result: Err(SignError::TimedOut) });
        }
        let signed = self.done.pop_front()?;
        self.tally.count(&signed.result);
        Some(signed)
    }

    fn flush(&mut self, _now_nanos: u64) {}

    fn next_deadline(&self) -> Option<u64> {
        self.asked.values().min().copied()
    }

    fn cancel(&mut self, token: u64) {
        self.asked.remove(&token);
    }

    fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}

fn frame(prefix: &[u8], token: u64, number: u16, octets: &[u8]) -> Vec<u8> {
    let len = u16::try_from(octets.len()).unwrap();
    [prefix, &token.to_be_bytes(), &number.to_be_bytes(), &len.to_be_bytes(), octets].concat()
}

fn take_frame(bytes: &mut Vec<u8>) -> Option<(u64, u16, Vec<u8>)> {
    let (token, rest) = bytes.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk::<2>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let octets = rest.get(..u16::from_be_bytes(*len).into())?.to_vec();
    let taken = (u64::from_be_bytes(*token), u16::from_be_bytes(*number), octets);
    bytes.drain(..HEADER_LEN + taken.2.len());
    Some(taken)
}

/// The side that has the keys, until its client closes the socket.
fn serve(mut socket: UnixStream, keys: &[([u8; 32], String)]) {
    let read = |(fingerprint, pem): &([u8; 32], String)| {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        (*fingerprint, any_supported_type(&der).unwrap())
    };
    let keys: BTreeMap<[u8; 32], Arc<dyn SigningKey>> = keys.iter().map(read).collect();
    let mut fingerprint = [0; FINGERPRINT_LEN];
    while socket.read_exact(&mut fingerprint).is_ok() {
        let mut question = vec![0; HEADER_LEN];
        socket.read_exact(&mut question).unwrap();
        let len = usize::from(u16::from_be_bytes([question[10], question[11]]));
        question.resize(HEADER_LEN + len, 0);
        socket.read_exact(&mut question[HEADER_LEN..]).unwrap();
        let (token, scheme, message) = take_frame(&mut question).unwrap();
        let signer = keys.get(&fingerprint).and_then(|key| key.choose_scheme(&[scheme.into()]));
        let answer = match signer.and_then(|signer| signer.sign(&message).ok()) {
            Some(signature) => frame(&[], token, 1, &signature),
            None => frame(&[], token, 0, &[]),
        };
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}
