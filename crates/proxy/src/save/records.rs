//! What the access log and retries remember of an exchange, as it is written down.
//!
//! Stamps are kept as time since they were set. Words of causes are text: their numbers differ between versions.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use telemetry::FAILED_ATTEMPTS_BYTES_MAX;
use wire::buffer::Buffer;

use super::{before, cause_named, since};
use crate::cx::Cx;
use crate::exchange::progress::Progress;
use crate::exchange::record::{ExchangeRecord, Stamps, Waits, Words};
use crate::tools::detail::Detail;
use crate::tools::time::Time;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRecord {
    /// Time since each stamp, none for those that are not set.
    stamps: [Option<u64>; Stamps::COUNT],
    waits: Waits,
    status: u16,
    is_reply: bool,
    is_tunnel: bool,
    attempts: u8,
    interim_responses: u8,
    request_bytes: u64,
    response_bytes: u64,
    cause: Option<String>,
    cause_detail: Option<Vec<u8>>,
    failed_attempts: Vec<u8>,
    pub(super) client: Option<IpAddr>,
    pub(super) words: Vec<u8>,
    pub(super) lengths: [u16; 5],
    pub(super) captures: Vec<u8>,
}

pub(super) fn restore_record(
    saved: &SavedRecord,
    words: Words,
    captures: Option<Buffer>,
    now: Time,
) -> ExchangeRecord {
    let mut stamps = Stamps::NONE;
    for (stamp, age) in stamps.all_mut().into_iter().zip(saved.stamps) {
        *stamp = age.map_or(Time::NEVER, |age| before(age, now));
    }
    stamps.waits = saved.waits;
    let cause = saved.cause.as_ref();
    ExchangeRecord {
        stamps,
        status: saved.status,
        is_reply: saved.is_reply,
        response_bytes: saved.response_bytes,
        cause: cause.and_then(|word| cause_named(word)),
        cause_detail: saved.cause_detail.clone().map(Detail::from_bytes),
        failed_attempts: restore_failed_attempts(&saved.failed_attempts),
        client: saved.client,
        words,
        captures,
    }
}

pub(super) fn restore_failed_attempts(saved: &[u8]) -> Option<Box<[u8]>> {
    let kept = saved.get(..FAILED_ATTEMPTS_BYTES_MAX).unwrap_or(saved);
    (!kept.is_empty()).then(|| kept.into())
}

pub(super) fn restore_progress(saved: &SavedRecord) -> Progress {
    Progress {
        is_tunnel: saved.is_tunnel,
        has_response: saved.status != 0,
        is_response_complete: false,
        // By what its rule says now.
        has_retries: false,
        is_retry: false,
        attempts: saved.attempts,
        interim_responses: saved.interim_responses,
        request_bytes: saved.request_bytes,
    }
}

impl Cx {
    pub(super) fn save_record(
        &mut self,
        mut record: ExchangeRecord,
        progress: Progress,
        now: Time,
    ) -> SavedRecord {
        let text = record.words.text.take();
        let captures = record.captures.take();
        let saved = SavedRecord {
            stamps: record.stamps.all_mut().map(|stamp| since(*stamp, now)),
            waits: record.stamps.waits,
            status: record.status,
            is_reply: record.is_reply,
            is_tunnel: progress.is_tunnel,
            attempts: progress.attempts,
            interim_responses: progress.interim_responses,
            request_bytes: progress.request_bytes,
            response_bytes: record.response_bytes,
            cause: record.cause.map(|cause| cause.as_str().to_owned()),
            cause_detail: record.cause_detail.map(|detail| detail.as_bytes().to_vec()),
            failed_attempts: record.failed_attempts.map_or_else(Vec::new, <[u8]>::into_vec),
            client: record.client,
            words: text.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
            lengths: record.words.lengths,
            captures: captures.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
        };
        for text in [text, captures].into_iter().flatten() {
            self.buffers.give_back(text);
        }
        saved
    }
}
