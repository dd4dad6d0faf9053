//! The bytes that a client of HTTP/1 sends, in pieces.

use super::{Behaviour, Gate, Piece};
use crate::plan::{RequestBody, RequestPlan, fill_request};
use crate::random::Random;

/// Everything that a client sends, cut at random.
pub(super) fn pieces(
    requests: &[RequestPlan],
    behaviour: &Behaviour,
    random: &mut Random,
) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        let answers = place.saturating_sub(behaviour.pipelined_max);
        let gate = if random.chance(300) { Gate::Think(answers) } else { Gate::Answers(answers) };
        cut(&mut pieces, gate, place, head(request).into_bytes(), random);
        let gate = if request.expects_continue { Gate::Continue } else { Gate::Open };
        cut(&mut pieces, gate, place, body(request, random), random);
        if let Some(length) = request.tunnel {
            let mut bytes = vec![0; length];
            fill_request(request.id, 0, &mut bytes);
            cut(&mut pieces, Gate::Tunnel, place, bytes, random);
        }
    }
    pieces
}

fn cut(pieces: &mut Vec<Piece>, gate: Gate, request: usize, bytes: Vec<u8>, random: &mut Random) {
    let mut rest = &bytes[..];
    let mut gate = gate;
    let is_whole = random.chance(500);
    while !rest.is_empty() {
        let length = if is_whole { rest.len() } else { 1 + random.size(rest.len() - 1) };
        let (piece, behind) = rest.split_at(length);
        pieces.push(Piece { gate, bytes: piece.to_vec(), request });
        gate = Gate::Open;
        rest = behind;
    }
}

fn head(request: &RequestPlan) -> String {
    let RequestPlan { id, method, cluster, .. } = request;
    let version = if request.is_http11 { "1.1" } else { "1.0" };
    let mut head = format!("{method} /{cluster}/{id:016x} HTTP/{version}\r\nHost: sim.example\r\n");
    match request.body {
        RequestBody::None => {}
        RequestBody::Length(length) => head += &format!("Content-Length: {length}\r\n"),
        RequestBody::Chunked(..) => head += "Transfer-Encoding: chunked\r\n",
    }
    if request.expects_continue {
        head += "Expect: 100-continue\r\n";
    }
    if request.tunnel.is_some() {
        head += "Connection: upgrade\r\nUpgrade: websocket\r\n";
    } else if let Some(connection) = request.connection {
        head += &format!("Connection: {connection}\r\n");
    }
    head + "\r\n"
}

fn body(request: &RequestPlan, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; request.body.len()];
    fill_request(request.id, 0, &mut bytes);
    let RequestBody::Chunked(_, has_trailers) = request.body else { return bytes };
    let mut chunked = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(1 + random.size(rest.len() - 1));
        chunked.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
        rest = behind;
    }
    chunked.extend_from_slice(b"0\r\n");
    if has_trailers {
        chunked.extend(format!("x-check: {:016x}\r\n", request.id).into_bytes());
    }
    chunked.extend_from_slice(b"\r\n");
    chunked
}
