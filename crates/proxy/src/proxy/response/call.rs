//! What a gRPC call adds to its exchange, both ways.

use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::grpc::web;
use wire::h1::field_values;

use crate::exchange::calls::Call;
use crate::keys::ExchangeKey;
use crate::proxy::Proxy;

/// Bytes of a body that are translated at a time.
const PIECE_BYTES: usize = 16 << 10;

impl Proxy {
    /// A piece of a call's request body: counted, and given to `pass` as it goes upstream. An
    /// error is one of its encoding.
    pub(in crate::proxy) fn translate_request(
        &mut self,
        key: ExchangeKey,
        data: &[u8],
        mut pass: impl FnMut(&mut Self, &[u8]),
    ) -> Result<(), Cause> {
        let Some(call) = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut()) else {
            return Ok(());
        };
        if call.web.is_none() {
            call.asked.on_data(data);
            pass(self, data);
            return Ok(());
        }
        for piece in data.chunks(PIECE_BYTES) {
            let mut room = self.cx.take_room(piece.len());
            let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
            let result = call.map_or(Ok(()), |call| {
                let Call { web, asked, .. } = call;
                let decoded = web.as_mut().map(|web| web.request.decode(piece, &mut room));
                asked.on_data(room.filled());
                decoded.unwrap_or(Ok(()))
            });
            if !room.is_empty() {
                pass(self, room.filled());
            }
            room.clear();
            self.cx.translated = room;
            result.map_err(|_| Cause::RequestBodyInvalid)?;
        }
        Ok(())
    }

    /// A piece of a call's response body: counted, and given to `pass` as it goes downstream.
    pub(super) fn translate_response(
        &mut self,
        key: ExchangeKey,
        data: &[u8],
        mut pass: impl FnMut(&mut Self, &[u8]),
    ) {
        let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
        let Some(call) = call else { return };
        call.answered.on_data(data);
        if call.web.as_ref().is_none_or(|web| web.is_foreign) {
            return pass(self, data);
        }
        for piece in data.chunks(PIECE_BYTES) {
            self.encode_for_web(key, web::data_len_max(piece.len()), &mut pass, |encoder, room| {
                encoder.encode(piece, room);
                encoder.flush(room);
            });
        }
    }

    /// The end of a call's response: its trailers go into the body if it is of gRPC-Web. Says
    /// whether they did.
    pub(super) fn end_call_response(
        &mut self,
        key: ExchangeKey,
        trailers: &[u8],
        mut pass: impl FnMut(&mut Self, &[u8]),
    ) -> bool {
        const NONE: &[u8] = b"grpc-status: 2\r\n";
        let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
        let Some(call) = call else { return false };
        call.on_status(field_values(trailers, b"grpc-status"));
        match &call.web {
            None => return false,
            Some(web) if web.is_foreign => return false,
            Some(web) if web.is_head_all => return true,
            Some(_) => {}
        }
        let section = if trailers.is_empty() { NONE } else { trailers };
        self.encode_for_web(key, web::trailers_len_max(section), &mut pass, |encoder, room| {
            encoder.encode_trailers(section, room);
        });
        true
    }

    fn encode_for_web(
        &mut self,
        key: ExchangeKey,
        bytes: usize,
        pass: &mut impl FnMut(&mut Self, &[u8]),
        encode: impl FnOnce(&mut web::ResponseEncoder, &mut Buffer),
    ) {
        let mut room = self.cx.take_room(bytes);
        let call = self.exchanges.get_mut(key).and_then(|it| it.call.as_deref_mut());
        if let Some(web) = call.and_then(|call| call.web.as_mut()) {
            encode(&mut web.response, &mut room);
        }
        pass(self, room.filled());
        room.clear();
        self.cx.translated = room;
    }
}
