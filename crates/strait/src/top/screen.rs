//! Draws what is shown. Only rows on the screen become widgets.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table as TableWidget};

use super::sample::Memory;
use super::state::{Top, View};

/// Lines that are no rows: the process, what is wrong, the views, titles, keys.
const LINES_AROUND: u16 = 5;

/// Between two columns.
const SPACING: u16 = 2;

/// How many rows fit into `area`.
pub(super) fn rows(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(LINES_AROUND))
}

/// Draws everything.
pub(super) fn draw(top: &Top, frame: &mut Frame<'_>) {
    let one = Constraint::Length(1);
    let [process, trouble, views, list, keys] =
        Layout::vertical([one, one, one, Constraint::Min(1), one]).areas(frame.area());
    frame.render_widget(process_line(top), process);
    frame.render_widget(trouble_line(top), trouble);
    frame.render_widget(views_line(top), views);
    draw_table(top, frame, list);
    frame.render_widget(keys_line(top), keys);
}

fn process_line(top: &Top) -> Line<'_> {
    let mut lines = top.state.lines();
    let state = lines.next().unwrap_or("asking");
    let color = match (&top.error, state) {
        (Some(_), _) => Color::Red,
        (None, "ready") => Color::Green,
        (None, _) => Color::Yellow,
    };
    let state = if top.error.is_some() { "no answer" } else { state };
    let configuration = lines.next().unwrap_or_default();
    Line::from(vec![
        "strait ".bold(),
        Span::raw(top.admin()),
        Span::raw("  "),
        Span::styled(state, color),
        Span::raw("  "),
        memory_span(&top.memory),
        Span::raw(configuration),
    ])
}

/// The memory that the process has, and may have. By the levels at which it takes measures, the colour.
pub(super) fn memory_span(memory: &Memory) -> Span<'static> {
    const MIB: u64 = 1 << 20;
    let Memory { resident, max } = *memory;
    let share = (resident.saturating_mul(100)).checked_div(max).unwrap_or_default();
    let style = match share {
        0..80 => Style::new(),
        80..90 => Style::new().fg(Color::Yellow),
        _ => Style::new().fg(Color::Red),
    };
    let text = match (resident, max) {
        (0, _) => String::new(),
        (_, 0) => format!("memory {} MiB  ", resident / MIB),
        _ => format!("memory {} of {} MiB  ", resident / MIB, max / MIB),
    };
    Span::styled(text, style)
}

/// What is wrong: the connection, or else the first thing that the process says.
fn trouble_line(top: &Top) -> Line<'_> {
    if let Some(error) = &top.error {
        return Line::styled(format!("{error}; asking again"), Color::Red);
    }
    let mut troubles = top.state.lines().skip(2);
    let Some(first) = troubles.next() else { return Line::default() };
    let more = match troubles.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Line::styled(format!("{first}{more}"), Color::Yellow)
}

fn views_line(top: &Top) -> Line<'_> {
    let mut spans = Vec::new();
    for (place, (view, name)) in (1..).zip(View::ALL) {
        let style = if view == top.view {
            Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(format!("{place} {name}"), style));
        spans.push(Span::raw("  "));
    }
    if let Some(name) = &top.detail {
        spans.push(Span::raw(format!("cluster {name}  ")));
    } else if top.has_names() {
        spans.push(Span::raw(format!("by {}  ", top.sort.word())));
        if !top.filter.is_empty() {
            spans.push(Span::styled(format!("/{}  ", top.filter), Color::Cyan));
        }
    }
    let all = top.rows_in_all();
    if all > 0 {
        spans.push(Span::raw(format!("{} of {all}", top.selected + 1)));
    }
    Line::from(spans)
}

fn draw_table(top: &Top, frame: &mut Frame<'_>, area: Rect) {
    let table = top.screen_table();
    let widths: Vec<_> = table.widths();
    let last = widths.len().saturating_sub(1);
    let shown = fitting(&widths, area.width).len();
    let rows = table.rows.iter().enumerate().map(|(place, row)| {
        let cells =
            row.iter().zip(&widths).take(shown).enumerate().map(|(column, (cell, &width))| {
                let is_number = column > 0 && column < last.max(2) && is_figure(cell);
                let text = if is_number { format!("{cell:>width$}") } else { cell.clone() };
                Cell::from(text).style(word_style(cell))
            });
        let style = if place + top.offset == top.selected {
            Style::new().add_modifier(Modifier::REVERSED)
        } else if top.error.is_some() {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        };
        Row::new(cells).style(style)
    });
    let titles = table.titles.iter().take(shown).map(|title| Cell::from(*title));
    let header = Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
    let constraints = fitting(&widths, area.width).into_iter().map(Constraint::Length);
    let widget = TableWidget::new(rows, constraints).header(header).column_spacing(SPACING);
    frame.render_widget(widget, area);
}

/// The colour of a word that says how an endpoint is.
fn word_style(cell: &str) -> Style {
    match cell {
        "unhealthy" | "ejected" | "timeout" => Style::new().fg(Color::Red),
        "drained" | "draining" | "degraded" => Style::new().fg(Color::Yellow),
        "healthy" => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

/// The widths of the columns that fit, from the left; the last one of these has what is left.
fn fitting(widths: &[usize], width: u16) -> Vec<u16> {
    let mut room = width;
    let mut fitting = Vec::new();
    for &wanted in widths {
        let wanted = u16::try_from(wanted).unwrap_or(u16::MAX);
        if room == 0 {
            break;
        }
        fitting.push(wanted.min(room));
        room = room.saturating_sub(wanted).saturating_sub(SPACING);
    }
    fitting
}

fn is_figure(cell: &str) -> bool {
    cell == "-" || cell.starts_with(|first: char| first.is_ascii_digit()) && !cell.contains(':')
}

fn keys_line(top: &Top) -> Line<'_> {
    if top.is_typing {
        return Line::from(vec!["filter: ".bold(), Span::raw(&top.filter), Span::raw("_")]);
    }
    let keys = if top.detail.is_some() {
        "esc back  up/down scroll  q quit"
    } else if top.view == View::Clusters {
        "/ filter  s sort  enter endpoints  tab view  q quit"
    } else if top.has_names() {
        "/ filter  s sort  tab view  q quit"
    } else {
        "up/down scroll  tab view  q quit"
    };
    Line::from(keys.add_modifier(Modifier::DIM))
}
