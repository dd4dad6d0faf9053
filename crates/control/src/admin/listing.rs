//! Which entries `/clusters`, `/listeners` and `/routes` list: all of them, or as a query says.

use telemetry::Glob;

/// What a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The one that has this name.
    pub(crate) name: Option<String>,
    /// A part of their names, with `*`.
    pub(crate) filter: Option<String>,
    /// In which order; absent: that of the configuration.
    pub(crate) sort: Option<Sort>,
    /// How many of them; absent: all.
    pub(crate) limit: Option<usize>,
    /// Which of each cluster's endpoints.
    pub(crate) endpoints: EndpointsShown,
    /// Leaves out rules that do not have several clusters by weight, and tables without such rules.
    pub(crate) is_weighted_only: bool,
}

/// Which endpoints of each cluster are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndpointsShown {
    #[default]
    All,
    /// None: their number stands instead.
    Count,
    /// At most `count_max`, from the one at the place `first` on (from 0), with sums over all.
    Part { first: usize, count_max: usize },
}

/// An order: by name upwards, by a figure downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Name,
    /// By connections that are open.
    Active,
    /// By exchanges that wait.
    Pending,
    /// By exchanges that are over.
    Exchanges,
    /// By those that failed, and connections that could not be established.
    Failures,
}

impl Sort {
    const ALL: [(&str, Self); 5] = [
        ("name", Self::Name),
        ("active", Self::Active),
        ("pending", Self::Pending),
        ("exchanges", Self::Exchanges),
        ("failures", Self::Failures),
    ];
}

impl Listing {
    /// Reads the arguments of a query.
    pub(super) fn read(arguments: impl Iterator<Item = (String, String)>) -> Result<Self, String> {
        let mut listing = Self::default();
        let mut first = None;
        for (name, value) in arguments {
            match name.as_str() {
                "name" => listing.name = Some(value),
                "filter" => listing.filter = Some(value),
                "sort" => {
                    let found = Sort::ALL.iter().find(|(word, _)| *word == value);
                    let words = Sort::ALL.map(|(word, _)| word).join(", ");
                    listing.sort = Some(found.ok_or_else(|| format!("sort: one of {words}"))?.1);
                }
                "limit" => {
                    let number = value.parse().map_err(|_| "limit: a number".to_owned())?;
                    listing.limit = Some(number);
                }
                "endpoints" if value == "no" => listing.endpoints = EndpointsShown::Count,
                "endpoints" => {
                    let hint = || "endpoints: no or a number, or leave it out".to_owned();
                    let count_max = value.parse().map_err(|_| hint())?;
                    listing.endpoints = EndpointsShown::Part { first: 0, count_max };
                }
                "endpoints_from" => {
                    let hint = || "endpoints_from: a number, from 0".to_owned();
                    first = Some(value.parse().map_err(|_| hint())?);
                }
                "rules" if value == "weighted" => listing.is_weighted_only = true,
                "rules" => return Err("rules: weighted, or leave it out".to_owned()),
                _ => {
                    return Err(format!(
                        "{name}: unknown argument; there are name, filter, sort, limit, endpoints, endpoints_from and rules"
                    ));
                }
            }
        }
        match (first, &mut listing.endpoints) {
            (None, _) => Ok(listing),
            (Some(from), EndpointsShown::Part { first, .. }) => {
                *first = from;
                Ok(listing)
            }
            (Some(_), _) => Err("endpoints_from: write &endpoints=NUMBER, too".to_owned()),
        }
    }

    /// Says of names whether they are listed.
    pub(crate) fn names(&self) -> impl Fn(&str) -> bool {
        let glob = Glob::new(self.filter.as_deref().unwrap_or_default());
        move |name| glob.is_match(name) && self.name.as_deref().is_none_or(|only| only == name)
    }
}
