//! Properties of the decoder and the encoder of the chunked coding, for any bytes.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the property
//! tests: no input panics, no cut into pieces changes what comes out, also when the decoder is
//! saved between two pieces, and what was decoded and encoded is decoded again as the same.

use wire::h1::{
    BodyDecoder, BodyElement, BodyEncoder, BodyError, BodyLimits, Parsing, allowed_trailers,
};
use wire::head::Framing;

/// Limits that small inputs reach.
pub(crate) const LIMITS: BodyLimits = BodyLimits {
    chunk_line_bytes_max: 24,
    trailers_bytes_max: 64,
    fields_max: 4,
    parsing: Parsing::Strict,
};

/// The same for responses of sloppy services.
const TOLERANT: BodyLimits = BodyLimits { parsing: Parsing::Tolerant, ..LIMITS };

/// The decoded body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) data: Vec<u8>,
    pub(crate) trailers: Vec<u8>,
    /// Bytes that belonged to the body.
    pub(crate) consumed: usize,
    /// Whether its end was seen.
    pub(crate) is_complete: bool,
    pub(crate) error: Option<BodyError>,
}

/// Checks everything on `data` as a chunked body.
pub(crate) fn check(data: &[u8]) {
    let strict = check_cuts(data);
    let tolerant = check_cuts_with(data, &TOLERANT);
    if strict.is_complete {
        assert_eq!(tolerant, strict, "what is read strictly is read tolerantly as the same");
    }
    for whole in [strict, tolerant].into_iter().filter(|whole| whole.is_complete) {
        let sent_on = encoded(&whole.data, &whole.trailers);
        let again = decoded(&[&sent_on]);
        let expected = Body { consumed: sent_on.len(), ..whole };
        assert_eq!(again, expected, "{}", sent_on.escape_ascii());
    }
}

/// Checks that no cut changes what comes out, and returns that.
pub(crate) fn check_cuts(data: &[u8]) -> Body {
    check_cuts_with(data, &LIMITS)
}

fn check_cuts_with(data: &[u8], limits: &BodyLimits) -> Body {
    let whole = decoded_with(&[data], limits);
    let step = data.len() / 300 + 1;
    for cut in (0..=data.len()).step_by(step) {
        let (front, back) = data.split_at(cut);
        compare(data, &[front, back], &whole, limits);
    }
    let each: Vec<&[u8]> = data.chunks(step).collect();
    compare(data, &each, &whole, limits);
    whole
}

fn compare(data: &[u8], pieces: &[&[u8]], whole: &Body, limits: &BodyLimits) {
    let mut body = decoded_with(pieces, limits);
    if body.error.is_none() && whole.error.is_some() {
        // An error in an unfinished trailer section may be found later, but it is found.
        let filler = vec![b'x'; 2 * data.len() + 1];
        let mut pieces = pieces.to_vec();
        pieces.push(&filler);
        body = decoded_with(&pieces, limits);
    }
    assert_eq!(&body, whole, "{} pieces of {}", pieces.len(), data.escape_ascii());
}

/// Decodes what comes in `pieces`, as a connection would: what is not consumed stays in front.
pub(crate) fn decoded(pieces: &[&[u8]]) -> Body {
    decoded_with(pieces, &LIMITS)
}

fn decoded_with(pieces: &[&[u8]], limits: &BodyLimits) -> Body {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    let mut body = Body::default();
    let mut pending = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let (n, element) = match decoder.decode(&pending, limits) {
                Ok(result) => result,
                Err(error) => return Body { error: Some(error), consumed: 0, ..body },
            };
            body.consumed += n;
            match element {
                BodyElement::Data(data) => {
                    assert!(!data.is_empty());
                    body.data.extend_from_slice(data);
                }
                BodyElement::Trailers(trailers) => {
                    let mut room = Vec::new();
                    body.trailers.extend_from_slice(allowed_trailers(trailers, &mut room));
                }
                BodyElement::NeedMore | BodyElement::End => {}
            }
            body.is_complete = decoder.is_complete();
            if body.is_complete {
                return body;
            }
            let needs_more = element == BodyElement::NeedMore;
            pending.drain(..n);
            if needs_more {
                break;
            }
        }
        let bytes = postcard::to_stdvec(&decoder).expect("a decoder can be written down");
        decoder = postcard::from_bytes(&bytes).expect("a decoder can be read back");
    }
    body
}

/// Encodes `data` in a few chunks, with `trailers` behind it.
pub(crate) fn encoded(data: &[u8], trailers: &[u8]) -> Vec<u8> {
    let mut encoder = BodyEncoder::new(Framing::Chunked);
    let mut out = Vec::new();
    for piece in data.chunks(data.len() / 3 + 1) {
        let framed = encoder.begin(piece.len()).expect("chunks have no declared length");
        out.extend_from_slice(framed.prefix());
        out.extend_from_slice(piece);
        out.extend_from_slice(framed.suffix());
    }
    let tail = encoder.end().expect("chunks have no declared length");
    out.extend_from_slice(tail.before_trailers());
    out.extend_from_slice(trailers);
    out.extend_from_slice(tail.after_trailers());
    out
}
