//! Paths that are written as patterns, as other programs have them: regular expressions, variables and
//! stars. Here a path is compared as it is.

use std::sync::Arc;

use crate::findings::Problem;
use crate::sections::http::{check_path_bytes, must_be_encoded};

/// A path or a prefix that requests are compared with, in the form that requests have after they
/// were normalised. Slashes in a row stay: what they are is a matter of the listener.
pub(crate) fn path_text(path: &str, is_prefix: bool) -> Result<Arc<str>, Problem> {
    if let Some(problem) = refused(path, is_prefix) {
        return Err(problem);
    }
    if let Some((_, behind)) = path.split_once("://").filter(|_| !path.starts_with('/')) {
        let of_url = behind.split(['?', '#']).next().unwrap_or_default();
        let of_url = of_url.find('/').and_then(|at| of_url.get(at..)).unwrap_or("/");
        let rule =
            "this is a URL, and a path is needed here: a route table has `hosts` for the host";
        return Err(Problem::new(rule, format!("write {of_url:?}")));
    }
    if !path.starts_with('/') {
        return Err(Problem::new(
            "a path begins with `/`",
            format!("write {:?}", format!("/{path}")),
        ));
    }
    if let Some(at) = path.find(['?', '#']) {
        let rule = "a path is matched without query and fragment";
        return Err(Problem::new(rule, format!("write {:?}", path.get(..at).unwrap_or("/"))));
    }
    if let Some(bracket) = path.chars().find(|c| matches!(c, '[' | ']')) {
        return Err(must_be_encoded(bracket));
    }
    check_path_bytes(path)?;
    let mut normal = Vec::with_capacity(path.len());
    wire::path::normalise_octets(path.as_bytes(), &mut normal).map_err(|error| {
        let hint = "remove it: requests with it are refused";
        Problem::new(error.to_string(), hint)
    })?;
    let mut segments = normal.split(|&octet| octet == b'/').peekable();
    while let Some(segment) = segments.next() {
        // The last segment of a prefix goes on in the request: `/.` begins `/.well-known`.
        let is_whole = !is_prefix || segments.peek().is_some();
        if is_whole && matches!(segment, b"." | b"..") {
            let rule = "dot segments are resolved before a path is matched";
            return Err(Problem::new(rule, "write the path without `.` and `..` segments"));
        }
    }
    Ok(Arc::from(String::from_utf8_lossy(&normal)))
}

/// What is to be said of a path that no request can have, because it is a pattern.
pub(crate) fn refused(path: &str, is_prefix: bool) -> Option<Problem> {
    // `~ ^/api` and `~* \.php$` are nginx's.
    let expression = path.strip_prefix('~').map(|path| path.trim_start_matches('*').trim_start());
    if let Some(anchored) = expression.unwrap_or(path).strip_prefix('^') {
        return Some(expression_problem(anchored, is_prefix));
    }
    if expression.is_some_and(|path| path.starts_with('/')) {
        return Some(expression_problem(expression.unwrap_or_default(), true));
    }
    let rule = "a path is compared as it is: write variables in a `template`";
    let variable = path.find('{').filter(|at| path.get(*at..).is_some_and(|it| it.contains('}')));
    let fixed = path.get(..variable?).filter(|fixed| fixed.starts_with('/'))?;
    let hint = match is_prefix {
        true => instead(fixed, true),
        false => format!("write `template: {path:?}` in the place of `path`"),
    };
    Some(Problem::new(rule, hint))
}

/// What is to be said of a path that requests can have, but looks like a pattern.
pub(crate) fn suspicious(path: &str, is_prefix: bool) -> Option<Problem> {
    let variable = path.match_indices("/:").find(|(at, _)| {
        path.get(at + 2..).is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
    });
    if let Some((at, _)) = variable {
        let rule = "a path is compared as it is, so this rule is only for paths with a `:` there";
        return Some(Problem::new(rule, instead(path.get(..=at)?, is_prefix)));
    }
    let star = path.find('*').filter(|_| path != "*")?;
    let fixed = path.get(..star)?;
    let fixed = fixed.strip_suffix('.').unwrap_or(fixed);
    let rule = "`*` is compared as it is, so this rule is only for paths with a `*` there";
    Some(Problem::new(rule, instead(fixed, is_prefix)))
}

fn expression_problem(anchored: &str, is_prefix: bool) -> Problem {
    let rule = "a path is compared as it is: write a regular expression under `regex`";
    let is_whole = anchored.ends_with('$');
    let special = |c: char| matches!(c, '$' | '(' | '[' | '.' | '*' | '+' | '?' | '\\' | '|' | '{');
    let fixed = anchored.split(special).next().unwrap_or_default();
    if path_text(fixed, true).is_err() {
        return Problem::new(rule, "write the part that is fixed as `prefix`, such as /api/");
    }
    let is_exact = is_whole && anchored.len() == fixed.len() + 1;
    let hint = match (is_exact, is_prefix) {
        (true, true) => format!("write `path: {fixed}` in the place of `prefix`"),
        (true, false) => format!("write {fixed:?}"),
        (false, _) => instead(fixed, is_prefix),
    };
    Problem::new(rule, hint)
}

/// How everything below `fixed` is matched.
fn instead(fixed: &str, is_prefix: bool) -> String {
    if is_prefix {
        format!("write {fixed:?}, which matches everything below it")
    } else {
        format!("write `prefix: {fixed}` in the place of `path`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_no_request_can_have_are_refused() {
        for (path, hint) in [
            ("api", "write \"/api\""),
            ("", "write \"/\""),
            ("/a?b=c", "write \"/a\""),
            ("/a#b", "write \"/a\""),
            ("/a b", "write %20"),
            ("/é", "write %C3%A9"),
            ("/a/../b", "without `.`"),
            ("/a/%2e%2E/b", "without `.`"),
            ("/a/.", "without `.`"),
            ("/100%", "write %25"),
            ("/%zz", "write %25"),
            ("/\u{7f}", "write %7F"),
            ("/a\\b", "write %5C"),
            ("/a[0]", "write %5B"),
            ("/a%00", "remove it"),
        ] {
            let problem = path_text(path, false).unwrap_err();
            assert!(problem.hint.contains(hint), "{path}: {problem}");
        }
        for path in ["/", "/a%2Fb", "/a//b", "/...", "/.well-known/x", "/~a;b=c,d@e:f!$&'()*+"] {
            assert_eq!(path_text(path, false).as_deref(), Ok(path), "{path}");
        }
    }

    #[test]
    fn paths_are_kept_in_the_spelling_of_requests() {
        for (path, normal) in [
            ("/g%c3%a9rance/", "/g%C3%A9rance/"),
            ("/%61dmin/", "/admin/"),
            ("/a%2fb%2Bc+d", "/a%2Fb%2Bc+d"),
            ("/%7b%5b", "/%7B%5B"),
        ] {
            assert_eq!(path_text(path, false).as_deref(), Ok(normal));
            assert_eq!(path_text(path, true).as_deref(), Ok(normal));
        }
    }

    #[test]
    fn a_prefix_may_end_within_a_segment_that_begins_with_a_dot() {
        assert_eq!(path_text("/.", true).as_deref(), Ok("/."));
        assert_eq!(path_text("/%2e", true).as_deref(), Ok("/."));
        assert!(path_text("/./", true).is_err());
        assert!(path_text("/a/../", true).is_err());
    }

    #[test]
    fn patterns_that_no_request_has_are_refused_with_the_path_that_was_meant() {
        for (path, is_prefix, hint) in [
            ("^/api", true, "write \"/api\", which"),
            ("^/api$", true, "write `path: /api`"),
            ("^/api$", false, "write \"/api\""),
            ("^/api/.*", true, "write \"/api/\", which"),
            ("^/api/(a|b)$", false, "write `prefix: /api/`"),
            ("~ ^/api", true, "write \"/api\", which"),
            ("~* /img/.*", true, "write \"/img/\", which"),
            ("^api", true, "such as /api/"),
            ("/users/{id}", true, "write \"/users/\", which"),
            ("/users/{id}/x", false, "write `template: \"/users/{id}/x\"`"),
        ] {
            let problem = refused(path, is_prefix).unwrap_or_else(|| panic!("{path}"));
            assert!(problem.hint.contains(hint), "{path}: {problem}");
        }
        for path in ["/", "/api", "/~user", "*", "/{", "{x}", "/a*"] {
            assert_eq!(refused(path, true), None, "{path}");
        }
    }

    #[test]
    fn what_looks_like_a_pattern_is_suspicious() {
        for (path, is_prefix, hint) in [
            ("/api/*", true, "write \"/api/\", which"),
            ("/api*", true, "write \"/api\", which"),
            ("/*", true, "write \"/\", which"),
            ("/api/.*", true, "write \"/api/\", which"),
            ("/api/*", false, "write `prefix: /api/`"),
            ("/users/:id", true, "write \"/users/\", which"),
            ("/users/:id/x", false, "write `prefix: /users/`"),
        ] {
            let problem = suspicious(path, is_prefix).unwrap_or_else(|| panic!("{path}"));
            assert!(problem.hint.contains(hint), "{path}: {problem}");
        }
        for path in ["/", "/api", "*", "/a:b", "/:1", "/."] {
            assert_eq!(suspicious(path, false), None, "{path}");
        }
    }
}
