//! What is on the screen, and what each key makes of it. It knows no terminal.

use std::time::Instant;

use mcp_sessiond_proto::KeeperName;

/// How many lines of a log are remembered.
const LINES_MAX: usize = 1000;

/// What was seen at one look.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) rows: Vec<Row>,
    /// What has to be said beside the rows.
    pub(super) notes: Vec<String>,
    pub(super) trouble: Option<String>,
    pub(super) has_daemon: bool,
}

/// A row of the list.
pub(super) struct Row {
    /// Its keeper, and what people call it; none where no keeper holds it, and then nothing can be
    /// done with it here.
    pub(super) keeper: Option<KeeperName>,
    pub(super) called: Option<String>,
    pub(super) cells: Vec<String>,
}

/// What the user presses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    /// Esc.
    Back,
    /// Ctrl-C.
    Leave,
    /// Ctrl-Z.
    Suspend,
    Letter(char),
}

/// What is to be done with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Restart,
    Stop,
}

/// What a key asks of the world.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Leave,
    Suspend,
    /// To read a log.
    Log(KeeperName),
    /// To read it no more.
    Close,
    Do(Action, KeeperName),
}

/// What is shown.
#[derive(Debug)]
pub(super) enum Page {
    List,
    /// The list, and a question under it.
    Question {
        action: Action,
        keeper: KeeperName,
        called: String,
    },
    Log(LogPage),
    Keys,
}

#[derive(Debug)]
pub(super) struct LogPage {
    pub(super) called: String,
    pub(super) lines: Vec<String>,
    /// How many lines of the screen are below the last one that is shown.
    pub(super) up: usize,
}

pub(super) struct Model {
    pub(super) is_wide: bool,
    pub(super) has_colours: bool,
    /// None: it was not looked yet.
    pub(super) seen: Option<Snapshot>,
    pub(super) seen_at: Instant,
    pub(super) page: Page,
    /// The keeper of the server that is selected.
    pub(super) selected: Option<KeeperName>,
    /// Which of the kept servers that is.
    at: usize,
    /// The first row on the screen.
    pub(super) first: usize,
    /// How many columns are left of the screen.
    pub(super) left: usize,
    /// How many lines the page has, which the view finds out.
    pub(super) height: usize,
    /// What the last action has come to, or is coming to.
    pub(super) outcome: Option<Result<String, String>>,
    is_busy: bool,
}

impl Action {
    /// As a question begins.
    pub(super) fn as_question(self) -> &'static str {
        match self {
            Self::Restart => "Restart",
            Self::Stop => "Stop",
        }
    }

    fn progress_word(self) -> &'static str {
        match self {
            Self::Restart => "restarting",
            Self::Stop => "stopping",
        }
    }
}

impl Model {
    pub(super) fn new(is_wide: bool, has_colours: bool) -> Self {
        Self {
            is_wide,
            has_colours,
            seen: None,
            seen_at: Instant::now(),
            page: Page::List,
            selected: None,
            at: 0,
            first: 0,
            left: 0,
            height: 0,
            outcome: None,
            is_busy: false,
        }
    }

    /// The kept servers, in their order.
    fn kept(&self) -> Vec<KeeperName> {
        let rows = self.seen.iter().flat_map(|seen| &seen.rows);
        rows.filter_map(|row| row.keeper).collect()
    }

    /// Takes what was seen. The selection stays with its server; where that is gone, with the place
    /// in the list.
    pub(super) fn see(&mut self, seen: Snapshot) {
        self.seen = Some(seen);
        self.seen_at = Instant::now();
        let kept = self.kept();
        self.at = kept
            .iter()
            .position(|keeper| Some(*keeper) == self.selected)
            .unwrap_or_else(|| self.at.min(kept.len().saturating_sub(1)));
        self.selected = kept.get(self.at).copied();
        if let Page::Question { keeper, called, .. } = &self.page
            && !kept.contains(keeper)
        {
            self.outcome = Some(Err(format!("{called} has ended meanwhile")));
            self.page = Page::List;
        }
    }

    /// Takes what an action has come to.
    pub(super) fn done(&mut self, outcome: Result<String, String>) {
        self.is_busy = false;
        self.outcome = Some(outcome);
    }

    /// Takes lines of the log that is shown.
    pub(super) fn read(&mut self, lines: Vec<String>) {
        if let Page::Log(page) = &mut self.page {
            // Who reads further up stays there.
            page.up += if page.up > 0 { lines.len() } else { 0 };
            page.lines.extend(lines);
            let over = page.lines.len().saturating_sub(LINES_MAX);
            page.lines.drain(..over);
        }
    }

    pub(super) fn press(&mut self, key: Key) -> Effect {
        match key {
            Key::Leave => return Effect::Leave,
            Key::Suspend => return Effect::Suspend,
            _ => {}
        }
        match &mut self.page {
            Page::List => self.in_list(key),
            Page::Question {
                action,
                keeper,
                called,
            } => {
                let (action, keeper) = (*action, *keeper);
                match key {
                    Key::Letter('y' | 'Y') => {
                        self.outcome = Some(Ok(format!("{} {called} …", action.progress_word())));
                        self.page = Page::List;
                        self.is_busy = true;
                        Effect::Do(action, keeper)
                    }
                    Key::Letter('n' | 'N' | 'q') | Key::Back => {
                        self.page = Page::List;
                        Effect::Nothing
                    }
                    _ => Effect::Nothing,
                }
            }
            Page::Log(page) => {
                let step = self.height.max(1);
                match key {
                    Key::Up | Key::Letter('k') => page.up += 1,
                    Key::Down | Key::Letter('j') => page.up = page.up.saturating_sub(1),
                    Key::PageUp => page.up += step,
                    Key::PageDown => page.up = page.up.saturating_sub(step),
                    // The view knows how far that is.
                    Key::Home => page.up = usize::MAX / 2,
                    Key::End => page.up = 0,
                    Key::Back | Key::Enter | Key::Letter('q' | 'l') => {
                        self.page = Page::List;
                        return Effect::Close;
                    }
                    _ => {}
                }
                Effect::Nothing
            }
            Page::Keys => {
                self.page = Page::List;
                Effect::Nothing
            }
        }
    }

    fn in_list(&mut self, key: Key) -> Effect {
        if !self.is_busy {
            self.outcome = None;
        }
        let step = self.height.max(1);
        match key {
            Key::Up => self.select(self.at.saturating_sub(1)),
            Key::Down => self.select(self.at + 1),
            Key::PageUp => self.select(self.at.saturating_sub(step)),
            Key::PageDown => self.select(self.at.saturating_add(step)),
            Key::Home => self.select(0),
            Key::End => self.select(usize::MAX),
            Key::Left => self.left = self.left.saturating_sub(8),
            Key::Right => self.left += 8,
            Key::Back | Key::Letter('q') => return Effect::Leave,
            Key::Letter('?') => self.page = Page::Keys,
            Key::Enter | Key::Letter('l') => {
                if let Some((keeper, called)) = self.chosen() {
                    self.page = Page::Log(LogPage {
                        called,
                        lines: Vec::new(),
                        up: 0,
                    });
                    return Effect::Log(keeper);
                }
            }
            Key::Letter('r') => self.ask(Action::Restart),
            Key::Letter('s') => self.ask(Action::Stop),
            _ => {}
        }
        Effect::Nothing
    }

    fn select(&mut self, at: usize) {
        let kept = self.kept();
        self.at = at.min(kept.len().saturating_sub(1));
        self.selected = kept.get(self.at).copied();
    }

    /// The selected server, and what people call it.
    fn chosen(&mut self) -> Option<(KeeperName, String)> {
        let mut rows = self.seen.iter().flat_map(|seen| &seen.rows);
        let row = rows.find(|row| row.keeper.is_some() && row.keeper == self.selected);
        let chosen = row.and_then(|row| Some((row.keeper?, row.called.clone()?)));
        if chosen.is_none() {
            self.outcome = Some(Err("there is no server that is kept".to_owned()));
        }
        chosen
    }

    fn ask(&mut self, action: Action) {
        // What was ordered before has to end first: its sentence would be lost.
        if self.is_busy {
            return;
        }
        if let Some((keeper, called)) = self.chosen() {
            self.page = Page::Question {
                action,
                keeper,
                called,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(keepers: &[u32]) -> Snapshot {
        let row = |keeper: &u32| Row {
            keeper: (*keeper != 0).then_some(KeeperName(*keeper)),
            called: (*keeper != 0).then(|| format!("server {keeper}")),
            cells: Vec::new(),
        };
        Snapshot {
            rows: keepers.iter().map(row).collect(),
            ..Snapshot::default()
        }
    }

    fn model(keepers: &[u32]) -> Model {
        let mut model = Model::new(false, true);
        model.see(seen(keepers));
        model
    }

    fn selected(model: &Model) -> Option<u32> {
        model.selected.map(|keeper| keeper.0)
    }

    #[test]
    fn the_selection_stays_with_its_server() {
        let mut model = model(&[1, 2, 3, 0]);
        assert_eq!(selected(&model), Some(1));
        model.press(Key::Down);
        assert_eq!(selected(&model), Some(2));
        model.see(seen(&[5, 1, 2, 3]));
        assert_eq!(selected(&model), Some(2));
        model.see(seen(&[5, 1, 3]));
        assert_eq!(selected(&model), Some(3), "the place in the list");
        model.press(Key::End);
        model.press(Key::Down);
        assert_eq!(
            selected(&model),
            Some(3),
            "what is not kept can't be selected"
        );
        model.see(seen(&[]));
        assert_eq!(selected(&model), None);
        assert_eq!(model.press(Key::Letter('s')), Effect::Nothing);
        assert!(matches!(model.page, Page::List));
    }

    #[test]
    fn what_is_ordered_is_for_the_server_that_was_asked_about() {
        let mut model = model(&[1, 2]);
        model.press(Key::Down);
        assert_eq!(model.press(Key::Letter('s')), Effect::Nothing);
        model.see(seen(&[0, 2, 1]));
        assert_eq!(model.press(Key::Enter), Effect::Nothing, "only y is yes");
        assert_eq!(
            model.press(Key::Letter('y')),
            Effect::Do(Action::Stop, KeeperName(2))
        );
        model.press(Key::Letter('r'));
        assert!(matches!(model.page, Page::List), "one after the other");
        model.done(Ok("server 2 is stopped".to_owned()));
        model.press(Key::Letter('r'));
        model.see(seen(&[7]));
        assert!(matches!(model.page, Page::List), "it is gone");
        assert_eq!(model.press(Key::Letter('y')), Effect::Nothing);
        for no in [Key::Letter('n'), Key::Back] {
            model.press(Key::Letter('r'));
            assert!(matches!(model.page, Page::Question { .. }));
            assert_eq!(model.press(no), Effect::Nothing);
            assert!(matches!(model.page, Page::List));
        }
    }

    #[test]
    fn who_reads_a_log_comes_back_to_the_list() {
        let mut model = model(&[1]);
        assert_eq!(model.press(Key::Letter('l')), Effect::Log(KeeperName(1)));
        model.read((0..2 * LINES_MAX).map(|line| line.to_string()).collect());
        let Page::Log(page) = &model.page else {
            panic!("the log")
        };
        assert_eq!((page.lines.len(), page.up), (LINES_MAX, 0));
        assert_eq!(model.press(Key::Back), Effect::Close);
        assert_eq!(model.press(Key::Back), Effect::Leave);
    }

    #[test]
    fn ctrl_c_leaves_from_everywhere() {
        for opens in ['x', 's', 'l', '?'] {
            let mut model = model(&[1]);
            model.press(Key::Letter(opens));
            assert_eq!(model.press(Key::Leave), Effect::Leave, "{opens}");
        }
    }
}
