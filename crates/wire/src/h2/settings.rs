//! SETTINGS (RFC 9113, section 6.5, and RFC 8441, section 3).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::error::ConnectionError;
use super::frame::{MAX_31, PAYLOAD_LEN_MAX, PAYLOAD_LEN_MIN};
use super::hpack::TABLE_BYTES_DEFAULT;
use super::{Http2Role, Limits};

/// The settings of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) header_table_bytes_max: u32,
    pub(super) streams_max: u32,
    pub(super) window: u32,
    /// Saved bytes are not trusted: with none at all, a body would be cut into frames without end.
    #[serde(deserialize_with = "frame_bytes_max")]
    pub(super) frame_bytes_max: u32,
    pub(super) head_bytes_max: u32,
    pub(super) allows_extended_connect: bool,
}

/// The initial window of a stream and of a connection before any SETTINGS.
pub(super) const WINDOW_DEFAULT: u32 = 65_535;

/// Bytes of one setting.
pub(super) const SETTING_LEN: usize = 6;

/// The most settings that are sent to a peer.
pub(super) const SENT_MAX: usize = 7;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// The settings that hold until a side sends others.
impl Default for Settings {
    fn default() -> Self {
        Self {
            header_table_bytes_max: TABLE_BYTES_DEFAULT,
            streams_max: u32::MAX,
            window: WINDOW_DEFAULT,
            frame_bytes_max: PAYLOAD_LEN_MIN,
            head_bytes_max: u32::MAX,
            allows_extended_connect: false,
        }
    }
}

/// A bound that a peer may have set (RFC 9113, section 6.5.2).
fn frame_bytes_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = u32::deserialize(deserializer)?;
    if (PAYLOAD_LEN_MIN..=PAYLOAD_LEN_MAX).contains(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom("a maximum frame size out of range"))
    }
}

impl Settings {
    /// The settings that are sent to a peer.
    pub(super) fn ours(role: Http2Role, limits: &Limits) -> Self {
        Self {
            header_table_bytes_max: limits.header_table_bytes_max,
            streams_max: limits.streams_max,
            window: limits.stream_window_bytes_max.min(MAX_31),
            frame_bytes_max: limits.frame_bytes_max.clamp(PAYLOAD_LEN_MIN, PAYLOAD_LEN_MAX),
            head_bytes_max: limits.head.head_bytes_max,
            allows_extended_connect: role == Http2Role::Server,
        }
    }

    /// The settings that differ from their defaults, encoded, in up to [`SENT_MAX`] pieces.
    pub(super) fn encoded(&self, role: Http2Role) -> impl Iterator<Item = [u8; SETTING_LEN]> {
        let default = Self::default();
        let (for_server, for_client) = match role {
            Http2Role::Server => (true, false),
            Http2Role::Client => (false, true),
        };
        let of = |id: u16, value: u32, is_sent: bool| is_sent.then_some((id, value));
        let has_other_table = self.header_table_bytes_max != default.header_table_bytes_max;
        [
            of(HEADER_TABLE_SIZE, self.header_table_bytes_max, has_other_table),
            of(ENABLE_PUSH, 0, for_client),
            of(MAX_CONCURRENT_STREAMS, self.streams_max, for_server),
            of(INITIAL_WINDOW_SIZE, self.window, self.window != default.window),
            of(
                MAX_FRAME_SIZE,
                self.frame_bytes_max,
                self.frame_bytes_max != default.frame_bytes_max,
            ),
            of(MAX_HEADER_LIST_SIZE, self.head_bytes_max, true),
            of(ENABLE_CONNECT_PROTOCOL, 1, self.allows_extended_connect),
        ]
        .into_iter()
        .flatten()
        .map(|(id, value)| {
            let ([i0, i1], [v0, v1, v2, v3]) = (id.to_be_bytes(), value.to_be_bytes());
            [i0, i1, v0, v1, v2, v3]
        })
    }

    /// Applies one setting of a peer of `role`. Unknown settings are ignored.
    pub(super) fn on_setting(
        &mut self,
        setting: [u8; SETTING_LEN],
        role: Http2Role,
    ) -> Result<(), ConnectionError> {
        let [i0, i1, v0, v1, v2, v3] = setting;
        let value = u32::from_be_bytes([v0, v1, v2, v3]);
        match u16::from_be_bytes([i0, i1]) {
            HEADER_TABLE_SIZE => self.header_table_bytes_max = value,
            ENABLE_PUSH => match (role, value) {
                (_, 0) | (Http2Role::Client, 1) => {}
                // A server cannot allow what only it would do.
                _ => return Err(ConnectionError::SettingInvalid),
            },
            MAX_CONCURRENT_STREAMS => self.streams_max = value,
            INITIAL_WINDOW_SIZE if value > MAX_31 => {
                return Err(ConnectionError::SettingWindowTooLarge);
            }
            INITIAL_WINDOW_SIZE => self.window = value,
            MAX_FRAME_SIZE if !(PAYLOAD_LEN_MIN..=PAYLOAD_LEN_MAX).contains(&value) => {
                return Err(ConnectionError::SettingInvalid);
            }
            MAX_FRAME_SIZE => self.frame_bytes_max = value,
            MAX_HEADER_LIST_SIZE => self.head_bytes_max = value,
            ENABLE_CONNECT_PROTOCOL => {
                // RFC 8441, section 3: it is not taken back.
                if value > 1 || (value == 0 && self.allows_extended_connect) {
                    return Err(ConnectionError::SettingInvalid);
                }
                self.allows_extended_connect = value == 1;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(id: u16, value: u32, role: Http2Role) -> Result<Settings, ConnectionError> {
        let mut setting = [0; SETTING_LEN];
        setting[..2].copy_from_slice(&id.to_be_bytes());
        setting[2..].copy_from_slice(&value.to_be_bytes());
        let mut settings = Settings::default();
        settings.on_setting(setting, role).map(|()| settings)
    }

    #[test]
    fn each_setting_has_its_range() {
        use ConnectionError::{SettingInvalid, SettingWindowTooLarge};
        for (id, value, role, error) in [
            (ENABLE_PUSH, 0, Http2Role::Client, None),
            (ENABLE_PUSH, 1, Http2Role::Client, None),
            (ENABLE_PUSH, 2, Http2Role::Client, Some(SettingInvalid)),
            (ENABLE_PUSH, 0, Http2Role::Server, None),
            (ENABLE_PUSH, 1, Http2Role::Server, Some(SettingInvalid)),
            (INITIAL_WINDOW_SIZE, 0x7fff_ffff, Http2Role::Client, None),
            (INITIAL_WINDOW_SIZE, 0x8000_0000, Http2Role::Client, Some(SettingWindowTooLarge)),
            (MAX_FRAME_SIZE, 16_383, Http2Role::Client, Some(SettingInvalid)),
            (MAX_FRAME_SIZE, 16_384, Http2Role::Client, None),
            (MAX_FRAME_SIZE, 0xff_ffff, Http2Role::Client, None),
            (MAX_FRAME_SIZE, 0x100_0000, Http2Role::Client, Some(SettingInvalid)),
            (ENABLE_CONNECT_PROTOCOL, 1, Http2Role::Server, None),
            (ENABLE_CONNECT_PROTOCOL, 2, Http2Role::Server, Some(SettingInvalid)),
            (0x7f, u32::MAX, Http2Role::Client, None),
        ] {
            assert_eq!(set(id, value, role).err(), error, "{id} = {value}");
        }
        assert!(
            set(ENABLE_CONNECT_PROTOCOL, 1, Http2Role::Server).unwrap().allows_extended_connect
        );
    }

    #[test]
    fn saved_settings_whose_frames_have_no_room_are_damaged() {
        for (frame_bytes_max, is_read) in
            [(0, false), (16_383, false), (16_384, true), (0xff_ffff, true), (0x100_0000, false)]
        {
            let settings = Settings { frame_bytes_max, ..Settings::default() };
            let saved = postcard::to_stdvec(&settings).unwrap();
            let read = postcard::from_bytes::<Settings>(&saved);
            assert_eq!(read.is_ok(), is_read, "{frame_bytes_max}");
        }
    }

    #[test]
    fn extended_connect_is_not_taken_back() {
        let mut settings = set(ENABLE_CONNECT_PROTOCOL, 1, Http2Role::Server).unwrap();
        let again = settings.on_setting([0, 8, 0, 0, 0, 0], Http2Role::Server);
        assert_eq!(again, Err(ConnectionError::SettingInvalid));
    }

    #[test]
    fn settings_that_are_sent_are_understood() {
        let limits = Limits {
            header_table_bytes_max: 100,
            frame_bytes_max: 20_000,
            stream_window_bytes_max: 1,
            ..Limits::default()
        };
        for role in [Http2Role::Server, Http2Role::Client] {
            let ours = Settings::ours(role, &limits);
            let mut theirs = Settings::default();
            for setting in ours.encoded(role) {
                theirs.on_setting(setting, role).unwrap();
            }
            let streams_max = if role == Http2Role::Server { ours.streams_max } else { u32::MAX };
            assert_eq!(theirs, Settings { streams_max, ..ours });
            assert!(ours.encoded(role).count() <= SENT_MAX);
        }
    }
}
