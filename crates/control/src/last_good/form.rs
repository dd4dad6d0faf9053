//! The file: a line with the version of the form and a checksum, then JSON.
//!
//! ```text
//! strait state 3 53c5b8d1bd2c5bd9
//! {"answers":[…],"resources":[…],"serving":[…]}
//! ```
//!
//! A file is taken only if every byte of it is as it was written. The checksum finds damage, not forgery: that the file
//! was written by this user is for its permissions to say.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;

use config::snapshot::{DnsFamily, DnsMode, Resolved};
use config::{ResourceName, xxh64};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{KeptAnswer, KeptResource, LastGood, NameKey, ResourceKey};

/// Changes with every change of what is written below.
const VERSION: u32 = 3;

/// What is written where no endpoint has a priority, so that a process of a former version still reads it.
const VERSION_WITHOUT_PRIORITIES: u32 = 2;

/// The oldest that is read: in it endpoints have no priority, and nothing serves in place of what was accepted last.
const VERSION_MIN: u32 = 1;

/// What the first line begins with.
const BEGIN: &str = "strait state ";

/// The first line is no longer than this.
const LINE_MAX: usize = 64;

/// Why a file is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It does not match its checksum, or has none.
    Damaged,
    /// Another version of the program wrote it.
    Version(u32),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("is damaged"),
            Self::Version(version) => {
                write!(f, "has the form {version}, and this program reads the form {VERSION}")
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content<'a> {
    #[serde(borrow)]
    answers: Vec<Answer<'a>>,
    #[serde(borrow)]
    resources: Vec<Resource<'a>>,
    #[serde(borrow, default)]
    serving: Vec<Resource<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    host: Cow<'a, str>,
    port: Option<NonZeroU16>,
    mode: DnsMode,
    family: DnsFamily,
    at: u64,
    #[serde(borrow)]
    endpoints: Vec<Endpoint<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint<'a> {
    address: SocketAddr,
    weight: NonZeroU16,
    #[serde(default, skip_serializing_if = "is_first")]
    priority: u8,
    host: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource<'a> {
    source: Cow<'a, str>,
    /// `KIND/NAME`.
    resource: Cow<'a, str>,
    version: Cow<'a, str>,
    at: u64,
    content: Cow<'a, str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form of what serde calls")]
const fn is_first(priority: &u8) -> bool {
    *priority == 0
}

/// The file.
///
/// # Errors
///
/// None that these types have.
pub(super) fn encode(kept: &LastGood) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let endpoint = |it: &'_ Resolved| Endpoint {
        address: it.address,
        weight: it.weight,
        priority: it.priority,
        host: Cow::Owned(it.host.to_string()),
    };
    let answers = kept.answers.iter().map(|(key, answer)| Answer {
        host: Cow::Borrowed(&*key.host),
        port: key.port,
        mode: key.mode,
        family: key.family,
        at: answer.at,
        endpoints: answer.endpoints.iter().map(endpoint).collect(),
    });
    let serving = kept.serving.iter().filter_map(|(key, kept)| Some((key, kept.as_ref()?)));
    let content = Content {
        answers: answers.collect(),
        resources: kept.resources.iter().map(written).collect(),
        serving: serving.map(written).collect(),
    };
    // It may have keys in it: where a vector grows, it leaves a copy behind.
    let mut len = Length(0);
    serde_json::to_writer(&mut len, &content)?;
    let mut text = Zeroizing::new(Vec::with_capacity(len.0));
    serde_json::to_writer(&mut *text, &content)?;
    let mut endpoints = kept.answers.values().flat_map(|answer| &*answer.endpoints);
    let has_priorities = endpoints.any(|it| it.priority > 0);
    let version = if has_priorities { VERSION } else { VERSION_WITHOUT_PRIORITIES };
    let line = first_line(version, &text);
    let mut file = Zeroizing::new(Vec::with_capacity(line.len() + text.len()));
    file.extend_from_slice(line.as_bytes());
    file.extend_from_slice(&text);
    Ok(file)
}

/// How long what is written is.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a file says.
///
/// # Errors
///
/// [`Wrong`], also if a single byte is another.
pub(super) fn decode(file: &[u8]) -> Result<LastGood, Wrong> {
    let line_len = file.iter().take(LINE_MAX).position(|&byte| byte == b'\n');
    let (line, content) = file.split_at(line_len.ok_or(Wrong::Damaged)? + 1);
    let words = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix(BEGIN));
    let (version, _) = words.and_then(|words| words.split_once(' ')).ok_or(Wrong::Damaged)?;
    let version = version.parse().map_err(|_| Wrong::Damaged)?;
    // Another version may have another line.
    if !(VERSION_MIN..=VERSION).contains(&version) {
        return Err(Wrong::Version(version));
    }
    if first_line(version, content).as_bytes() != line {
        return Err(Wrong::Damaged);
    }
    let content: Content<'_> = serde_json::from_slice(content).map_err(|_| Wrong::Damaged)?;
    let answers = content.answers.into_iter().map(answer);
    let resources = content.resources.into_iter().map(resource);
    let serving = content.serving.into_iter().map(resource);
    let serving = serving.map(|it| it.map(|(key, kept)| (key, Some(kept))));
    Ok(LastGood {
        answers: answers.collect::<Option<_>>().ok_or(Wrong::Damaged)?,
        resources: resources.collect::<Option<_>>().ok_or(Wrong::Damaged)?,
        serving: serving.collect::<Option<_>>().ok_or(Wrong::Damaged)?,
        unusable: None,
    })
}

fn written<'a>((key, kept): (&'a ResourceKey, &'a KeptResource)) -> Resource<'a> {
    Resource {
        source: Cow::Borrowed(&*key.source),
        resource: Cow::Owned(key.name.to_string()),
        version: Cow::Borrowed(&*kept.version),
        at: kept.at,
        content: Cow::Borrowed(&*kept.content),
    }
}

fn first_line(version: u32, content: &[u8]) -> String {
    format!("{BEGIN}{version} {:016x}\n", xxh64(content, version.into()))
}

fn answer(answer: Answer<'_>) -> Option<(NameKey, KeptAnswer)> {
    let Answer { host, port, mode, family, at, endpoints } = answer;
    if endpoints.iter().any(|it| it.address.port() == 0) {
        return None;
    }
    let key = NameKey { host: host.into(), port, mode, family };
    let endpoints = endpoints.into_iter().map(|Endpoint { address, weight, priority, host }| {
        Resolved { address, weight, priority, host: host.into() }
    });
    Some((key, KeptAnswer { endpoints: endpoints.collect(), at }))
}

fn resource(resource: Resource<'_>) -> Option<(ResourceKey, KeptResource)> {
    let Resource { source, resource, version, at, content } = resource;
    let name: ResourceName = resource.parse().ok()?;
    let key = ResourceKey { source: source.into(), name };
    let content = content.into_owned().into();
    Some((key, KeptResource { version: version.into(), content, at }))
}

#[cfg(test)]
mod tests {
    use config::ResourceKind;

    use super::*;

    fn some() -> LastGood {
        let key = |host: &str, port, mode| NameKey {
            host: host.into(),
            port: NonZeroU16::new(port),
            mode,
            family: DnsFamily::PreferV4,
        };
        let resolved = |address: &str, weight| Resolved {
            address: address.parse().unwrap(),
            weight: NonZeroU16::new(weight).unwrap(),
            priority: 1,
            host: "a.test".into(),
        };
        let answer = |endpoints: Vec<_>, at| KeptAnswer { endpoints: endpoints.into(), at };
        let resource = |name: &str, content: &str| {
            let name = ResourceName::new(ResourceKind::Cluster, name);
            let key = ResourceKey { source: "folder".into(), name };
            (key, KeptResource { version: "7".into(), content: content.into(), at: u64::MAX })
        };
        LastGood {
            answers: [
                (
                    key("a.test", 80, DnsMode::Strict),
                    answer(vec![resolved("10.0.0.1:80", 1), resolved("[::1]:80", 65_535)], 1),
                ),
                (key("_a._tcp.test", 0, DnsMode::Srv), answer(vec![resolved("10.0.0.2:81", 3)], 2)),
            ]
            .into(),
            resources: [
                resource("web", "name: web\nendpoints: [\"10.0.0.1:80\"] # \u{fc} \\ \u{1}\n"),
                resource("api/\"x\"", "{}"),
            ]
            .into(),
            serving: [
                resource("web", "name: web\nendpoints: []"),
                resource("gone", "name: gone\nendpoints: []"),
            ]
            .map(|(key, kept)| (key, Some(kept)))
            .into(),
            unusable: None,
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        for (kept, version) in [(LastGood::default(), 2), (some(), 3)] {
            let file = encode(&kept).unwrap();
            assert!(file.starts_with(format!("{BEGIN}{version} ").as_bytes()));
            assert_eq!(decode(&file), Ok(kept));
        }
    }

    #[test]
    fn a_file_with_any_byte_changed_missing_or_added_is_refused() {
        let whole = encode(&some()).unwrap();
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.to_vec();
                damaged[place] ^= 1 << bit;
                assert!(decode(&damaged).is_err(), "bit {bit} of byte {place}");
            }
            assert!(decode(&whole[..place]).is_err(), "{place} bytes");
            assert!(decode(&whole[place + 1..]).is_err(), "without {place} bytes");
            for byte in [0, b' ', b'\n', b'1'] {
                let mut longer = whole.to_vec();
                longer.insert(place, byte);
                assert!(decode(&longer).is_err(), "{byte} before byte {place}");
            }
        }
        assert!(decode(&[&whole[..], b" "].concat()).is_err());
    }

    #[test]
    fn files_of_versions_before_are_read() {
        let content = r#"{"answers":[],"resources":[]}"#;
        let file = first_line(VERSION_MIN, content.as_bytes()) + content;
        assert_eq!(decode(file.as_bytes()), Ok(LastGood::default()));
        let content = r#"{"answers":[{"host":"a","port":80,"mode":"strict","family":"all","at":1,"endpoints":[{"address":"10.0.0.1:80","weight":2,"host":"a"}]}],"resources":[],"serving":[]}"#;
        let file = first_line(VERSION_WITHOUT_PRIORITIES, content.as_bytes()) + content;
        let answers = decode(file.as_bytes()).unwrap().answers;
        let endpoints: Vec<_> = answers.values().flat_map(|it| it.endpoints.to_vec()).collect();
        assert_eq!(endpoints.iter().map(|it| it.priority).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn another_version_is_named_whatever_follows() {
        for file in ["strait state 4 \n", "strait state 4 sha256:00 zstd\n\0\u{1}"] {
            assert_eq!(decode(file.as_bytes()), Err(Wrong::Version(4)));
        }
        assert_eq!(decode(b"strait state 4294967296 0\n"), Err(Wrong::Damaged));
    }

    #[test]
    fn content_that_no_process_wrote_is_refused_with_a_good_checksum() {
        let resource = |name: &str| {
            format!(
                r#"{{"answers":[],"resources":[{{"source":"a","resource":"{name}","version":"1","at":1,"content":""}}]}}"#
            )
        };
        let endpoint = |port, weight| {
            format!(
                r#"{{"answers":[{{"host":"a","port":1,"mode":"strict","family":"all","at":1,"endpoints":[{{"address":"10.0.0.1:{port}","weight":{weight},"host":"a"}}]}}],"resources":[]}}"#
            )
        };
        for (content, is_good) in [
            (resource("cluster/web"), true),
            (resource("web"), false),
            (resource("tree/web"), false),
            (endpoint(1, 1), true),
            (endpoint(0, 1), false),
            (endpoint(1, 0), false),
            (endpoint(1, 65_536), false),
            ("{}".to_owned(), false),
            (r#"{"answers":[],"resources":[],"more":1}"#.to_owned(), false),
            (String::new(), false),
        ] {
            let file = first_line(VERSION, content.as_bytes()) + &content;
            assert_eq!(decode(file.as_bytes()).is_ok(), is_good, "{content}");
        }
    }
}
