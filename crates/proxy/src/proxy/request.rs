//! Hops 5 to 8: a request goes through filters and routing to an upstream connection.

mod attempt;
mod body;
mod buffer;
mod call;
mod check;
mod connect;
mod filters;
mod head;
mod hedge;
mod mirror;
mod on_demand;
mod preconnect;
mod retry;
mod route;
mod spare;
mod yielding;
