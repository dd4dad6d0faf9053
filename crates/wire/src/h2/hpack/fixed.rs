//! The static table (RFC 7541, appendix A).

use super::{Line, Name, Pseudo, Secrecy};
use crate::head::Known;

/// Entries of the table. Those of the dynamic table are counted on from here.
pub(super) const LEN: u32 = 61;

/// One entry.
struct Entry {
    line: &'static [u8],
    name_len: u8,
    name: Name,
}

macro_rules! entries {
    ($($name:literal, $value:literal, $kind:ident $what:ident;)*) => {
        /// In order: the first has index 1.
        #[expect(clippy::cast_possible_truncation, reason = "evaluated by the compiler")]
        static ENTRIES: [Entry; LEN as usize] = [$(
            Entry {
                line: concat!($name, ": ", $value, "\r\n").as_bytes(),
                name_len: $name.len() as u8,
                name: entries!($kind $what),
            },
        )*];
    };
    (Pseudo $what:ident) => { Name::Pseudo(Pseudo::$what) };
    (Field $what:ident) => { Name::Field(Known::$what) };
}

entries! {
    ":authority", "", Pseudo Authority;
    ":method", "GET", Pseudo Method;
    ":method", "POST", Pseudo Method;
    ":path", "/", Pseudo Path;
    ":path", "/index.html", Pseudo Path;
    ":scheme", "http", Pseudo Scheme;
    ":scheme", "https", Pseudo Scheme;
    ":status", "200", Pseudo Status;
    ":status", "204", Pseudo Status;
    ":status", "206", Pseudo Status;
    ":status", "304", Pseudo Status;
    ":status", "400", Pseudo Status;
    ":status", "404", Pseudo Status;
    ":status", "500", Pseudo Status;
    "accept-charset", "", Field Other;
    "accept-encoding", "gzip, deflate", Field Other;
    "accept-language", "", Field Other;
    "accept-ranges", "", Field Other;
    "accept", "", Field Other;
    "access-control-allow-origin", "", Field Other;
    "age", "", Field Other;
    "allow", "", Field Other;
    "authorization", "", Field Authorization;
    "cache-control", "", Field CacheControl;
    "content-disposition", "", Field Other;
    "content-encoding", "", Field ContentEncoding;
    "content-language", "", Field Other;
    "content-length", "", Field ContentLength;
    "content-location", "", Field Other;
    "content-range", "", Field ContentRange;
    "content-type", "", Field ContentType;
    "cookie", "", Field Cookie;
    "date", "", Field Date;
    "etag", "", Field Other;
    "expect", "", Field Expect;
    "expires", "", Field Other;
    "from", "", Field Other;
    "host", "", Field Host;
    "if-match", "", Field Other;
    "if-modified-since", "", Field Other;
    "if-none-match", "", Field Other;
    "if-range", "", Field Other;
    "if-unmodified-since", "", Field Other;
    "last-modified", "", Field Other;
    "link", "", Field Other;
    "location", "", Field Location;
    "max-forwards", "", Field MaxForwards;
    "proxy-authenticate", "", Field ProxyAuthenticate;
    "proxy-authorization", "", Field ProxyAuthorization;
    "range", "", Field Range;
    "referer", "", Field Other;
    "refresh", "", Field Other;
    "retry-after", "", Field Other;
    "server", "", Field Server;
    "set-cookie", "", Field SetCookie;
    "strict-transport-security", "", Field Other;
    "transfer-encoding", "", Field TransferEncoding;
    "user-agent", "", Field UserAgent;
    "vary", "", Field Other;
    "via", "", Field Via;
    "www-authenticate", "", Field WwwAuthenticate;
}

/// The entry at `index`, if it is one of this table.
#[inline]
pub(super) fn line(index: u32) -> Option<Line<'static>> {
    let entry = ENTRIES.get((index as usize).checked_sub(1)?)?;
    Some(Line {
        bytes: entry.line,
        name_len: usize::from(entry.name_len),
        name: entry.name,
        is_value_valid: true,
        secrecy: Secrecy::Open,
    })
}

/// The first index with this name, or 0.
#[inline]
pub(super) fn name_index(known: Known, name: &[u8]) -> u32 {
    match known {
        Known::Other => other_name_index(name),
        known => u32::from(BY_KNOWN.get(known as usize).copied().unwrap_or_default()),
    }
}

/// The index of this name with this value, or 0.
#[inline]
pub(super) fn pair_index(name_index: u32, value: &[u8]) -> u32 {
    // Beside these, only pseudo fields have entries with a value, and many entries are empty.
    let last = match name_index {
        METHOD => METHOD + 1,
        PATH => PATH + 1,
        SCHEME => SCHEME + 1,
        STATUS => STATUS + 6,
        ACCEPT_ENCODING => ACCEPT_ENCODING,
        0 => return 0,
        index if value.is_empty() => return index,
        _ => return 0,
    };
    let has_value = |&index: &u32| line(index).is_some_and(|line| line.value() == value);
    (name_index..=last).find(has_value).unwrap_or_default()
}

pub(super) const AUTHORITY: u32 = 1;
pub(super) const METHOD: u32 = 2;
pub(super) const PATH: u32 = 4;
pub(super) const SCHEME: u32 = 6;
pub(super) const STATUS: u32 = 8;
const ACCEPT_ENCODING: u32 = 16;

/// The index of each known name, or 0.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler"
)]
static BY_KNOWN: [u8; Known::ALL.len()] = {
    let mut table = [0; Known::ALL.len()];
    let mut at = ENTRIES.len();
    while at > 0 {
        if let Name::Field(known) = ENTRIES[at - 1].name
            && !matches!(known, Known::Other)
        {
            table[known as usize] = at as u8;
        }
        at -= 1;
    }
    table
};

fn other_name_index(name: &[u8]) -> u32 {
    match name {
        b"accept-charset" => 15,
        b"accept-encoding" => 16,
        b"accept-language" => 17,
        b"accept-ranges" => 18,
        b"accept" => 19,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"content-disposition" => 25,
        b"content-language" => 27,
        b"content-location" => 29,
        b"etag" => 34,
        b"expires" => 36,
        b"from" => 37,
        b"if-match" => 39,
        b"if-modified-since" => 40,
        b"if-none-match" => 41,
        b"if-range" => 42,
        b"if-unmodified-since" => 43,
        b"last-modified" => 44,
        b"link" => 45,
        b"referer" => 51,
        b"refresh" => 52,
        b"retry-after" => 53,
        b"strict-transport-security" => 56,
        b"vary" => 59,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{COLON, LINE_END};
    use super::*;

    #[test]
    fn entries_are_lines_that_are_classified_as_any_other() {
        assert!(line(0).is_none() && line(LEN + 1).is_none());
        for index in 1..=LEN {
            let line = line(index).unwrap();
            assert_eq!(line.name, Name::new(line.name()));
            assert!(super::super::is_value(line.value()));
            let mut bytes = line.name().to_vec();
            bytes.extend_from_slice(COLON);
            bytes.extend_from_slice(line.value());
            bytes.extend_from_slice(LINE_END);
            assert_eq!(line.bytes, bytes);
        }
        assert_eq!(line(61).unwrap().name(), b"www-authenticate");
        assert_eq!(line(16).unwrap().value(), b"gzip, deflate");
    }

    #[test]
    fn each_entry_is_found_by_what_it_holds() {
        for index in 1..=LEN {
            let line = line(index).unwrap();
            let by_name = match line.name {
                Name::Field(known) => name_index(known, line.name()),
                Name::Pseudo(Pseudo::Authority) => AUTHORITY,
                Name::Pseudo(Pseudo::Method) => METHOD,
                Name::Pseudo(Pseudo::Path) => PATH,
                Name::Pseudo(Pseudo::Scheme) => SCHEME,
                _ => STATUS,
            };
            assert!(by_name <= index);
            assert_eq!(super::line(by_name).unwrap().name(), line.name());
            assert_eq!(pair_index(by_name, line.value()), index);
            assert_eq!(pair_index(by_name, b"no such value"), 0);
        }
        assert_eq!(name_index(Known::Other, b"x-other"), 0);
        assert_eq!(name_index(Known::XRequestId, b"x-request-id"), 0);
        assert_eq!(pair_index(0, b""), 0);
    }
}
