//! The paths of the admin interface, and how a request finds one.

use std::fmt::Write as _;

use config::drained::DrainChange;
use config::percent::Percent;
use config::{Problem, ResourceName};

use super::answer::Answer;
use super::connections::Wanted;
use super::explain::{self, ExplainRequest};
use super::listing::Listing;
use crate::moves::ConnectionId;

/// How much `/ready` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadyDetail {
    /// Whether the process is ready, or why not.
    Reason,
    /// What else is wrong, too.
    Troubles,
    /// The process's mount namespace, too, by which containers that share a network differ.
    Namespace,
}

/// A page that control writes at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Index,
    Ready(ReadyDetail),
    Healthz,
    Metrics,
    Config,
    /// One resource of it.
    Resource(ResourceName),
    Clusters(Listing),
    Listeners(Listing),
    /// Route tables, and what they carry.
    Routes(Listing),
    Sources,
    Handover,
    Stats {
        filter: String,
    },
    Drain,
    Release,
    /// Values to put over those of the file, or to take back.
    Runtime(Vec<(String, Option<Percent>)>),
    /// An endpoint to drain, or to take back.
    Drained(DrainChange),
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Page(Page),
    Slow {
        as_text: bool,
    },
    Connections(Wanted),
    Explain(ExplainRequest),
    /// A connection, of this process or of that with an id, is to move to that worker.
    Move(Option<u32>, ConnectionId, u32),
    /// Nothing that there is; what to say.
    Nothing(Answer),
    /// The path has another method; `allow` says which.
    WrongMethod {
        allow: &'static str,
    },
}

/// Every path with its methods and what it shows.
const PATHS: &[(&str, &str, &str)] = &[
    (
        "GET, HEAD",
        "/ready",
        "200 once every worker serves; 503 while starting and while draining; ?verbose has reasons",
    ),
    ("GET, HEAD", "/healthz", "200 while the control thread responds"),
    ("GET, HEAD", "/metrics", "all metrics, for Prometheus"),
    (
        "GET, HEAD",
        "/stats",
        "the metrics as plain lines; ?filter= selects by a part of the name, with *",
    ),
    ("GET, HEAD", "/slow", "the slowest recent requests, stage by stage; ?format=text for people"),
    ("GET, HEAD", "/connections", "open connections, a page at a time; ?limit="),
    (
        "GET, HEAD",
        "/config",
        "the configuration in use, its version, and the last error; ?resource=cluster/NAME",
    ),
    (
        "GET, HEAD",
        "/clusters",
        "clusters, their endpoints and load; ?filter=, &sort=, &limit=, &endpoints=no",
    ),
    ("GET, HEAD", "/listeners", "listeners, their addresses and load; ?filter="),
    (
        "GET, HEAD",
        "/routes",
        "route tables, and how many requests each rule and weighted cluster got; ?filter=, &rules=weighted",
    ),
    ("GET, HEAD", "/sources", "the sources of endpoints and clusters, and their state"),
    ("GET, HEAD", "/handover", "the last handover to or from another process, by phase"),
    (
        "GET, HEAD",
        "/explain",
        "the route of a request, with reasons; ?url=http://HOST/PATH, &method=, &header=, &listener=",
    ),
    (
        "POST",
        "/clusters/NAME/endpoints/ADDRESS",
        "?health=drain gives the endpoint no new requests, ?health= takes it back",
    ),
    ("POST", "/connections/move", "?connection=ID&to=WORKER moves a connection and its group"),
    ("POST", "/runtime", "?canary=50 overrides a value of the file, ?canary= removes the override"),
    ("POST", "/drain", "stop accepting, finish active exchanges, exit"),
    ("POST", "/release", "while draining: release the admin addresses for another process"),
];

/// What a request with this line asks for. `wants_text` is what its `Accept` says.
pub(super) fn find(method: &str, path: &str, query: &str, wants_text: bool) -> Asked {
    let named = path.strip_prefix("/clusters/").and_then(|it| it.split_once("/endpoints/"));
    if let Some(named) = named {
        return match drain(named, query) {
            _ if method != "POST" => Asked::WrongMethod { allow: "POST" },
            Ok(change) => Asked::Page(Page::Drained(change)),
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        };
    }
    let has = |known: &str| arguments(query).any(|(name, _)| name == known);
    let page = match path {
        "/" => Asked::Page(Page::Index),
        "/ready" => Asked::Page(Page::Ready(match (has("verbose"), has("namespace")) {
            (true, _) => ReadyDetail::Troubles,
            (false, true) => ReadyDetail::Namespace,
            (false, false) => ReadyDetail::Reason,
        })),
        "/healthz" => Asked::Page(Page::Healthz),
        "/metrics" => Asked::Page(Page::Metrics),
        "/config" => match config(query) {
            Ok(page) => Asked::Page(page),
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        },
        "/clusters" | "/listeners" | "/routes" => match Listing::read(arguments(query)) {
            Ok(listing) if path == "/clusters" => Asked::Page(Page::Clusters(listing)),
            Ok(listing) if path == "/routes" => Asked::Page(Page::Routes(listing)),
            Ok(listing) => Asked::Page(Page::Listeners(listing)),
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        },
        "/sources" => Asked::Page(Page::Sources),
        "/handover" => Asked::Page(Page::Handover),
        "/explain" if query.is_empty() => Asked::Nothing(Answer::text(200, explain::USAGE)),
        "/explain" => match explain::wanted(arguments(query)) {
            Ok(request) => Asked::Explain(request),
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        },
        "/stats" => match only(query, ["filter"]) {
            Ok([filter]) => Asked::Page(Page::Stats { filter: filter.unwrap_or_default() }),
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        },
        "/runtime" => match runtime(query) {
            Ok(values) => Asked::Page(Page::Runtime(values)),
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        },
        "/drain" => Asked::Page(Page::Drain),
        "/release" => Asked::Page(Page::Release),
        "/slow" => match slow(query) {
            Ok(as_text) => Asked::Slow { as_text: as_text.unwrap_or(wants_text) },
            Err(hint) => Asked::Nothing(Answer::text(400, hint + "\n")),
        },
        "/connections" => match connections(query) {
            Ok(wanted) => Asked::Connections(wanted),
            Err(problem) => Asked::Nothing(Answer::text(400, problem + "\n")),
        },
        "/connections/move" => match wanted_move(query) {
            Ok((process, connection, to)) => Asked::Move(process, connection, to),
            Err(problem) => Asked::Nothing(Answer::text(400, problem + "\n")),
        },
        _ => return Asked::Nothing(not_found(path)),
    };
    let is_operation = matches!(path, "/connections/move" | "/drain" | "/release" | "/runtime");
    let allow = if is_operation { "POST" } else { "GET, HEAD" };
    if allow.split(", ").any(|allowed| allowed == method) {
        page
    } else {
        Asked::WrongMethod { allow }
    }
}

/// Whether slow requests are to be shown as text, if a query says that.
fn slow(query: &str) -> Result<Option<bool>, String> {
    let [format] = only(query, ["format"])?;
    match format.as_deref() {
        None => Ok(None),
        Some("text") => Ok(Some(true)),
        Some("json") => Ok(Some(false)),
        Some(_) => Err("format: text or json".to_owned()),
    }
}

/// The connections that a query asks for.
fn connections(query: &str) -> Result<Wanted, String> {
    let [limit, after] = only(query, ["limit", "after"])?;
    Wanted::new(limit.as_deref(), after.as_deref())
}

/// The configuration, or the one resource of it that a query names.
fn config(query: &str) -> Result<Page, String> {
    let mut arguments = arguments(query);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(Page::Config),
        (Some((name, value)), None) if name == "resource" => {
            let resource = value.parse().map_err(|hint| format!("resource: {hint}"))?;
            Ok(Page::Resource(resource))
        }
        (Some((name, _)), None) => Err(format!("{name}: the only parameter is resource")),
        (Some(_), Some((name, _))) => Err(format!("{name}: one resource at a time")),
    }
}

/// The values that a query names.
fn runtime(query: &str) -> Result<Vec<(String, Option<Percent>)>, String> {
    let mut values = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(format!(
                "{}: write {pair}=50, or {pair}= to remove the override",
                decode(pair)
            ));
        };
        let (name, value) = (decode(name), decode(value));
        let value = match value.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|problem| format!("{name}: {problem}"))?),
        };
        values.push((name, value));
        if values.len() > RUNTIME_VALUES_MAX {
            return Err(format!("at most {RUNTIME_VALUES_MAX} values at a time"));
        }
    }
    Ok(values)
}

/// The endpoint of a path behind `/clusters/`, and what is to be with it.
fn drain((cluster, endpoint): (&str, &str), query: &str) -> Result<DrainChange, String> {
    let (cluster, endpoint) = (decode(cluster), decode(endpoint));
    let [health] = only(query, ["health"])?;
    let is_drained = match health.as_deref() {
        Some("drain") => true,
        Some("") => false,
        _ => {
            return Err(
                "health: write ?health=drain, or ?health= to take the endpoint back".to_owned()
            );
        }
    };
    let endpoint =
        endpoint.parse().map_err(|problem: Problem| format!("{endpoint:?}: {problem}"))?;
    Ok(DrainChange { cluster: cluster.into(), endpoint, is_drained })
}

/// Which connection is to move, and to which worker.
fn wanted_move(query: &str) -> Result<(Option<u32>, ConnectionId, u32), String> {
    let [connection, to] = only(query, ["connection", "to"])?;
    let connection = connection.unwrap_or_default();
    let (process, connection) = match connection.split_once(':') {
        None => (None, connection.as_str()),
        Some((process, connection)) => {
            let expected = "connection: the number of a process before the colon";
            (Some(process.parse().map_err(|_| expected.to_owned())?), connection)
        }
    };
    let connection = connection.parse().map_err(|expected| format!("connection: {expected}"))?;
    let to = to.unwrap_or_default();
    let to = to.parse().map_err(|_| "to: the number of a worker, from 0".to_owned())?;
    Ok((process, connection, to))
}

/// Values that one request changes.
const RUNTIME_VALUES_MAX: usize = 100;

/// The same for what scrapers and probes may ask for.
pub(super) fn find_metrics(method: &str, path: &str, query: &str) -> Asked {
    match path {
        "/metrics" | "/ready" | "/healthz" | "/release" => find(method, path, query, false),
        _ => {
            let text = "/metrics, /ready and /healthz are served here; the other pages are on \
                        `admin.address`\n";
            Asked::Nothing(Answer::text(404, text))
        }
    }
}

fn not_found(path: &str) -> Answer {
    // Most wrong paths are a right one with a slash, a plural or an `s` too many.
    let stem = |path: &str| path.trim_matches('/').trim_end_matches('s').to_ascii_lowercase();
    let near = PATHS.iter().find(|(_, known, _)| stem(known) == stem(path));
    let mut text = "there is no such page".to_owned();
    if let Some((_, near, _)) = near {
        let _ = write!(text, "; did you mean {near}?");
    }
    text.push_str("\n\n");
    for (methods, path, what) in PATHS {
        let method = methods.split(',').next().unwrap_or_default();
        let _ = writeln!(text, "{method:<4} {path:<13} {what}");
    }
    Answer::text(404, text)
}

/// The values of the arguments of these names; there may be no others, and each once.
fn only<const N: usize>(query: &str, names: [&str; N]) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    for (name, value) in arguments(query) {
        let place = names.iter().position(|known| *known == name);
        match place.and_then(|place| values.get_mut(place)) {
            Some(place @ None) => *place = Some(value),
            Some(Some(_)) => return Err(format!("{name}: write it once")),
            None => return Err(format!("{name}: unknown; known here: {}", names.join(", "))),
        }
    }
    Ok(values)
}

/// All arguments, in their order.
fn arguments(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    })
}

/// Undoes the encoding of a form's values. What is not well encoded stays as it is.
fn decode(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let hex = match rest {
            [b'%', high, low, ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                digit(high).zip(digit(low)).and_then(|(h, l)| u8::try_from(16 * h + l).ok())
            }
            _ => None,
        };
        bytes.push(hex.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        rest = if hex.is_some() { rest.get(3..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The page that shows the others.
pub(crate) fn index(version: &str, state: &str, config_version: u64) -> Answer {
    let mut rows = String::new();
    for (methods, path, what) in PATHS {
        // A link can only GET.
        let name = match methods.strip_prefix("POST") {
            Some(_) => format!("<code>POST {path}</code>"),
            None => format!("<a href=\"{path}\"><code>{path}</code></a>"),
        };
        let _ = writeln!(rows, "<tr><td>{name}</td><td>{what}</td></tr>");
    }
    Answer::html(format!(
        "<!doctype html>\n\
         <html lang=\"en\"><head><meta charset=\"utf-8\"><title>Strait</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <style>\n\
         :root {{ color-scheme: light dark }}\n\
         body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1rem }}\n\
         h1 {{ margin: 0; letter-spacing: .02em }}\n\
         p {{ margin: 0 0 1.5rem; opacity: .75 }}\n\
         table {{ border-collapse: collapse; width: 100% }}\n\
         td {{ padding: .45rem .9rem .45rem 0; border-top: 1px solid #8884; vertical-align: top }}\n\
         code {{ font: 14px ui-monospace, monospace; white-space: nowrap }}\n\
         </style></head><body>\n\
         <h1>Strait</h1>\n\
         <p>version {version} &middot; {state} &middot; configuration {config_version}</p>\n\
         <table>\n{rows}</table>\n</body></html>\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_path_is_found_by_its_method_and_no_other() {
        for (methods, path, _) in PATHS {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "get"] {
                // These have nothing to say without.
                let (path, query) = match *path {
                    "/clusters/NAME/endpoints/ADDRESS" => {
                        ("/clusters/a%2Fb/endpoints/127.0.0.1:9000", "health=drain")
                    }
                    "/explain" => ("/explain", "url=/"),
                    "/connections/move" => (*path, "connection=0.1.2&to=1"),
                    path => (path, ""),
                };
                let asked = find(method, path, query, false);
                if methods.split(", ").any(|listed| listed == method) {
                    assert!(
                        !matches!(asked, Asked::Nothing(_) | Asked::WrongMethod { .. }),
                        "{path}"
                    );
                } else {
                    assert_eq!(asked, Asked::WrongMethod { allow: methods }, "{method} {path}");
                }
            }
        }
    }

    #[test]
    fn values_are_read_from_the_query() {
        let asked = |query| find("POST", "/runtime", query, false);
        let percent = |text: &str| Some(text.parse().unwrap());
        let values = vec![("canary".to_owned(), percent("50")), ("b c".to_owned(), None)];
        assert_eq!(asked("canary=50%25&b+c="), Asked::Page(Page::Runtime(values)));
        for query in ["canary", "canary=x", "canary=101", "a=1&canary=-1", &"a=1&".repeat(101)] {
            let Asked::Nothing(answer) = asked(query) else { panic!("{query}") };
            assert_eq!(answer.status, 400, "{query}");
        }
    }

    #[test]
    fn an_endpoint_is_named_by_its_cluster_and_address() {
        let asked = |path, query| find("POST", path, query, false);
        let change = |cluster: &str, endpoint: &str, is_drained| {
            let (cluster, endpoint) = (cluster.into(), endpoint.parse().unwrap());
            Asked::Page(Page::Drained(DrainChange { cluster, endpoint, is_drained }))
        };
        for (path, query, change) in [
            (
                "/clusters/api/endpoints/127.0.0.1:9",
                "health=drain",
                change("api", "127.0.0.1:9", true),
            ),
            ("/clusters/api/endpoints/127.0.0.1:9", "health=", change("api", "127.0.0.1:9", false)),
            ("/clusters/a%2Fb/endpoints/%5B::1%5D:9", "health=", change("a/b", "[::1]:9", false)),
            ("/clusters/a/endpoints/unix:/run/a", "health=drain", change("a", "unix:/run/a", true)),
        ] {
            assert_eq!(asked(path, query), change, "{path}");
        }
        for (path, query, what) in [
            ("/clusters/api/endpoints/127.0.0.1:9", "", "health: "),
            ("/clusters/api/endpoints/127.0.0.1:9", "health=ill", "health: "),
            (
                "/clusters/api/endpoints/127.0.0.1:9",
                "health=drain&health=",
                "health: write it once",
            ),
            ("/clusters/api/endpoints/127.0.0.1", "health=drain", "\"127.0.0.1\": "),
            ("/clusters/api/endpoints/", "health=drain", "\"\": "),
        ] {
            let Asked::Nothing(answer) = asked(path, query) else { panic!("{path}") };
            assert_eq!(answer.status, 400, "{path}");
            assert!(answer.body.starts_with(what.as_bytes()), "{path}");
        }
        let Asked::Nothing(answer) = asked("/clusters/api", "health=drain") else { panic!() };
        assert_eq!(answer.status, 404);
    }

    #[test]
    fn a_move_names_a_connection_and_a_worker() {
        let asked = |query| find("POST", "/connections/move", query, false);
        let id = ConnectionId { worker: 0, slot: 17, generation: 2 };
        assert_eq!(asked("connection=0.17.2&to=1"), Asked::Move(None, id, 1));
        assert_eq!(asked("connection=4711%3A0.17.2&to=1"), Asked::Move(Some(4711), id, 1));
        assert_eq!(asked("connection=4711:0.17.2&to=1"), Asked::Move(Some(4711), id, 1));
        for (query, what) in [
            ("", "connection: "),
            ("to=1", "connection: "),
            ("connection=0.17&to=1", "connection: "),
            ("connection=x:0.17.2&to=1", "connection: "),
            ("connection=:0.17.2&to=1", "connection: "),
            ("connection=1:1:0.17.2&to=1", "connection: "),
            ("connection=0.17.2", "to: "),
            ("connection=0.17.2&to=-1", "to: "),
            ("connection=0.17.2&to=x", "to: "),
            ("connection=0.17.2&to=1&to=0", "to: write it once"),
            ("connection=0.17.2&to=1&worker=0", "worker: unknown; known here: connection, to"),
        ] {
            let Asked::Nothing(answer) = asked(query) else { panic!("{query}") };
            assert_eq!(answer.status, 400, "{query}");
            assert!(answer.body.starts_with(what.as_bytes()), "{query}");
        }
    }

    #[test]
    fn an_unknown_path_lists_the_known_ones_and_hints_at_a_near_one() {
        for (path, near) in
            [("/metric", "/metrics"), ("/cluster/", "/clusters"), ("/Stats", "/stats")]
        {
            let Asked::Nothing(answer) = find("GET", path, "", false) else { panic!("{path}") };
            assert_eq!(answer.status, 404);
            let text = String::from_utf8(answer.body).unwrap();
            assert!(text.contains(&format!("did you mean {near}?")), "{text}");
        }
        let Asked::Nothing(answer) = find("GET", "/x", "", false) else { panic!() };
        let text = String::from_utf8(answer.body).unwrap();
        assert!(!text.contains("did you mean"));
        assert!(PATHS.iter().all(|(_, path, _)| text.contains(path)));
    }

    #[test]
    fn slow_requests_come_as_the_query_or_else_accept_asks() {
        let slow = |as_text| Asked::Slow { as_text };
        assert_eq!(find("GET", "/slow", "", false), slow(false));
        assert_eq!(find("GET", "/slow", "", true), slow(true));
        assert_eq!(find("GET", "/slow", "format=text", false), slow(true));
        assert_eq!(find("GET", "/slow", "format=json", true), slow(false));
        assert!(matches!(find("GET", "/slow", "format=x", true), Asked::Nothing(_)));
    }

    #[test]
    fn a_resource_is_asked_for_by_kind_and_name() {
        let asked = |query| find("GET", "/config", query, false);
        assert_eq!(asked(""), Asked::Page(Page::Config));
        let Asked::Page(Page::Resource(resource)) = asked("resource=cluster%2Fweb") else {
            panic!()
        };
        assert_eq!(resource.to_string(), "cluster/web");
        for query in ["resource=web", "resource=endpoint/web", "resource="] {
            let Asked::Nothing(answer) = asked(query) else { panic!("{query}") };
            assert_eq!(answer.status, 400);
            let text = String::from_utf8(answer.body).unwrap();
            assert!(text.contains("KIND/NAME with a kind of listener, route, cluster"), "{text}");
        }
    }

    #[test]
    fn arguments_are_decoded_and_bad_encoding_stays() {
        for (query, value) in [
            ("filter=a*b", "a*b"),
            ("x=1&filter=a%2Ab+c", "a*b c"),
            ("filter=%", "%"),
            ("filter=%4", "%4"),
            ("filter=%zz", "%zz"),
            ("filter=%ff", "\u{fffd}"),
            ("filter", ""),
        ] {
            let [_, filter] = only(query, ["x", "filter"]).unwrap();
            assert_eq!(filter.as_deref(), Some(value), "{query}");
        }
        assert_eq!(only("", ["filter"]), Ok([None]));
        assert!(only("filters=x", ["filter"]).is_err());
    }

    #[test]
    fn the_documentation_shows_every_path_with_its_method() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (methods, path, _) in PATHS {
            let method = if methods.starts_with("GET") { "" } else { "POST " };
            assert!(page.contains(&format!("| `{method}{path}` |")), "{method}{path}");
        }
    }

    #[test]
    fn the_index_shows_every_path() {
        let page = String::from_utf8(index("1.2.3", "ready", 7).body).unwrap();
        assert!(PATHS.iter().all(|(_, path, _)| page.contains(path)));
        assert!(page.contains("version 1.2.3"));
    }
}
