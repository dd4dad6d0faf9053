//! What HTTP/2 costs: heads both ways, strings in the Huffman code, data frames.
//!
//! `cargo bench -p wire --bench h2`. Budgets: a usual request of ten fields, most of them in the
//! table by now, 300 ns to decode, frame and all; the same to send on.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use wire::buffer::Buffer;
use wire::h2::hpack::{Decoder, Encoder, Secrecy};
use wire::h2::{Element, ErrorCode, Http2, Limits, PREFACE, RequestForm, Scheme, Scratch};
use wire::head::Framing;

fn main() {
    divan::main();
}

/// Heads in one sample, so that the clock of the bench does not count.
const BATCH: usize = 1_000;

/// A request, by the name that it has in the results.
#[derive(Clone, Copy, Debug)]
enum Sample {
    Generator,
    Browser,
    Grpc,
}

impl Sample {
    fn fields(self) -> &'static [(&'static [u8], &'static [u8])] {
        match self {
            Self::Generator => &GENERATOR,
            Self::Browser => &BROWSER,
            Self::Grpc => &GRPC,
        }
    }
}

const GENERATOR: [(&[u8], &[u8]); 5] = [
    (b":method", b"GET"),
    (b":path", b"/hello"),
    (b":scheme", b"http"),
    (b":authority", b"127.0.0.1:8080"),
    (b"user-agent", b"h2load nghttp2/1.52.0"),
];

const BROWSER: [(&[u8], &[u8]); 14] = [
    (b":method", b"GET"),
    (b":authority", b"www.shop.example.com"),
    (b":scheme", b"https"),
    (b":path", b"/static/js/app.bundle.min.js?v=20260114&theme=dark"),
    (b"sec-ch-ua", b"\"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\""),
    (b"sec-ch-ua-mobile", b"?0"),
    (
        b"user-agent",
        b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
          Chrome/130.0.0.0 Safari/537.36",
    ),
    (b"accept", b"*/*"),
    (b"sec-fetch-site", b"same-origin"),
    (b"sec-fetch-mode", b"no-cors"),
    (b"referer", b"https://www.shop.example.com/catalogue/chairs"),
    (b"accept-encoding", b"gzip, deflate, br, zstd"),
    (b"accept-language", b"en-GB,en;q=0.9,de;q=0.8"),
    (b"cookie", b"session=3f9a1c77b2e84d0d; theme=dark; consent=1"),
];

const GRPC: [(&[u8], &[u8]); 10] = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/shop.v1.Catalogue/Find"),
    (b":authority", b"catalogue.shop.svc:8080"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", b"grpc-go/1.60.0"),
    (b"te", b"trailers"),
    (b"grpc-timeout", b"1S"),
    (b"grpc-accept-encoding", b"gzip"),
    (b"x-tenant", b"9f1c"),
];

/// The header block of a sample, once it has been sent often enough for the table.
fn settled_block(sample: Sample, encoder: &mut Encoder, decoder: &mut Decoder) -> Vec<u8> {
    let mut block = Vec::new();
    for _ in 0..3 {
        let mut out = Buffer::new(16 << 10);
        encoder.begin(&mut out);
        for (name, value) in sample.fields() {
            encoder.field(name, value, Secrecy::Open, &mut out);
        }
        block = out.filled().to_vec();
        let (mut literal, mut fields) = (Vec::new(), decoder.fields(&block));
        while fields.next(&mut literal).is_some() {}
        fields.end().expect("a valid block");
    }
    block
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut bytes = len.get(1..).unwrap_or_default().to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A connection of which the other side has said hello.
fn greeted(mut h2: Http2, hello: &[u8], scratch: &mut Scratch) -> Http2 {
    let limits = Limits::default();
    let (n, element) = h2.decode(hello, &limits, scratch).expect("a valid hello");
    assert!(n == hello.len() && matches!(element, Element::SettingsChanged));
    h2.send_control(&mut Buffer::new(1 << 10));
    h2
}

fn server(scratch: &mut Scratch) -> Http2 {
    let hello = [&PREFACE[..], &frame(4, 0, 0, b"")].concat();
    greeted(Http2::server(&Limits::default()), &hello, scratch)
}

#[divan::bench(args = [Sample::Generator, Sample::Browser, Sample::Grpc])]
fn hpack_decode(bencher: Bencher<'_, '_>, sample: Sample) {
    let mut decoder = Decoder::new(4096);
    let block = settled_block(sample, &mut Encoder::new(4096), &mut decoder);
    let mut literal = Vec::new();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let mut fields = decoder.fields(black_box(&block));
            while let Some(line) = fields.next(&mut literal) {
                black_box(line.value());
            }
        }
    });
}

#[divan::bench(args = [Sample::Generator, Sample::Browser, Sample::Grpc])]
fn hpack_encode(bencher: Bencher<'_, '_>, sample: Sample) {
    let mut encoder = Encoder::new(4096);
    settled_block(sample, &mut encoder, &mut Decoder::new(4096));
    let mut out = Buffer::new(16 << 10);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            encoder.begin(&mut out);
            for (name, value) in black_box(sample.fields()) {
                encoder.field(name, value, Secrecy::Open, &mut out);
            }
            black_box(out.filled());
            out.clear();
        }
    });
}

/// A block without any table: what the first request of a connection takes.
#[divan::bench]
fn hpack_decode_first(bencher: Bencher<'_, '_>) {
    let mut out = Buffer::new(16 << 10);
    let mut encoder = Encoder::new(4096);
    for (name, value) in BROWSER {
        encoder.field(name, value, Secrecy::Open, &mut out);
    }
    let mut decoder = Decoder::new(4096);
    let mut literal = Vec::new();
    let bytes = BROWSER.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    bencher.counter(BytesCount::new(BATCH * bytes)).bench_local(|| {
        for _ in 0..BATCH {
            let mut fields = decoder.fields(black_box(out.filled()));
            while let Some(line) = fields.next(&mut literal) {
                black_box(line.value());
            }
        }
    });
}

/// From the frame to the head, and the stream closed again.
#[divan::bench(args = [Sample::Generator, Sample::Browser, Sample::Grpc])]
fn request_decode(bencher: Bencher<'_, '_>, sample: Sample) {
    let limits = Limits { work_max: u32::MAX, ..Limits::default() };
    let mut scratch = Scratch::default();
    let block = settled_block(sample, &mut Encoder::new(4096), &mut Decoder::new(4096));
    let mut out = Buffer::new(1 << 10);
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| {
            let mut scratch = Scratch::default();
            let mut h2 = server(&mut scratch);
            // The peer's table has the same history.
            let mut encoder = Encoder::new(4096);
            for n in 0..3u32 {
                let mut out = Buffer::new(16 << 10);
                encoder.begin(&mut out);
                for (name, value) in sample.fields() {
                    encoder.field(name, value, Secrecy::Open, &mut out);
                }
                let input = frame(1, 5, 2 * n + 1, out.filled());
                h2.decode(&input, &limits, &mut scratch).expect("a valid request");
                h2.send_reply(2 * n + 1, 204, &[], None, true, &mut out);
            }
            let frames: Vec<_> = (0..BATCH)
                .map(|n| frame(1, 5, u32::try_from(2 * n + 7).expect("a small number"), &block))
                .collect();
            (h2, frames)
        })
        .bench_local_values(|(mut h2, frames)| {
            for frame in &frames {
                let (_, element) =
                    h2.decode(black_box(frame), &limits, &mut scratch).expect("a valid request");
                let Element::Request { stream, head, .. } = element else {
                    unreachable!("a request")
                };
                black_box(head.host());
                h2.reset(stream, ErrorCode::CANCEL);
            }
            out.clear();
            h2
        });
}

/// What a proxy does with a request: take it in from one connection, and send it on over another.
#[divan::bench(args = [Sample::Generator, Sample::Browser, Sample::Grpc])]
fn request_through(bencher: Bencher<'_, '_>, sample: Sample) {
    const ANSWER: &[u8] = &[0x88];
    let limits = Limits { work_max: u32::MAX, ..Limits::default() };
    let mut scratch = Scratch::default();
    let mut answers = Scratch::default();
    let block = settled_block(sample, &mut Encoder::new(4096), &mut Decoder::new(4096));
    let mut out = Buffer::new(64 << 10);
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| {
            let mut scratch = Scratch::default();
            let mut downstream = server(&mut scratch);
            let mut encoder = Encoder::new(4096);
            for n in 0..3u32 {
                let mut out = Buffer::new(16 << 10);
                encoder.begin(&mut out);
                for (name, value) in sample.fields() {
                    encoder.field(name, value, Secrecy::Open, &mut out);
                }
                let input = frame(1, 5, 2 * n + 1, out.filled());
                downstream.decode(&input, &limits, &mut scratch).expect("a valid request");
                downstream.send_reply(2 * n + 1, 204, &[], None, true, &mut out);
            }
            let client = Http2::client(&limits);
            let upstream = greeted(client, &frame(4, 0, 0, b""), &mut scratch);
            let frames: Vec<_> = (0..BATCH)
                .map(|n| frame(1, 5, u32::try_from(2 * n + 7).expect("a small number"), &block))
                .collect();
            (downstream, upstream, frames)
        })
        .bench_local_values(|(mut downstream, mut upstream, frames)| {
            for input in &frames {
                let (_, element) = downstream
                    .decode(black_box(input), &limits, &mut scratch)
                    .expect("a valid request");
                let Element::Request { stream, head, is_end } = element else {
                    unreachable!("a request")
                };
                let (scheme, form) = (Scheme::Http, RequestForm::Same);
                let sent = upstream.send_request(&head, scheme, form, is_end, &mut out);
                let answer = frame(1, 5, sent.expect("a free slot"), ANSWER);
                let (_, element) = upstream
                    .decode(black_box(&answer), &limits, &mut answers)
                    .expect("a valid response");
                let Element::Response { head, is_end, .. } = element else {
                    unreachable!("a response")
                };
                downstream.send_response(stream, &head, Framing::None, is_end, &mut out);
                black_box(out.filled());
                out.clear();
            }
            (downstream, upstream)
        });
}

/// Frames of 1 KiB of data in and out again.
#[divan::bench]
fn data_through(bencher: Bencher<'_, '_>) {
    let limits = Limits { work_max: u32::MAX, ..Limits::default() };
    let mut scratch = Scratch::default();
    let input = frame(0, 0, 1, &[b'x'; 1024]);
    // :method POST, :scheme http, :path /, :authority a
    let head = frame(1, 4, 1, b"\x83\x86\x84\x41\x01a");
    let mut h2 = server(&mut scratch);
    h2.decode(&head, &limits, &mut scratch).expect("a valid request");
    let mut out = Buffer::new(64 << 10);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let (_, element) =
                h2.decode(black_box(&input), &limits, &mut scratch).expect("valid data");
            let Element::Data { stream, bytes, .. } = element else { unreachable!("data") };
            black_box(bytes);
            h2.on_taken(stream, bytes.len());
            if h2.has_control() {
                h2.send_control(&mut out);
                out.clear();
            }
        }
    });
}
