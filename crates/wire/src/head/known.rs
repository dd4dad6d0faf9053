//! The field names that the proxy distinguishes, by number.
//!
//! A name is looked up once, when its head is decoded, by its length and two of its octets and
//! one comparison of whole words. The table is not an optimisation only: these fields mean
//! something to a proxy, so a peer can neither have them removed through `Connection` nor smuggle
//! them in through a trailer section.

use serde::{Deserialize, Serialize};

macro_rules! known {
    ($($variant:ident => $name:literal,)*) => {
        /// A field name that the proxy distinguishes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Known {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
            /// Any other name.
            Other,
        }

        impl Known {
            /// Every name but [`Known::Other`].
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in lower case; nothing for [`Known::Other`].
            #[must_use]
            pub const fn name(self) -> &'static [u8] {
                match self {
                    $(Self::$variant => $name.as_bytes(),)*
                    Self::Other => b"",
                }
            }
        }
    };
}

known! {
    Authorization => "authorization",
    CacheControl => "cache-control",
    Connection => "connection",
    ContentEncoding => "content-encoding",
    ContentLength => "content-length",
    ContentRange => "content-range",
    ContentType => "content-type",
    Cookie => "cookie",
    Date => "date",
    Expect => "expect",
    Forwarded => "forwarded",
    Host => "host",
    Http2Settings => "http2-settings",
    KeepAlive => "keep-alive",
    Location => "location",
    MaxForwards => "max-forwards",
    ProxyAuthenticate => "proxy-authenticate",
    ProxyAuthorization => "proxy-authorization",
    ProxyConnection => "proxy-connection",
    Range => "range",
    SecWebsocketKey => "sec-websocket-key",
    Server => "server",
    SetCookie => "set-cookie",
    Te => "te",
    Trailer => "trailer",
    TransferEncoding => "transfer-encoding",
    Upgrade => "upgrade",
    UserAgent => "user-agent",
    Via => "via",
    WwwAuthenticate => "www-authenticate",
    XForwardedClientCert => "x-forwarded-client-cert",
    XForwardedFor => "x-forwarded-for",
    XForwardedHost => "x-forwarded-host",
    XForwardedPort => "x-forwarded-port",
    XForwardedProto => "x-forwarded-proto",
    XRealIp => "x-real-ip",
    XRequestId => "x-request-id",
}

impl Known {
    /// The number of `name`, in any case.
    #[must_use]
    #[inline]
    pub fn from_name(name: &[u8]) -> Self {
        let [first, .., near_last, _] = name else {
            return if name.eq_ignore_ascii_case(b"te") { Self::Te } else { Self::Other };
        };
        let slot = slot(name.len(), *first, *near_last);
        let known = TABLE.get(slot).copied().unwrap_or(Self::Other);
        match NAMES.get(known as usize) {
            Some(words) if words.is_spelled(name) => known,
            _ => Self::Other,
        }
    }

    /// Its place in a [`KnownSet`].
    const fn bit(self) -> u64 {
        match self {
            Self::Other => 0,
            known => 1 << known as u8,
        }
    }

    /// Whether it is for the next hop only, and so never forwarded (RFC 9110, section 7.6.1).
    ///
    /// `Proxy-Authenticate` and `Proxy-Authorization` count as such: this proxy asks no client for
    /// credentials, so those meant for a proxy were meant for another one, and no upstream is to
    /// see them (section 11.7).
    #[must_use]
    pub const fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::Http2Settings
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Te
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }

    /// Whether a peer may have it removed by naming it in `Connection`.
    ///
    /// Only fields that no hop acts on: a client that could have `X-Forwarded-For`, `Authorization`
    /// or `Cookie` removed after a hop has set or checked it would choose what the upstream
    /// believes.
    #[must_use]
    pub const fn is_removable_by_nomination(self) -> bool {
        matches!(self, Self::Other)
    }

    /// Whether it may stand in a trailer section (RFC 9110, section 6.5.1): nothing about
    /// framing, routing, authentication, or how to read the content may. A field that only names
    /// its sender may, such as `server`, which services of gRPC send.
    #[must_use]
    pub const fn is_allowed_in_trailers(self) -> bool {
        matches!(self, Self::Other | Self::Server | Self::Via | Self::XRequestId)
    }
}

/// Some of the names; [`Known::Other`] is never among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSet(u64);

const _: () = assert!(Known::ALL.len() <= 64, "a set has a bit for each name");

impl KnownSet {
    #[inline]
    pub(crate) const fn insert(&mut self, known: Known) {
        self.0 |= known.bit();
    }

    #[inline]
    pub(crate) const fn contains(self, known: Known) -> bool {
        self.0 & known.bit() != 0
    }
}

/// A name of the table as words, to be compared eight octets at a time.
#[derive(Clone, Copy)]
struct Words {
    len: usize,
    words: [u64; 3],
    /// The bit in which lower and upper case differ, at each octet that is a letter.
    case: [u64; 3],
}

impl Words {
    const NONE: Self = Self { len: usize::MAX, words: [0; 3], case: [0; 3] };

    const fn new(name: &[u8]) -> Self {
        let words = words(name).expect("names of the table have at most 24 octets");
        let mut case = [0; 3];
        let mut place = 0;
        while place < 24 {
            #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
            let (word, mask) = (words[place / 8], &mut case[place / 8]);
            let shift = 8 * (place % 8);
            if matches!(word >> shift & 0xff, 0x61..=0x7a) {
                *mask |= 0x20 << shift;
            }
            place += 1;
        }
        Self { len: name.len(), words, case }
    }

    /// Whether `name` is this one, in any case.
    #[inline]
    fn is_spelled(&self, name: &[u8]) -> bool {
        let Some(theirs) = words(name) else { return false };
        let ours = self.words.iter().zip(&self.case);
        let pairs = theirs.iter().zip(ours);
        let differences =
            pairs.fold(0, |all, (theirs, (ours, case))| all | (theirs ^ ours) & !case);
        name.len() == self.len && differences == 0
    }
}

/// All octets of a name of up to 24, in words that may overlap.
#[inline]
const fn words(name: &[u8]) -> Option<[u64; 3]> {
    const fn word(octets: Option<&[u8; 8]>) -> u64 {
        match octets {
            Some(octets) => u64::from_le_bytes(*octets),
            None => 0,
        }
    }
    match name {
        [a, b, c] => Some([u64::from_le_bytes([*a, *b, *c, 0, 0, 0, 0, 0]), 0, 0]),
        [a, b, c, d, ..] if name.len() < 8 => {
            let Some([e, f, g, h]) = name.last_chunk() else { return None };
            Some([u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 0, 0])
        }
        [_, _, _, _, _, _, _, _, rest @ ..] => {
            let middle = if rest.len() < 8 { 0 } else { word(rest.first_chunk()) };
            match rest.len() {
                0..=16 => Some([word(name.first_chunk()), middle, word(name.last_chunk())]),
                _ => None,
            }
        }
        _ => None,
    }
}

static NAMES: [Words; Known::ALL.len()] = {
    let mut names = [Words::NONE; Known::ALL.len()];
    let mut rest = Known::ALL;
    while let [known, others @ ..] = rest {
        // Names of up to two octets are found in another way.
        if known.name().len() > 2 {
            #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
            let place = &mut names[*known as usize];
            *place = Words::new(known.name());
        }
        rest = others;
    }
    names
};

const SLOTS: usize = 256;

/// The place of a name in the table. The multipliers are such that no two names share one, which
/// the compiler checks below; after adding a name, try others until it is content.
const fn slot(len: usize, first: u8, near_last: u8) -> usize {
    let first = (first | 0x20) as usize;
    let near_last = (near_last | 0x20) as usize;
    (len + first + near_last * 12) % SLOTS
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static TABLE: [Known; SLOTS] = {
    let mut table = [Known::Other; SLOTS];
    let mut rest = Known::ALL;
    while let [known, others @ ..] = rest {
        if let [first, .., near_last, _] = known.name() {
            let slot = slot(known.name().len(), *first, *near_last);
            assert!(matches!(table[slot], Known::Other), "two names share a slot");
            table[slot] = *known;
        }
        rest = others;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for &known in Known::ALL {
            let lower = known.name().to_vec();
            assert_eq!(Known::from_name(&lower), known);
            assert_eq!(Known::from_name(&lower.to_ascii_uppercase()), known);
        }
    }

    #[test]
    fn near_misses_are_other_names() {
        for &known in Known::ALL {
            let mut name = known.name().to_vec();
            name.push(b's');
            assert_eq!(Known::from_name(&name), Known::Other);
            name.truncate(name.len() - 2);
            assert_eq!(Known::from_name(&name), Known::Other);
            for place in 0..known.name().len() {
                let mut name = known.name().to_vec();
                name[place] ^= 0x01;
                let found = Known::from_name(&name);
                assert_ne!(found, known, "{}", name.escape_ascii());
                // A letter differs from a control octet by bits that folding case must not drop.
                let mut name = known.name().to_vec();
                name[place] &= !0x60;
                assert_eq!(Known::from_name(&name), Known::Other, "{}", name.escape_ascii());
            }
        }
        assert_eq!(Known::from_name(b""), Known::Other);
        assert_eq!(Known::from_name(b"t"), Known::Other);
    }
}
