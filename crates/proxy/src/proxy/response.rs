//! Hops 9 and 10: a response, or an answer of our own, goes to the client.

mod call;
mod head;
mod reply;
