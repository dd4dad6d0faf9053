//! What connections count for while they are on their way from one worker to another.
//!
//! Were they counted by neither, others would take their room, and a bound would be exceeded once they arrive. So they count
//! from before the one lets go of them until the other has them, and for a moment twice. What is lost on the way is given
//! back.

use config::breakers::{Breakers, Member};

/// Counts until it is dropped.
#[derive(Debug, Default)]
pub struct Held(Vec<HeldPlace>);

/// What counts.
#[derive(Debug)]
enum HeldPlace {
    Connection(Breakers),
    Request(Breakers, Member),
}

impl Held {
    pub(super) fn hold_connection(&mut self, breakers: Option<&Breakers>) {
        if let Some(breakers) = breakers {
            breakers.add_connection();
            self.0.push(HeldPlace::Connection(breakers.clone()));
        }
    }

    pub(super) fn hold_request(&mut self, breakers: Option<&Breakers>, member: Member) {
        if let Some(breakers) = breakers {
            breakers.add_request(member);
            self.0.push(HeldPlace::Request(breakers.clone(), member));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for held in &self.0 {
            match held {
                HeldPlace::Connection(breakers) => breakers.give_connections(1),
                HeldPlace::Request(breakers, member) => breakers.give_request(*member),
            }
        }
    }
}
