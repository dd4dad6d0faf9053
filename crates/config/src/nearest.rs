//! The known name that a misspelt one was probably meant to be.

/// The name among `known` that is nearest to `written`, if one is near enough to be meant.
///
/// Counts added, dropped, changed and swapped neighbouring letters; a third of the letters may
/// differ, and at least one. `-` and `_` are the same letter and case does not count, since both
/// are common slips.
pub(crate) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Cost is quadratic in the length; names are not that long.
    if written.chars().nth(WRITTEN_CHARS_MAX).is_some() {
        return None;
    }
    let written = plain(written);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(1))
        .filter(|(distance, name)| *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The hint for a name that is not among `known`: the nearest one, or all if they are few.
pub(crate) fn hint<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    none: &'static str,
) -> String {
    if let Some(name) = nearest(written, known.clone()) {
        return format!("did you mean `{name}`?");
    }
    let mut all: Vec<&str> = known.into_iter().take(LISTED_MAX + 1).collect();
    if all.is_empty() {
        return none.to_owned();
    }
    let dots = if all.len() > LISTED_MAX { ", …" } else { "" };
    all.truncate(LISTED_MAX);
    format!("known are: {}{dots}", all.join(", "))
}

/// Characters of a name for which a nearest one is looked for.
const WRITTEN_CHARS_MAX: usize = 64;

/// Names listed when none is near.
const LISTED_MAX: usize = 16;

fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["name", "address", "connect_timeout", "api", "web"];

    #[test]
    fn slips_find_what_was_meant() {
        for (written, meant) in [
            ("apj", "api"),
            ("adress", "address"),
            ("connect-timeout", "connect_timeout"),
            ("conect_timout", "connect_timeout"),
            ("Name", "name"),
            ("nmae", "name"),
        ] {
            assert_eq!(nearest(written, KEYS), Some(meant), "{written}");
        }
    }

    #[test]
    fn what_is_far_from_all_finds_nothing() {
        for written in ["retries", "x", "", "shop", &"a".repeat(1_000)] {
            assert_eq!(nearest(written, KEYS), None, "{written}");
        }
    }

    #[test]
    fn a_one_letter_name_is_not_meant_by_any_other_letter() {
        assert_eq!(nearest("b", ["a"]), None);
    }

    #[test]
    fn the_hint_lists_few_names_when_none_is_near() {
        assert_eq!(hint("zzz", ["a", "b"], "none"), "known are: a, b");
        assert_eq!(hint("zzz", [], "there are none"), "there are none");
        let many: Vec<String> = (100..200).map(|n| n.to_string()).collect();
        assert!(hint("zzz", many.iter().map(String::as_str), "").ends_with(", 115, …"));
    }
}
