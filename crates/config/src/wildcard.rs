//! Patterns of file names, in which `*` stands for any characters and `?` for one.

use std::path::Path;

/// Whether the name of a file fits a pattern, in which `*` stands for any characters and `?` for one. Names that begin with a
/// dot fit only patterns that do.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // The last `*`, and the place in the name up to which it stands for something.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || name.get(n) == Some(c) => {
                (p, n) = (p + 1, n + 1);
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// [`fits`], for the last parts of two paths.
#[must_use]
pub fn fits_path(pattern: &Path, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    name(pattern).zip(name(path)).is_some_and(|(pattern, name)| fits(&pattern, &name))
}

/// Whether a path names the files that fit its last part.
#[must_use]
pub fn is_pattern(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().any(|b| b"*?".contains(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns_as_in_a_shell() {
        for (pattern, name, is_fitting) in [
            ("*.yaml", "a.yaml", true),
            ("*.yaml", ".a.yaml", false),
            (".*.yaml", ".a.yaml", true),
            ("*.yaml", "a.yaml.old", false),
            ("*.yaml", ".yaml", false),
            ("*", "a", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a*bc", "abcbc", true),
            ("?.yaml", "é.yaml", true),
            ("?.yaml", "ab.yaml", false),
            ("a", "a", true),
            ("a", "b", false),
            ("**", "", true),
        ] {
            assert_eq!(fits(pattern, name), is_fitting, "{pattern} {name}");
        }
    }
}
