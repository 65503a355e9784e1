package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/clipperhouse/displaywidth"

	"github.com/isobar-xds/isobar/internal/admin"
)

// topAnswer is what the server said, or why it said nothing.
type topAnswer struct {
	overview admin.Overview
	err      error
	at       time.Time
}

// topDue says that the server is to be asked again.
type topDue struct{}

// topView is the live view. Its messages are answers, keys, and the size of the
// terminal.
type topView struct {
	ask      func() tea.Msg               // gives a topAnswer
	askOne   func(service string) tea.Msg // gives a topDetail
	interval time.Duration
	rows     int // services at most; 0 = what fits
	sort     topSort

	width, height int
	overview      *admin.Overview // the last; nil before the first
	at            time.Time       // when it came
	err           error           // why there is no newer one
	failed        error           // why there never was one
	top           int             // the first line of the page that is shown
	chosen        string          // the service that keys refer to; "" = the first

	page    topPage
	service string     // of pageService
	detail  *topDetail // nil before the first
}

// The size of a terminal before it tells its own, and bounds of its parts.
const (
	defaultWidth, defaultHeight = 80, 24
	mostAlarms                  = 5
)

// Init implements [tea.Model].
func (m *topView) Init() tea.Cmd { return m.ask }

// Update implements [tea.Model].
func (m *topView) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topDue:
		return m, tea.Batch(m.ask, m.askService())
	case topDetail:
		if m.page == pageService && msg.service == m.service {
			m.detail = &msg
		}
		return m, nil
	case topAnswer:
		return m.answered(msg)
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	m.follow()
	return m, nil
}

func (m *topView) answered(a topAnswer) (tea.Model, tea.Cmd) {
	if m.err = a.err; a.err == nil {
		m.overview, m.at = &a.overview, a.at
		m.sort.order(m.overview.Services)
	} else if m.overview == nil {
		m.failed = a.err
		return m, tea.Quit
	}
	m.follow()
	return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return topDue{} })
}

func (m *topView) key(k string) (tea.Model, tea.Cmd) {
	if m.page != pageServices {
		return m.pageKey(k)
	}
	screen := max(1, m.room())
	switch k {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "?":
		m.page, m.top = pageHelp, 0
	case "enter":
		return m.openService()
	case "up", "k":
		m.choose(-1)
	case "down", "j":
		m.choose(1)
	case "pgup":
		m.choose(-screen)
	case "pgdown", "space":
		m.choose(screen)
	case "home", "g":
		m.choose(-len(m.services()))
	case "end", "G":
		m.choose(len(m.services()))
	default:
		if by, ok := map[string]topSort{"u": byUtilization, "d": byDemand, "s": byShift, "x": byDrop, "n": byName}[k]; ok {
			m.sort, m.top, m.chosen = by, 0, ""
			m.sort.order(m.services())
		}
	}
	return m, nil
}

func (m *topView) services() []admin.ServiceOverview {
	if m.overview == nil {
		return nil
	}
	return m.overview.Services
}

// cursor is the place of the chosen service; the first where it is gone.
func (m *topView) cursor() int {
	return max(0, slices.IndexFunc(m.services(), func(o admin.ServiceOverview) bool { return o.Name == m.chosen }))
}

// choose moves to another service, as far as there are any.
func (m *topView) choose(by int) {
	services := m.services()
	if len(services) == 0 {
		return
	}
	m.chosen = services[max(0, min(m.cursor()+by, len(services)-1))].Name
	m.follow()
}

// follow scrolls the list so that the chosen service can be seen.
func (m *topView) follow() {
	if m.page != pageServices {
		return
	}
	room := m.room()
	m.top = max(0, min(m.top, len(m.services())-room))
	if m.chosen != "" {
		at := m.cursor()
		m.top = min(max(m.top, at-room+1), at)
	}
}

// head are the lines above the table.
func (m *topView) head() []string {
	s := &m.overview.Status
	alarms := topAlarms(s, max(1, min(mostAlarms, m.height/4)))
	if m.err != nil {
		alarms = append([]string{m.noAnswer()}, alarms...)
	}
	return append(topHead(m.overview, m.at), alarms...)
}

// noAnswer says why nothing new is shown.
func (m *topView) noAnswer() string {
	return "! no answer since " + m.at.Format(time.TimeOnly) + ": " + printable(m.err.Error())
}

// room is how many services can be shown, at least one.
func (m *topView) room() int {
	if m.overview == nil {
		return 1
	}
	room := max(1, m.height-len(m.head())-3) // an empty line, the heads of the columns, the keys
	if m.rows > 0 {
		room = min(room, m.rows)
	}
	return room
}

// View implements [tea.Model].
func (m *topView) View() tea.View {
	text := "isobar top  asking the server ..."
	switch {
	case m.overview == nil:
	case m.page != pageServices:
		text = m.pageText()
	default:
		text = m.text()
	}
	v := tea.NewView(text)
	v.AltScreen = true
	return v
}

// Styles that every terminal knows.
const (
	styleAlarm  = "\x1b[1;31m"
	styleColumn = "\x1b[7m"
	styleChosen = "\x1b[1;4m"
	styleFaint  = "\x1b[2m"
	styleNone   = "\x1b[0m"
)

func (m *topView) text() string {
	var b strings.Builder
	line := func(style, text string) {
		if text = cut(text, m.width); style != "" {
			text = style + text + styleNone
		}
		b.WriteString(text + "\n")
	}
	for _, text := range m.head() {
		style := ""
		if strings.HasPrefix(text, "!") {
			style = styleAlarm
		}
		line(style, text)
	}
	line("", "")
	services := m.services()
	shown := services[m.top:min(len(services), m.top+m.room())]
	columns, _ := fitColumns(topColumns(shown), m.width)
	var table strings.Builder
	writeColumns(&table, columns)
	for i, text := range strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n") {
		style := ""
		switch {
		case i == 0:
			style, text = styleColumn, text+strings.Repeat(" ", max(0, m.width-displaywidth.String(text)))
		case m.top+i-1 == m.cursor():
			style = styleChosen
		}
		line(style, text)
	}
	for range m.room() - len(shown) {
		b.WriteByte('\n')
	}
	where := "no services"
	if len(services) > 0 {
		where = fmt.Sprintf("%d to %d of %d by %s", m.top+1, m.top+len(shown), len(services), m.sort)
	}
	b.WriteString(styleFaint + cut(where+"   Enter: one service   sort: u d s x n   ? help   q quits", m.width) + styleNone)
	return b.String()
}

// cut shortens a line to a width.
func cut(text string, width int) string {
	if width <= 0 {
		return text
	}
	return displaywidth.TruncateString(text, width, "…")
}

// watchLive shows the view until the user quits or ctx ends.
func watchLive(ctx context.Context, flags *topFlags, remote *admin.Remote, w io.Writer) error {
	view := &topView{
		interval: flags.interval, rows: flags.rows, sort: flags.sort, width: defaultWidth, height: defaultHeight,
		ask: func() tea.Msg {
			o, err := remote.Overview(ctx)
			return topAnswer{overview: o, err: err, at: time.Now()}
		},
		askOne: func(service string) tea.Msg {
			view, err := remote.Plan(ctx, service)
			return topDetail{service: service, view: view, err: err}
		},
	}
	last, err := tea.NewProgram(view, tea.WithContext(ctx), tea.WithOutput(w), tea.WithoutSignalHandler()).Run()
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
			return nil
		}
		return fmt.Errorf("live view: %w", err)
	}
	if m, ok := last.(*topView); ok {
		return m.failed
	}
	return nil
}
