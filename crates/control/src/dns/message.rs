//! Questions and answers of DNS as bytes (RFC 1035, section 4; RFC 6891 for larger datagrams).
//!
//! Nothing here trusts a server further than its answer goes: a message with another id or question is none
//! of ours, and of its records only those count to which aliases lead from the name that was asked for.

use std::collections::BTreeSet;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use super::failure::{Absence, Failure};

/// Bytes of a datagram that answers may have: what passes everywhere without fragments (DNS flag day 2020).
const DATAGRAM_BYTES_MAX: u16 = 1232;

/// Aliases from the name that is asked for to the one that has addresses.
pub(super) const ALIASES_MAX: usize = 16;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Absolute.
    pub(super) name: Name,
    pub(super) kind: RecordType,
}

/// What an answer comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// Records of the kind that was asked for, and for how many seconds they hold.
    Records(Vec<RData>, u32),
    /// The name is an alias of one that has to be asked for, and for how many seconds that holds.
    Alias(Name, u32),
    /// The name does not exist, or has none of these records; and for how many seconds that holds, if it is
    /// known.
    Nothing(Absence, Option<u32>),
    /// The answer did not fit.
    Truncated,
}

/// A message that answers something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotOurs;

impl Question {
    /// The message that asks it, under `id`.
    pub(super) fn write(&self, id: u16, has_edns: bool) -> Result<Vec<u8>, Failure> {
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(self.name.clone(), self.kind));
        if has_edns {
            let mut edns = Edns::new();
            edns.set_max_payload(DATAGRAM_BYTES_MAX);
            message.set_edns(edns);
        }
        message.to_vec().map_err(|_| Failure::Malformed)
    }

    /// What `bytes` say to it.
    pub(super) fn read(&self, id: u16, bytes: &[u8]) -> Result<Result<Reply, Failure>, NotOurs> {
        let has_id = bytes.first_chunk::<2>().is_some_and(|it| u16::from_be_bytes(*it) == id);
        if !has_id {
            return Err(NotOurs);
        }
        let Ok(message) = Message::from_vec(bytes) else {
            // Cut within a record, perhaps: what there is of it does not count (RFC 2181, section 9).
            let result = if is_cut(bytes) { Ok(Reply::Truncated) } else { Err(Failure::Malformed) };
            return Ok(result);
        };
        if !self.is_answered_by(&message) {
            return Err(NotOurs);
        }
        Ok(self.reply(&message))
    }

    fn is_answered_by(&self, message: &Message) -> bool {
        let [query] = message.queries.as_slice() else {
            // What a server says that could not read the question.
            let is_failure = message.metadata.response_code != ResponseCode::NoError;
            return message.queries.is_empty() && is_failure && is_response(message);
        };
        is_response(message)
            && query.query_class() == DNSClass::IN
            && query.query_type() == self.kind
            && *query.name() == self.name
    }

    fn reply(&self, message: &Message) -> Result<Reply, Failure> {
        let header = &message.metadata;
        match header.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => {}
            ResponseCode::ServFail => return Err(Failure::ServFail),
            ResponseCode::Refused => return Err(Failure::Refused),
            ResponseCode::FormErr | ResponseCode::NotImp => return Err(Failure::NotUnderstood),
            other => return Err(Failure::Code(other.into())),
        }
        if header.truncation {
            return Ok(Reply::Truncated);
        }
        let is_referral = header.response_code == ResponseCode::NoError
            && message.answers.is_empty()
            && !header.authoritative
            && !header.recursion_available;
        if is_referral {
            return Err(Failure::NoRecursion);
        }
        self.follow(message)
    }

    /// Goes from the name along the aliases in the answer.
    fn follow(&self, message: &Message) -> Result<Reply, Failure> {
        let mut name = &self.name;
        let mut ttl = u32::MAX;
        let mut seen = BTreeSet::new();
        loop {
            let here =
                || message.answers.iter().filter(|it| it.name == *name && is_of_internet(it));
            let wanted: Vec<_> = here().filter(|it| it.record_type() == self.kind).collect();
            if !wanted.is_empty() {
                let ttl = wanted.iter().map(|record| ttl_of(record)).fold(ttl, u32::min);
                return Ok(Reply::Records(
                    wanted.into_iter().map(|it| it.data.clone()).collect(),
                    ttl,
                ));
            }
            let alias = here().find_map(|record| match &record.data {
                RData::CNAME(target) => Some((&target.0, ttl_of(record))),
                _ => None,
            });
            let Some((target, holds)) = alias else { break };
            if !seen.insert(name) || seen.len() > ALIASES_MAX {
                return Err(Failure::AliasLoop);
            }
            (name, ttl) = (target, ttl.min(holds));
        }
        let is_missing = message.metadata.response_code == ResponseCode::NXDomain;
        let soa = message.authorities.iter().find_map(|record| match &record.data {
            // RFC 2308, section 5.
            RData::SOA(soa) => Some(ttl_of(record).min(soa.minimum)),
            _ => None,
        });
        // Records of other names alone do not say that this one has none.
        let is_beside = seen.is_empty()
            && !message.answers.is_empty()
            && !message.answers.iter().any(|it| it.name == self.name && is_of_internet(it));
        if is_beside && !is_missing && soa.is_none() {
            return Err(Failure::Malformed);
        }
        if seen.is_empty() || is_missing || soa.is_some() {
            let absence = if is_missing { Absence::NoName } else { Absence::NoRecords };
            return Ok(Reply::Nothing(absence, soa.map(|soa| ttl.min(soa))));
        }
        Ok(Reply::Alias(name.clone(), ttl))
    }
}

/// Whether the header is that of a response that did not fit (RFC 1035, section 4.1.1: QR and TC).
fn is_cut(bytes: &[u8]) -> bool {
    const HEADER_LEN: usize = 12;
    let flags = bytes.first_chunk::<HEADER_LEN>().map(|header| header[2]);
    flags.is_some_and(|flags| flags & 0x80 != 0 && flags & 0x02 != 0)
}

fn is_response(message: &Message) -> bool {
    message.metadata.message_type == MessageType::Response
        && message.metadata.op_code == OpCode::Query
}

fn is_of_internet(record: &hickory_proto::rr::Record) -> bool {
    record.dns_class == DNSClass::IN
}

/// For how many seconds a record holds. A time to live whose first bit is set is 0 (RFC 2181, section 8).
fn ttl_of(record: &hickory_proto::rr::Record) -> u32 {
    if i32::try_from(record.ttl).is_ok() { record.ttl } else { 0 }
}

/// The data of an SRV record.
pub(super) const fn srv(data: &RData) -> Option<&SRV> {
    match data {
        RData::SRV(srv) => Some(srv),
        _ => None,
    }
}

/// How many records an answer has that count, for the fuzzer: the first byte chooses what was asked for, and the
/// id is that of the message. None, if it is no answer, or a failure.
#[must_use]
pub fn records_of_dns_answer(bytes: &[u8]) -> Option<usize> {
    let (kind, message) = bytes.split_first()?;
    let kinds = [RecordType::A, RecordType::AAAA, RecordType::SRV];
    let kind = *kinds.get(usize::from(*kind) % kinds.len())?;
    let question = Question { name: Name::from_ascii("api.test.").ok()?, kind };
    let id = u16::from_be_bytes(*message.first_chunk()?);
    match question.read(id, message).ok()?.ok()? {
        Reply::Records(records, _) => Some(records.len()),
        Reply::Alias(..) | Reply::Nothing(..) | Reply::Truncated => Some(0),
    }
}
