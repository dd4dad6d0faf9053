//! The listening sockets of the process: who has which address, and what becomes of a socket whose listener changes.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use config::file_mode::FileMode;
use config::snapshot::{Address, ListenSocket, Listener as ListenerConfig, ListenerId};
use control::{BindFailure, SocketFileId, Workers, set_socket_mode};
use io::is_path_free;
use proxy::Snapshot;
use proxy::filter::Filter;
use worker::{InheritedSocket, Listener};

use super::addresses::{address_text, hint};
use super::{DataPath, KeepsHandles};

/// A listener that this process has.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: Arc<str>,
    options: ListenSocket,
    pub(super) places: Vec<Place>,
}

/// An address of a listener that this process has.
#[derive(Debug)]
pub(super) struct Place {
    /// With the port that it got, if it asked for any.
    address: Address,
    /// Handles on its sockets, for the process that takes this one's place; none if none may.
    pub(super) handles: Vec<OwnedFd>,
    /// Whether there was no descriptor for a handle on each of them. Without one the queue of that socket would be lost.
    is_incomplete: bool,
    /// Their file, if this process made it, or took it over as its own: not if a socket unit of systemd did.
    own_file: Option<SocketFileId>,
}

impl Place {
    fn of<'s>(
        address: &Address,
        sockets: impl Iterator<Item = &'s Listener> + Clone,
        keeps_handles: KeepsHandles,
    ) -> Self {
        let handles: std::io::Result<Vec<_>> = match keeps_handles {
            KeepsHandles { for_taker: false, for_service_manager: false } => Ok(Vec::new()),
            _ => sockets.clone().map(Listener::try_clone_fd).collect(),
        };
        let is_incomplete = handles.is_err();
        let owns_file = sockets.into_iter().any(Listener::owns_file);
        let own_file = match address {
            Address::Unix(path) if owns_file => SocketFileId::at(path),
            Address::Unix(_) | Address::Tcp(_) => None,
        };
        let handles = handles.unwrap_or_default();
        Self { address: address.clone(), handles, is_incomplete, own_file }
    }

    /// Gives its file these permissions, if that is this process's own.
    fn set_mode(&self, mode: FileMode) {
        let (Address::Unix(path), Some(file)) = (&self.address, self.own_file) else { return };
        if let Err(error) = set_socket_mode(path, file, mode) {
            tracing::warn!("{}: cannot set mode {mode}: {error}", path.display());
        }
    }

    /// Whether its file was this process's own, and another may take its place.
    fn is_lost(&self) -> bool {
        let Address::Unix(path) = &self.address else { return false };
        self.own_file.is_some() && !self.has_own_file() && is_path_free(path)
    }

    /// Whether the file is this process's own and still where it was.
    fn has_own_file(&self) -> bool {
        let Address::Unix(path) = &self.address else { return false };
        self.own_file.is_some() && SocketFileId::at(path) == self.own_file
    }
}

/// The sockets of one address of a listener.
#[derive(Debug)]
pub(crate) struct AddressSockets {
    pub(super) id: ListenerId,
    /// With the port that it got, if it asked for any.
    pub(super) address: Address,
    pub(super) from: SocketSource,
}

/// Where the sockets of an address come from.
#[derive(Debug)]
pub(super) enum SocketSource {
    /// They are new to the workers: those of each one.
    New(Vec<Vec<Listener>>),
    /// Workers have them from this listener, which goes.
    Inherited(ListenerId),
}

/// Handles on listening sockets.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// By the listener's name.
    pub(crate) sockets: BTreeMap<Arc<str>, Vec<OwnedFd>>,
    /// Those with a file of this process's own, each by its listener's name and its place among that one's sockets.
    pub(crate) own_files: BTreeSet<(Arc<str>, u32)>,
}

impl IntoIterator for Handles {
    type Item = (Arc<str>, Vec<OwnedFd>);
    type IntoIter = btree_map::IntoIter<Arc<str>, Vec<OwnedFd>>;

    fn into_iter(self) -> Self::IntoIter {
        self.sockets.into_iter()
    }
}

/// Sockets of listeners, a list for each worker.
pub(crate) type Sockets = Vec<AddressSockets>;

impl Held {
    pub(super) fn handles(&self) -> impl Iterator<Item = &OwnedFd> {
        self.places.iter().flat_map(|place| &place.handles)
    }

    /// Adds other handles on all its sockets.
    pub(super) fn add_handles(&self, to: &mut Handles) -> std::io::Result<()> {
        if self.places.iter().any(|place| place.is_incomplete) {
            return Err(std::io::Error::other(format!(
                "no descriptor was left for another handle on the socket of listener {}: raise the limit on open files, then \
                 remove the listener and add it again, or restart",
                self.name
            )));
        }
        let sockets: Vec<_> = self.handles().map(OwnedFd::try_clone).collect::<Result<_, _>>()?;
        for place in self.places.iter().filter(|it| it.own_file.is_some() && !it.has_own_file()) {
            tracing::warn!(
                listener = &*self.name,
                "{} is not the socket's file any more: clients reach this listener once it is bound anew, by `strait upgrade`, SIGHUP or \
                 a restart, after what stands there was removed",
                address_text(&place.address)
            );
        }
        let has_file =
            |it: &Place| it.handles.iter().map(move |_| it.has_own_file()).collect::<Vec<_>>();
        let has_file = self.places.iter().flat_map(has_file);
        let own_files = (0..).zip(has_file).filter(|(_, has_file)| *has_file);
        to.own_files.extend(own_files.map(|(place, _)| (Arc::clone(&self.name), place)));
        to.sockets.insert(Arc::clone(&self.name), sockets);
        Ok(())
    }
}

impl Held {
    /// Gives those files of its unix sockets that are this process's own these permissions.
    pub(super) fn set_modes(&self, mode: FileMode) {
        self.places.iter().for_each(|place| place.set_mode(mode));
    }

    /// Binds the addresses anew of which no client reaches the socket, and returns the new sockets of all workers.
    pub(super) fn bind_lost(
        &mut self,
        options: &ListenSocket,
        workers: u32,
        keeps_handles: KeepsHandles,
    ) -> Vec<(Address, Vec<Listener>)> {
        let mut bound = Vec::new();
        for place in self.places.iter_mut().filter(|place| place.is_lost()) {
            let at = address_text(&place.address);
            match worker::bind_beside(&place.address, options, workers) {
                Ok(sockets) => {
                    tracing::warn!(
                        listener = &*self.name,
                        "{at} was removed by another program, and is bound anew"
                    );
                    *place = Place::of(&place.address, sockets.iter(), keeps_handles);
                    bound.push((place.address.clone(), sockets));
                }
                Err(error) => tracing::error!(
                    listener = &*self.name,
                    "{at} was removed by another program, and cannot be bound anew: {error}"
                ),
            }
        }
        bound
    }
}

impl AddressSockets {
    /// For the workers, if they have the sockets.
    pub(super) fn inherited(&self) -> Option<InheritedSocket> {
        match self.from {
            SocketSource::New(_) => None,
            SocketSource::Inherited(from) => {
                Some(InheritedSocket { id: self.id, from, address: self.address.clone() })
            }
        }
    }
}

/// Which listener of this process has the address of a new listener.
enum InTheWay<'a> {
    Nothing,
    /// Only listeners that make room for it.
    Going,
    /// One that stays, by its name and the address.
    Staying(&'a str, &'a Address),
}

/// The sockets of each listener for one worker.
pub(super) fn take_one_each(sockets: &mut Sockets) -> Vec<(ListenerId, Listener)> {
    let of_worker = |of_address: &mut AddressSockets| {
        let id = of_address.id;
        let sockets = match &mut of_address.from {
            SocketSource::New(sockets) => sockets.pop(),
            SocketSource::Inherited(_) => None,
        };
        sockets.unwrap_or_default().into_iter().map(move |socket| (id, socket))
    };
    sockets.iter_mut().flat_map(of_worker).collect()
}

/// What an address in use may mean besides, where another process hands over.
const STANDS_BY: &str = ". If a process that was replaced still serves it: `strait upgrade --back`, or wait until its \
                         `handover.probation` is over";

/// Why a unix listener that changes needs another process.
const TAKEN_OVER: &str = "this process listens there already: changes of the socket options of a unix \
                          listener require `strait upgrade`, a restart, or another path";

/// Sockets and the address of TCP that they got, or why there are none.
fn bound_as(
    result: Result<Vec<Listener>, io::BindError>,
) -> Result<(Vec<Vec<Listener>>, Option<SocketAddr>), String> {
    taken_as(result.map(|sockets| sockets.into_iter().map(|socket| vec![socket]).collect()))
}

/// As [`bound_as`], where a worker may have several.
fn taken_as(
    result: Result<Vec<Vec<Listener>>, io::BindError>,
) -> Result<(Vec<Vec<Listener>>, Option<SocketAddr>), String> {
    let sockets = result.map_err(|error| {
        let hint = match &error {
            io::BindError::InUse => "stop that process, or take another address",
            io::BindError::NotTransparent => {
                "`original_destination: tproxy` needs it; give the process that, or remove the option"
            }
            io::BindError::NotASocket => "take another path, or remove what is there",
            io::BindError::System { source, .. } => hint(source),
        };
        format!("{error}; {hint}")
    })?;
    let first = sockets.iter().flatten().next();
    let address = first.and_then(|socket| socket.local_address().ok().flatten());
    Ok((sockets, address))
}

pub(super) fn failure(
    listener: &ListenerConfig<Box<dyn Filter>>,
    address: &Address,
    reason: String,
) -> BindFailure {
    let address = address_text(address);
    BindFailure::Listener { listener: Arc::clone(&listener.name), address, reason }
}

/// Why a new listener cannot have an address beside those that were bound before it for the same snapshot. The system
/// would let it: sockets that take over from others share their address.
pub(super) fn in_the_way_of_new(
    bound: &[AddressSockets],
    address: &Address,
    snapshot: &Snapshot,
) -> Option<String> {
    let other = bound.iter().find(|other| other.address.overlaps(address))?;
    let name = snapshot.listener(other.id).map_or("", |(_, listener)| &listener.name);
    let at = address_text(&other.address);
    Some(format!("listener {name}, which is new with it, has {at}; choose another port"))
}

impl DataPath {
    pub(super) fn hold(&mut self, snapshot: &Snapshot, sockets: &Sockets) {
        for AddressSockets { id, address, from } in sockets {
            let Some((_, listener)) = snapshot.listener(*id) else { continue };
            let place = match from {
                SocketSource::New(sockets) => {
                    Some(Place::of(address, sockets.iter().flatten(), self.keeps_handles))
                }
                SocketSource::Inherited(from) => self.take_place(*from, address),
            };
            let place = place.unwrap_or_else(|| Place {
                address: address.clone(),
                handles: Vec::new(),
                is_incomplete: false,
                own_file: None,
            });
            let held = self.held.entry(*id).or_insert_with(|| Held {
                name: Arc::clone(&listener.name),
                options: listener.socket,
                places: Vec::new(),
            });
            held.places.push(place);
        }
    }

    /// Takes from a listener that goes what another one goes on with.
    fn take_place(&mut self, from: ListenerId, address: &Address) -> Option<Place> {
        let held = self.held.get_mut(&from)?;
        let place = held.places.iter().position(|place| place.address == *address)?;
        Some(held.places.swap_remove(place))
    }

    /// The sockets of one address of a listener, one or more for each worker, and where they listen.
    pub(super) fn bind_address(
        &mut self,
        listener: &ListenerConfig<Box<dyn Filter>>,
        address: &Address,
        going: &[ListenerId],
    ) -> Result<(SocketSource, Address), String> {
        let options = &listener.socket;
        if let Some(from) = self.inherited(address, options, going) {
            return Ok((SocketSource::Inherited(from), address.clone()));
        }
        if let Some(sockets) = self.bind_anew(listener, address, going) {
            let sockets = sockets.into_iter().map(|socket| vec![socket]).collect();
            return Ok((SocketSource::New(sockets), address.clone()));
        }
        let (sockets, bound) = match self.in_the_way(address, going) {
            InTheWay::Nothing if let Some(taken) = self.activation.taken(listener, address) => {
                taken_as(worker::take_over(taken, options, self.count()))
            }
            InTheWay::Nothing | InTheWay::Going
                if let Some(inherited) = self.activation.find(address) =>
            {
                bound_as(worker::inherit(inherited, options, self.count()))
            }
            // The process before this one has it, or stands in the way with it.
            InTheWay::Nothing if self.activation.overlaps(address) => {
                bound_as(worker::bind_beside(address, options, self.count()))
            }
            InTheWay::Nothing => {
                let bound = worker::bind(address, options, self.count());
                let is_in_use = matches!(bound, Err(io::BindError::InUse));
                let may_stand_by = is_in_use && self.activation.has_taken();
                bound_as(bound).map_err(|reason| match may_stand_by {
                    true => reason + STANDS_BY,
                    false => reason,
                })
            }
            InTheWay::Going if address.is_unix() => Err(TAKEN_OVER.to_owned()),
            InTheWay::Going => bound_as(worker::bind_beside(address, options, self.count())),
            InTheWay::Staying(name, at) => {
                let at = address_text(at);
                Err(format!("listener {name} of this process has {at}; choose another port"))
            }
        }?;
        let address = bound.map_or_else(|| address.clone(), Address::Tcp);
        Ok((SocketSource::New(sockets), address))
    }

    /// Binds the address of a unix socket of the former process that no client reaches, since its file was removed: the former process
    /// keeps that socket, and serves who is in its queue. None if there is no such socket, or it cannot be bound anew.
    fn bind_anew(
        &mut self,
        listener: &ListenerConfig<Box<dyn Filter>>,
        address: &Address,
        going: &[ListenerId],
    ) -> Option<Vec<Listener>> {
        let is_free = matches!(self.in_the_way(address, going), InTheWay::Nothing);
        if !is_free || !self.activation.is_lost(listener, address) {
            return None;
        }
        let (name, at) = (&*listener.name, address_text(address));
        match worker::bind_beside(address, &listener.socket, self.count()) {
            Ok(sockets) => {
                tracing::warn!(
                    listener = name,
                    "{at} was removed by another program, and is bound anew"
                );
                self.activation.replace(address);
                Some(sockets)
            }
            Err(error) => {
                tracing::error!(
                    listener = name,
                    "{at} was removed by another program, and cannot be bound anew: {error}; no client reaches this listener there"
                );
                None
            }
        }
    }

    /// A listener that goes, and listens on this address with the same options: its sockets stay open.
    fn inherited(
        &self,
        address: &Address,
        options: &ListenSocket,
        going: &[ListenerId],
    ) -> Option<ListenerId> {
        let is_there = |id: &&ListenerId| {
            let held = self.held.get(id).filter(|held| held.options == *options);
            held.is_some_and(|held| held.places.iter().any(|place| place.address == *address))
        };
        going.iter().find(is_there).copied()
    }

    /// Which listener of this process stands in the way of one on `address`, when those in `going`
    /// go.
    fn in_the_way(&self, address: &Address, going: &[ListenerId]) -> InTheWay<'_> {
        let held = self.held.iter();
        let held =
            held.flat_map(|(id, held)| held.places.iter().map(move |at| (id, held, &at.address)));
        let mut overlapping = held.filter(|(_, _, at)| at.overlaps(address)).peekable();
        if overlapping.peek().is_none() {
            return InTheWay::Nothing;
        }
        let staying = overlapping.find(|(id, ..)| !going.contains(id));
        staying.map_or(InTheWay::Going, |(_, held, at)| InTheWay::Staying(&held.name, at))
    }
}
