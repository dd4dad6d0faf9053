//! Codecs and outboxes as they are written down, and what makes one of the other.
//!
//! A shared connection (HTTP/2, RPC) is its framing and a list of streams; which exchange has which stream is written
//! with the exchanges.

use std::time::Duration;

use config::protocols::Protocols;
use serde::{Deserialize, Serialize};
use wire::h2::{Http2, Limits};
use wire::rpc::{Asked, RpcName};

use super::cause_named;
use crate::connection::codec::bytes::Bytes;
use crate::connection::codec::http1::Http1;
use crate::connection::codec::http2::Http2Frames;
use crate::connection::codec::multiplex::{Frames, Multiplex};
use crate::connection::codec::rpc::{RpcFrames, RpcLimits, RpcState};
use crate::connection::codec::streams::{Stream, StreamInbox, Tail};
use crate::connection::codec::watches::Watches;
use crate::connection::codec::{Codec, Opening};
use crate::keys::{ExchangeKey, Slot};
use crate::tools::buffers::{BUFFER_BYTES_MAX, Buffers};
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SavedCodec {
    Opening(Opening),
    Http1(Http1),
    Http2(Box<SavedShared<Http2>>),
    Rpc(Box<SavedRpc>),
    Bytes(Bytes),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRpc {
    /// The name of the protocol.
    pub(super) protocol: String,
    pub(super) shared: SavedShared<RpcState>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedShared<C> {
    pub(super) codec: C,
    pub(super) streams: Vec<SavedStream>,
    watches: Vec<Option<Duration>>,
    failure: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedStream {
    pub(super) id: u32,
    outbox: SavedOutbox,
    tail: Tail,
    is_ended: bool,
    inbox: Option<(Vec<u8>, Tail)>,
    owed: u32,
    head: Option<Vec<u8>>,
    asked: Asked,
    form: u64,
    heard: u32,
    is_one_way: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "UncheckedOutbox")]
pub(super) struct SavedOutbox {
    /// Bytes that were sent and are kept, then those that wait.
    bytes: Vec<u8>,
    kept: u32,
    is_keeping: bool,
    keeps_all: bool,
    is_untouched: bool,
}

/// A [`SavedOutbox`] as it is read.
#[derive(Deserialize)]
pub(super) struct UncheckedOutbox {
    bytes: Vec<u8>,
    kept: u32,
    is_keeping: bool,
    keeps_all: bool,
    is_untouched: bool,
}

impl TryFrom<UncheckedOutbox> for SavedOutbox {
    type Error = &'static str;

    fn try_from(unchecked: UncheckedOutbox) -> Result<Self, Self::Error> {
        let UncheckedOutbox { bytes, kept, is_keeping, keeps_all, is_untouched } = unchecked;
        // What is kept is part of what is there, and in the first buffer unless all is kept.
        let kept_max = match (is_keeping, keeps_all) {
            (true, true) => bytes.len(),
            (true, false) => bytes.len().min(BUFFER_BYTES_MAX),
            (false, _) => 0,
        };
        if kept as usize > kept_max {
            return Err("more is kept than there is");
        }
        Ok(Self { bytes, kept, is_keeping, keeps_all, is_untouched })
    }
}

impl<C> SavedShared<C> {
    pub(super) fn carries(&self, exchanges: usize) -> bool {
        let ids = self.streams.iter().map(|stream| stream.id);
        ids.is_sorted_by(|one, other| one < other) && self.streams.len() == exchanges
    }

    pub(super) fn has_slot(&self, slot: Slot) -> bool {
        self.streams.iter().any(|stream| Slot::of_stream(stream.id) == slot)
    }
}

/// What restored codecs need of the configuration.
#[derive(Default)]
pub(super) struct CodecSettings {
    pub(super) http2: Limits,
    pub(super) rpc: RpcLimits,
    pub(super) protocols: Protocols,
}

pub(super) fn restore_codec(
    saved: SavedCodec,
    settings: &CodecSettings,
    buffers: &mut Buffers,
    now: Time,
) -> Codec {
    match saved {
        SavedCodec::Opening(opening) => Codec::Opening(opening),
        SavedCodec::Http1(codec) => Codec::Http1(codec),
        SavedCodec::Http2(saved) => {
            let (codec, rest) = saved.split();
            let frames = Frames::Http2(Http2Frames::new(codec, settings.http2, now));
            Codec::Shared(Box::new(restore_multiplex(frames, rest, buffers, now)))
        }
        SavedCodec::Rpc(saved) => {
            let SavedRpc { protocol, shared } = *saved;
            let (state, rest) = shared.split();
            let name = RpcName::new(&protocol);
            let protocol = name.and_then(|name| settings.protocols.find(name));
            // Groups with other protocols are refused; of what is damaged nothing else is expected.
            let Some(protocol) = protocol else { return Codec::Http1(Http1::new()) };
            let mut frames = RpcFrames::restored(protocol, settings.rpc, state);
            // What was heard before is not known here.
            frames.on_sign_of_life(now);
            let frames = Frames::Rpc(frames);
            Codec::Shared(Box::new(restore_multiplex(frames, rest, buffers, now)))
        }
        SavedCodec::Bytes(codec) => Codec::Bytes(codec),
    }
}

impl<C> SavedShared<C> {
    /// The codec, and all else.
    fn split(self) -> (C, SavedShared<()>) {
        let Self { codec, streams, watches, failure } = self;
        (codec, SavedShared { codec: (), streams, watches, failure })
    }
}

pub(super) fn save_codec(codec: Codec, buffers: &mut Buffers, now: Time) -> SavedCodec {
    match codec {
        Codec::Opening(opening) => SavedCodec::Opening(opening),
        Codec::Http1(codec) => SavedCodec::Http1(codec),
        Codec::Shared(multiplex) => save_multiplex(*multiplex, buffers, now),
        Codec::Bytes(codec) => SavedCodec::Bytes(codec),
    }
}

pub(super) fn save_multiplex(
    mut multiplex: Multiplex,
    buffers: &mut Buffers,
    now: Time,
) -> SavedCodec {
    let mut save = |stream: &mut Stream| {
        let inbox = stream.inbox.take().map(|inbox| {
            let saved = (inbox.body.filled().to_vec(), inbox.tail);
            buffers.give_back(inbox.body);
            saved
        });
        let head = stream.head.take().map(|head| {
            let saved = head.filled().to_vec();
            buffers.give_back(head);
            saved
        });
        SavedStream {
            id: stream.id,
            outbox: save_outbox(&mut stream.outbox, buffers),
            tail: std::mem::take(&mut stream.tail),
            is_ended: stream.is_ended,
            inbox,
            owed: stream.owed,
            head,
            asked: stream.asked,
            form: stream.form,
            heard: stream.heard,
            is_one_way: stream.is_one_way,
        }
    };
    let streams = multiplex.streams.iter_mut().map(&mut save).collect();
    let watches = multiplex.watches.remaining(now);
    let failure = multiplex.failure.map(|cause| cause.as_str().to_owned());
    match multiplex.frames {
        Frames::Http2(Http2Frames { codec, .. }) => {
            SavedCodec::Http2(Box::new(SavedShared { codec, streams, watches, failure }))
        }
        Frames::Rpc(frames) => {
            let protocol = frames.protocol.name().to_owned();
            let codec = frames.into_state();
            let shared = SavedShared { codec, streams, watches, failure };
            SavedCodec::Rpc(Box::new(SavedRpc { protocol, shared }))
        }
    }
}

pub(super) fn restore_multiplex(
    frames: Frames,
    saved: SavedShared<()>,
    buffers: &mut Buffers,
    now: Time,
) -> Multiplex {
    let unknown = ExchangeKey::from_bits(u64::MAX >> 1);
    let mut multiplex = Multiplex::new(frames);
    for saved in saved.streams {
        let mut stream = Stream::new(saved.id, unknown);
        stream.outbox = restore_outbox(&saved.outbox, buffers);
        (stream.tail, stream.is_ended) = (saved.tail, saved.is_ended);
        stream.inbox = saved
            .inbox
            .map(|(body, tail)| Box::new(StreamInbox { body: buffers.lease_with(&body), tail }));
        stream.owed = saved.owed;
        stream.head = saved.head.map(|head| buffers.lease_with(&head));
        (stream.asked, stream.is_one_way) = (saved.asked, saved.is_one_way);
        (stream.form, stream.heard) = (saved.form, saved.heard);
        multiplex.streams.insert(stream);
    }
    multiplex.watches = Watches::restored(&saved.watches, now);
    multiplex.failure = saved.failure.and_then(|word| cause_named(&word));
    multiplex
}

pub(super) fn save_outbox(outbox: &mut Outbox, buffers: &mut Buffers) -> SavedOutbox {
    let (bytes, kept) = (outbox.all_to_vec(), outbox.kept());
    let (is_keeping, keeps_all) = (outbox.is_keeping(), outbox.keeps_all());
    let is_untouched = outbox.is_untouched();
    outbox.clear(buffers);
    SavedOutbox { bytes, kept, is_keeping, keeps_all, is_untouched }
}

pub(super) fn restore_outbox(saved: &SavedOutbox, buffers: &mut Buffers) -> Outbox {
    let mut outbox = Outbox::new();
    if saved.is_keeping {
        outbox.keep();
        if saved.keeps_all {
            outbox.keep_all();
        }
    }
    outbox.push(&saved.bytes, buffers);
    if saved.kept > 0 {
        outbox.on_sent(saved.kept as usize, buffers);
    }
    outbox.restore_untouched(saved.is_untouched);
    outbox
}
