//! Command lines of the form `--name value --name value`.

use std::fmt::Display;
use std::io;
use std::str::FromStr;

/// Pairs of a name and a value.
#[derive(Debug)]
pub struct Arguments {
    pairs: Vec<(String, String)>,
}

impl Arguments {
    /// Reads the pairs from `words` (without the program's name).
    ///
    /// # Errors
    ///
    /// A name is not in `known`, has no value, or does not begin with two dashes.
    pub fn read(words: impl Iterator<Item = String>, known: &[&str]) -> io::Result<Self> {
        let mut words = words.peekable();
        let mut pairs = Vec::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").filter(|name| known.contains(name));
            let (Some(name), Some(value)) = (name, words.next()) else {
                let usage =
                    known.iter().fold(String::new(), |text, name| text + " --" + name + " …");
                return Err(invalid(format!("`{word}`; usage:{usage}")));
            };
            pairs.push((name.to_owned(), value));
        }
        Ok(Self { pairs })
    }

    /// The value of `name`, or none if it was not given.
    ///
    /// # Errors
    ///
    /// The value is not a `T`.
    pub fn find<T: FromStr<Err: Display>>(&self, name: &str) -> io::Result<Option<T>> {
        let Some((_, value)) = self.pairs.iter().rev().find(|(given, _)| given == name) else {
            return Ok(None);
        };
        let parsed =
            value.parse().map_err(|error| invalid(format!("--{name} {value}: {error}")))?;
        Ok(Some(parsed))
    }

    /// The value of `name`.
    ///
    /// # Errors
    ///
    /// It was not given, or is not a `T`.
    pub fn require<T: FromStr<Err: Display>>(&self, name: &str) -> io::Result<T> {
        self.find(name)?.ok_or_else(|| invalid(format!("--{name} is needed")))
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> io::Result<Arguments> {
        Arguments::read(words.iter().map(|&word| word.to_owned()), &["rate", "target"])
    }

    #[test]
    fn the_last_value_of_a_name_counts_and_a_missing_name_is_none() {
        let arguments = read(&["--rate", "1", "--rate", "2"]).unwrap();
        assert_eq!(arguments.require::<u32>("rate").unwrap(), 2);
        assert_eq!(arguments.find::<u32>("target").unwrap(), None);
        assert!(arguments.require::<u32>("target").is_err());
    }

    #[test]
    fn unknown_names_missing_values_and_wrong_values_are_errors() {
        for words in [&["--speed", "1"][..], &["--rate"], &["rate", "1"], &["-rate", "1"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
        assert!(read(&["--rate", "fast"]).unwrap().require::<u32>("rate").is_err());
    }
}
