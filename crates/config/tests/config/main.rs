//! The whole way from text to snapshot, as its users see it.

#[cfg(test)]
mod assignments;
#[cfg(test)]
mod chains;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod degraded;
#[cfg(test)]
mod deliveries;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod endpoints;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod hash;
#[cfg(test)]
mod hidden;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod include;
#[cfg(test)]
mod loads;
#[cfg(test)]
mod localities;
#[cfg(test)]
mod matching;
#[cfg(test)]
mod names;
#[cfg(test)]
mod origins;
#[cfg(test)]
mod outliers;
#[cfg(test)]
mod protocols;
#[cfg(test)]
mod reloads;
#[cfg(test)]
mod rule_slots;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod spellings;
#[cfg(test)]
mod subsets;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod unchanged;
