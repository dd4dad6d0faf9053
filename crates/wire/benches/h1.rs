//! What a head costs, decoded and encoded, and a body's framing.
//!
//! `cargo bench -p wire`. Budgets: the request of a load generator 100 ns for both ways, one like a
//! browser's 400 ns, a usual response 250 ns.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use wire::buffer::Buffer;
use wire::h1::{
    BodyDecoder, BodyElement, BodyLimits, ConnectionField, HeadLimits, Scan, decode_request,
    decode_response, encode_request, encode_response,
};
use wire::head::{Framing, HeadIndex, Known, Method, Version};
use wire::path::Slashes;

fn main() {
    divan::main();
}

/// Heads in one sample, so that the clock of the bench does not count.
const BATCH: usize = 1_000;

const LIMITS: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 64 << 10,
    fields_max: 100,
    slashes: Slashes::Keep,
};

/// A request, by the name that it has in the results.
#[derive(Clone, Copy, Debug)]
enum Sample {
    Generator,
    Browser,
}

impl Sample {
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Generator => GENERATOR,
            Self::Browser => BROWSER,
        }
    }
}

const GENERATOR: &[u8] = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &[u8] = b"GET /static/js/app.bundle.min.js?v=20260114&theme=dark HTTP/1.1\r\n\
    Host: www.shop.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: */*\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Referer: https://www.shop.example.com/catalogue/chairs\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=3f9a1c77b2e84d0d; theme=dark; consent=1\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx/1.22.1\r\n\
    Date: Tue, 13 Jan 2026 10:11:12 GMT\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Content-Length: 1024\r\n\
    Connection: keep-alive\r\n\
    ETag: \"65a2f1c4-400\"\r\n\r\n";

#[divan::bench(args = [Sample::Generator, Sample::Browser])]
fn request_decode(bencher: Bencher<'_, '_>, sample: Sample) {
    let mut index = HeadIndex::default();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let head = decode_request(
                black_box(sample.bytes()),
                &mut Scan::default(),
                &LIMITS,
                &mut index,
            );
            let (head, _) = head.expect("a valid head").expect("a whole head");
            black_box(head.host());
        }
    });
}

#[divan::bench(args = [Sample::Generator, Sample::Browser])]
fn request_both_ways(bencher: Bencher<'_, '_>, sample: Sample) {
    let mut index = HeadIndex::default();
    let mut out = Buffer::new(16 << 10);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let head = decode_request(
                black_box(sample.bytes()),
                &mut Scan::default(),
                &LIMITS,
                &mut index,
            );
            let (head, _) = head.expect("a valid head").expect("a whole head");
            encode_request(&head, ConnectionField::Default, &mut out);
            black_box(out.filled());
            out.clear();
        }
    });
}

/// What an edge does to a request: two fields set and one added.
#[divan::bench(args = [Sample::Generator, Sample::Browser])]
fn request_both_ways_with_changes(bencher: Bencher<'_, '_>, sample: Sample) {
    let mut index = HeadIndex::default();
    let mut out = Buffer::new(16 << 10);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let head = decode_request(
                black_box(sample.bytes()),
                &mut Scan::default(),
                &LIMITS,
                &mut index,
            );
            let (mut head, _) = head.expect("a valid head").expect("a whole head");
            head.append_known(Known::XForwardedFor, b"203.0.113.7");
            head.set_known(Known::XRequestId, b"0192f0c1-7d4e-7c3b-9a55-2f6d8e1b4c07");
            head.set(b"x-edge", b"strait");
            encode_request(&head, ConnectionField::Default, &mut out);
            black_box(out.filled());
            out.clear();
        }
    });
}

#[divan::bench]
fn response_decode(bencher: Bencher<'_, '_>) {
    let mut index = HeadIndex::default();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let (bytes, scan) = (black_box(RESPONSE), &mut Scan::default());
            let head = decode_response(bytes, scan, &LIMITS, &mut index, Method::Get);
            let (head, _) = head.expect("a valid head").expect("a whole head");
            black_box(head.status());
        }
    });
}

#[divan::bench]
fn response_both_ways(bencher: Bencher<'_, '_>) {
    let mut index = HeadIndex::default();
    let mut out = Buffer::new(16 << 10);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let (bytes, scan) = (black_box(RESPONSE), &mut Scan::default());
            let head = decode_response(bytes, scan, &LIMITS, &mut index, Method::Get);
            let (head, _) = head.expect("a valid head").expect("a whole head");
            let framing = head.framing();
            let connection = ConnectionField::Default;
            encode_response(&head, Version::Http11, framing, connection, &mut out);
            black_box(out.filled());
            out.clear();
        }
    });
}

/// A body of 1 KiB in chunks of 256 bytes, all there at once.
#[divan::bench]
fn chunked_decode(bencher: Bencher<'_, '_>) {
    let limits = BodyLimits {
        chunk_line_bytes_max: 256,
        trailers_bytes_max: 8 << 10,
        fields_max: 100,
        parsing: wire::h1::Parsing::Strict,
    };
    let mut bytes = Vec::new();
    for _ in 0..4 {
        bytes.extend_from_slice(b"100\r\n");
        bytes.extend_from_slice(&[b'x'; 256]);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let mut decoder = BodyDecoder::new(Framing::Chunked);
            let mut at = 0;
            loop {
                let rest = bytes.get(at..).unwrap_or_default();
                let (n, element) = decoder.decode(black_box(rest), &limits).expect("valid chunks");
                at += n;
                if black_box(element) == BodyElement::End {
                    break;
                }
            }
        }
    });
}
