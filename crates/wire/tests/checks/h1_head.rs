//! Properties of the head decoders and encoders, for any bytes.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the property
//! tests: no input panics, no cut into pieces changes the verdict, detection recognises whatever is
//! accepted to be HTTP/1, what is accepted and encoded is accepted again as the same head, and a
//! saved head goes on as if nothing had happened.

use wire::buffer::Buffer;
use wire::detect::{Detected, detect};
use wire::h1::{
    ConnectionField, HeadError, HeadLimits, Parsing, Scan, decode_request, decode_response_as,
    encode_request, encode_response,
};
use wire::head::{Framing, Head, HeadIndex, Method, RequestHead, ResponseHead, Version};
use wire::path::Slashes;

/// Limits that no input of reasonable size reaches.
pub(crate) const WIDE: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 64 << 10,
    fields_max: 100,
    slashes: Slashes::Keep,
};

/// Limits that most inputs reach.
const TIGHT: HeadLimits = HeadLimits {
    request_line_bytes_max: 24,
    head_bytes_max: 96,
    fields_max: 3,
    slashes: Slashes::Keep,
};

/// All that a decoded request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) len: usize,
    pub(crate) method: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) path: Vec<u8>,
    pub(crate) query: Option<Vec<u8>>,
    pub(crate) host: Vec<u8>,
    pub(crate) authority: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) persistent: bool,
    pub(crate) upgrade: Option<Vec<u8>>,
    pub(crate) expects_continue: bool,
    pub(crate) accepts_trailers: bool,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// What is sent on in its place.
    pub(crate) encoded: Vec<u8>,
}

/// All that a decoded response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) len: usize,
    pub(crate) status: u16,
    pub(crate) version: Version,
    pub(crate) reason: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) persistent: bool,
    pub(crate) upgrade: Option<Vec<u8>>,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// What is sent on in its place.
    pub(crate) encoded: Vec<u8>,
}

/// The ways in which a response is read.
const HOW: [(Parsing, bool); 3] =
    [(Parsing::Strict, false), (Parsing::Tolerant, false), (Parsing::Tolerant, true)];

type Verdict<T> = Result<Option<T>, HeadError>;

/// Checks everything on `data`, as a request and as a response.
pub(crate) fn check(data: &[u8]) {
    for limits in [WIDE, TIGHT] {
        let request = check_cuts(data, |input, scan| request_with(input, scan, &limits));
        if let Ok(Some(request)) = request {
            check_detection(data, &request);
            check_request_again(&request);
        }
        for to in [Method::Get, Method::Head] {
            for how in HOW {
                let response =
                    check_cuts(data, |input, scan| response_with(input, scan, &limits, to, how));
                if let Ok(Some(response)) = response {
                    check_response_again(&response, to);
                }
            }
            check_tolerance(data, &limits, to);
        }
    }
}

/// The verdict on a request that comes at once.
pub(crate) fn request(data: &[u8]) -> Verdict<Request> {
    request_with(data, &mut Scan::default(), &WIDE)
}

/// The verdict on a response to a request of method `to` that comes at once.
pub(crate) fn response(data: &[u8], to: Method) -> Verdict<Response> {
    response_with(data, &mut Scan::default(), &WIDE, to, (Parsing::Strict, false))
}

/// A head that is accepted strictly is read tolerantly as the same.
fn check_tolerance(data: &[u8], limits: &HeadLimits, to: Method) {
    let read = |how| response_with(data, &mut Scan::default(), limits, to, how);
    let strict = read((Parsing::Strict, false));
    if matches!(strict, Ok(Some(_))) {
        for how in HOW {
            assert_eq!(read(how), strict, "{}", data.escape_ascii());
        }
    }
}

/// Checks that every cut into two pieces, and coming octet by octet, gives the verdict that
/// coming at once gives, and returns that.
pub(crate) fn check_cuts<T: Clone + PartialEq + std::fmt::Debug>(
    data: &[u8],
    decode: impl Fn(&[u8], &mut Scan) -> Verdict<T>,
) -> Verdict<T> {
    let whole = decode(data, &mut Scan::default());
    // Many cuts of a long input show no more than some.
    let step = data.len() / 300 + 1;
    for cut in (0..data.len()).step_by(step) {
        check_pieces(data, &[cut], &whole, &decode);
    }
    let each: Vec<usize> = (0..data.len()).step_by(step).collect();
    check_pieces(data, &each, &whole, &decode);
    whole
}

fn check_pieces<T: Clone + PartialEq + std::fmt::Debug>(
    data: &[u8],
    cuts: &[usize],
    whole: &Verdict<T>,
    decode: &impl Fn(&[u8], &mut Scan) -> Verdict<T>,
) {
    let mut scan = Scan::default();
    for &len in cuts {
        match decode(data.split_at(len).0, &mut scan) {
            Ok(None) => {}
            early => return assert_eq!(&early, whole, "at {len} of {}", data.escape_ascii()),
        }
        scan = saved(&scan);
    }
    match (decode(data, &mut scan), whole) {
        // An error in an unfinished head may be found later, but it is found.
        (Ok(None), Err(_)) => {
            let mut longer = data.to_vec();
            longer.resize(2 * data.len() + 1, b'x');
            let late = decode(&longer, &mut scan);
            assert_eq!(&late, whole, "cut at {cuts:?}: {}", data.escape_ascii());
        }
        (last, _) => assert_eq!(&last, whole, "cut at {cuts:?}: {}", data.escape_ascii()),
    }
}

/// Detection recognises every request, if not by its beginning then by all of it.
fn check_detection(data: &[u8], request: &Request) {
    const METHOD_BYTES_MAX: usize = 32;
    if request.method.len() > METHOD_BYTES_MAX {
        return;
    }
    assert_eq!(detect(data, &[]), Some(Detected::Http1), "{}", data.escape_ascii());
    for len in (0..data.len()).step_by(data.len() / 300 + 1) {
        let early = detect(data.split_at(len).0, &[]);
        assert!(matches!(early, None | Some(Detected::Http1)), "{len} of {}", data.escape_ascii());
    }
}

fn check_request_again(first: &Request) {
    let again = request(&first.encoded).expect("what is sent on is valid");
    let again = again.expect("what is sent on is whole");
    let mut expected = first.clone();
    expected.len = first.encoded.len();
    expected.version = Version::Http11;
    expected.persistent = true;
    if !first.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host")) {
        expected.fields.push((b"host".to_vec(), Vec::new()));
    }
    assert_eq!(again, expected, "{}", first.encoded.escape_ascii());
}

fn check_response_again(first: &Response, to: Method) {
    let again = response(&first.encoded, to).expect("what is sent on is valid");
    let again = again.expect("what is sent on is whole");
    let mut expected = first.clone();
    expected.len = first.encoded.len();
    expected.version = sent_as(first.version, first.framing);
    // The encoder was not asked to say anything about the connection.
    expected.persistent =
        expected.version == Version::Http11 && first.framing != Framing::UntilClose;
    assert_eq!(again, expected, "{}", first.encoded.escape_ascii());
}

fn request_with(input: &[u8], scan: &mut Scan, limits: &HeadLimits) -> Verdict<Request> {
    let mut index = HeadIndex::default();
    let Some((head, len)) = decode_request(input, scan, limits, &mut index)? else {
        return Ok(None);
    };
    let encoded = encoded_request(&head);
    let fields = fields(&head);
    let (block, mut index) = (head.block(), saved(head.index()));
    let head = RequestHead::resume(block, &mut index);
    assert_eq!(encoded_request(&head), encoded, "a restored head is the same head");
    Ok(Some(Request {
        len,
        method: head.method_bytes().to_vec(),
        version: head.version(),
        path: head.path().to_vec(),
        query: head.query().map(<[u8]>::to_vec),
        host: head.host().to_vec(),
        authority: head.authority().to_vec(),
        framing: head.framing(),
        persistent: head.persistent(),
        upgrade: head.upgrade().map(<[u8]>::to_vec),
        expects_continue: head.expects_continue(),
        accepts_trailers: head.accepts_trailers(),
        fields,
        encoded,
    }))
}

fn response_with(
    input: &[u8],
    scan: &mut Scan,
    limits: &HeadLimits,
    to: Method,
    how: (Parsing, bool),
) -> Verdict<Response> {
    let mut index = HeadIndex::default();
    let Some((head, len)) = decode_response_as(input, scan, limits, &mut index, to, how)? else {
        return Ok(None);
    };
    let encoded = encoded_response(&head);
    let fields = fields(&head);
    let (block, mut index) = (head.block(), saved(head.index()));
    let head = ResponseHead::resume(block, &mut index);
    assert_eq!(encoded_response(&head), encoded, "a restored head is the same head");
    Ok(Some(Response {
        len,
        status: head.status(),
        version: head.version(),
        reason: head.reason().to_vec(),
        framing: head.framing(),
        persistent: head.persistent(),
        upgrade: head.upgrade().map(<[u8]>::to_vec),
        fields,
        encoded,
    }))
}

fn encoded_request(head: &RequestHead<'_>) -> Vec<u8> {
    let mut out = Buffer::new(head.encoded_len_max());
    encode_request(head, connection_field(head.upgrade()), &mut out);
    out.filled().to_vec()
}

fn encoded_response(head: &ResponseHead<'_>) -> Vec<u8> {
    let mut out = Buffer::new(head.encoded_len_max());
    let connection = connection_field(head.upgrade());
    encode_response(
        head,
        sent_as(head.version(), head.framing()),
        head.framing(),
        connection,
        &mut out,
    );
    out.filled().to_vec()
}

/// Chunks are for HTTP/1.1 alone, whatever version they came in.
fn sent_as(version: Version, framing: Framing) -> Version {
    if framing == Framing::Chunked { Version::Http11 } else { version }
}

fn connection_field(upgrade: Option<&[u8]>) -> ConnectionField {
    upgrade.map_or(ConnectionField::Default, |_| ConnectionField::Upgrade)
}

fn fields<K>(head: &Head<'_, K>) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Written down and read back.
pub(crate) fn saved<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let bytes = postcard::to_stdvec(value).expect("it can be written down");
    postcard::from_bytes(&bytes).expect("it can be read back")
}
