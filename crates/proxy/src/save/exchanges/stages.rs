//! How far an exchange is, with the request that it holds: written down, and gone on with.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connection::codec::streams::Tail;
use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::exchange::stage::{Stage, Suspended};
use crate::filter::Question;
use crate::filter::filter_chain::FilterStep;
use crate::keys::{ExchangeKey, StreamKey};
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::save::before;
use crate::save::codecs::{
    CodecSettings, SavedCodec, SavedOutbox, restore_codec, restore_outbox, save_codec, save_outbox,
};
use crate::tools::buffers::Buffers;
use crate::tools::time::Time;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::save) enum SavedStage {
    Suspended {
        step: FilterStep,
        topic: String,
        payload: Vec<u8>,
        head: Vec<u8>,
    },
    Gathering {
        filter: usize,
        head: Vec<u8>,
    },
    Buffering(SavedRequest),
    Waiting(SavedRequest),
    /// How long it has paused.
    Pausing(SavedRequest, Duration),
    Attempting,
    Responding,
    Finishing,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::save) struct SavedRequest {
    outbox: SavedOutbox,
    form: SavedForm,
}

#[derive(Debug, Serialize, Deserialize)]
enum SavedForm {
    Alone { codec: SavedCodec, is_personal: bool },
    Stream { head: Vec<u8>, tail: Tail },
}

impl Cx {
    pub(super) fn write_stage(&mut self, stage: Stage, now: Time) -> SavedStage {
        match stage {
            Stage::Suspended(Suspended { step, question, head }) => {
                let saved = SavedStage::Suspended {
                    step,
                    topic: question.topic.to_string(),
                    payload: question.payload.to_vec(),
                    head: head.filled().to_vec(),
                };
                self.buffers.give_back(head);
                saved
            }
            Stage::Gathering { filter, head } => {
                let saved = SavedStage::Gathering { filter, head: head.filled().to_vec() };
                self.buffers.give_back(head);
                saved
            }
            Stage::Buffering { request } => {
                SavedStage::Buffering(save_request(request, &mut self.buffers, now))
            }
            // One that retries is on an agenda only, which is empty between two events.
            Stage::Retrying { request } | Stage::Waiting { request } => {
                SavedStage::Waiting(save_request(request, &mut self.buffers, now))
            }
            Stage::Pausing { request, since } => {
                let saved = save_request(request, &mut self.buffers, now);
                SavedStage::Pausing(saved, now - since)
            }
            Stage::Attempting { .. } => SavedStage::Attempting,
            Stage::Responding { .. } => SavedStage::Responding,
            Stage::Finishing => SavedStage::Finishing,
        }
    }
}

impl Proxy {
    pub(super) fn restore_stage(
        &mut self,
        key: ExchangeKey,
        saved: SavedStage,
        upstream: Option<StreamKey>,
        now: Time,
    ) {
        let Self { exchanges, cx, .. } = self;
        let Some(exchange) = exchanges.get_mut(key) else { return };
        match (saved, upstream) {
            (SavedStage::Attempting, Some(upstream)) => exchange.begin_attempt(upstream),
            (SavedStage::Responding, Some(upstream)) => exchange.begin_responding(upstream),
            (SavedStage::Suspended { step, topic, payload, head }, _) => {
                let head = cx.buffers.lease_with(&head);
                let question = Question { topic: topic.into(), payload: payload.into() };
                cx.ops.push_back(Op::Ask { exchange: key, question: question.clone() });
                exchange.begin_suspension(Suspended { step, question, head });
            }
            (SavedStage::Gathering { filter, head }, _) => {
                exchange.begin_gathering(filter, cx.buffers.lease_with(&head));
            }
            (SavedStage::Buffering(saved), _) => {
                let request = restore_as_ruled(exchange, saved, &mut cx.buffers, now);
                exchange.begin_buffering(request);
            }
            (SavedStage::Waiting(saved), _) => {
                let request = restore_as_ruled(exchange, saved, &mut cx.buffers, now);
                self.ask(key, request, None, now);
            }
            (SavedStage::Pausing(saved, length), _) => {
                let request = restore_as_ruled(exchange, saved, &mut cx.buffers, now);
                let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
                exchange.begin_pause(request, before(length, now));
            }
            (SavedStage::Finishing | SavedStage::Attempting | SavedStage::Responding, _) => {
                exchange.begin_finishing();
            }
        }
    }
}

fn save_request(mut request: QueuedRequest, buffers: &mut Buffers, now: Time) -> SavedRequest {
    let outbox = save_outbox(&mut request.outbox, buffers);
    let form = match request.form {
        Form::Alone { codec, is_personal } => {
            SavedForm::Alone { codec: save_codec(codec, buffers, now), is_personal }
        }
        Form::Stream { head, tail } => {
            let saved = SavedForm::Stream { head: head.filled().to_vec(), tail };
            buffers.give_back(head);
            saved
        }
    };
    SavedRequest { outbox, form }
}

/// A request of an exchange. What was kept of it because its rule had a `retry` is not, if it has none now.
fn restore_as_ruled(
    exchange: &Exchange,
    saved: SavedRequest,
    buffers: &mut Buffers,
    now: Time,
) -> QueuedRequest {
    let mut request = restore_request(saved, buffers, now);
    if !exchange.progress.has_retries {
        request.outbox.keep_less(buffers);
    }
    request
}

fn restore_request(saved: SavedRequest, buffers: &mut Buffers, now: Time) -> QueuedRequest {
    let outbox = restore_outbox(&saved.outbox, buffers);
    let form = match saved.form {
        SavedForm::Alone { codec, is_personal } => {
            // Of a connection to come, which is none of HTTP/2.
            let codec = restore_codec(codec, &CodecSettings::default(), buffers, now);
            Form::Alone { codec, is_personal }
        }
        SavedForm::Stream { head, tail } => Form::Stream { head: buffers.lease_with(&head), tail },
    };
    QueuedRequest { outbox, form }
}
