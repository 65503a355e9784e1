package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/clipperhouse/displaywidth"
	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/admin"
)

// leastTopInterval keeps a view from being a load.
const leastTopInterval = 500 * time.Millisecond

var errTopInterval = errors.New("want at least " + leastTopInterval.String())

// topFlags are the flags of isobar top.
type topFlags struct {
	remoteFlags

	interval time.Duration
	count    int // 0 = until interrupted
	rows     int // 0 = all, or what fits
	sort     topSort
	sorted   bool // sort was asked for
	plain    bool
}

func topCommand() *cobra.Command {
	var flags topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch services, the fullest first, and what needs attention",
		Long: `Watch a running server: the plan in force, ticks, clients in sync, what needs
attention, and a line for each service. On a terminal the view stays in place: u,
d, s, x and n sort by utilization, demand, shift, drops and name, arrows and page
keys choose a service, Enter shows its localities and the sources of its load, ?
lists the keys, q quits. Without a terminal, or with --plain or -n, the command
prints a block at each interval. -o json sorts services by name, unless --sort is
given.

USED is the planned utilization of the fullest locality. SHIFT is the fraction of
the demand that does not go to the nearest locality. MOVING is the fraction
whose shares still differ from the target.`,
		Example: "  isobar top\n  isobar top -n 1 --sort demand --rows 10\n  isobar top -n 1 -o json | jq '.services[] | select(.drop > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.sorted = cmd.Flags().Changed("sort")
			switch {
			case flags.interval < leastTopInterval:
				return usagef("--interval %s: %w", flags.interval, errTopInterval)
			case flags.count < 0, flags.rows < 0:
				return usageError{errors.New("--count and --rows can't be negative")}
			}
			remote, err := flags.remote()
			if err != nil {
				return err
			}
			return runTop(cmd.Context(), &flags, remote, cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	flags.waits = nil // it says so on its screen
	flags.sort.register(cmd)
	f := cmd.Flags()
	f.DurationVar(&flags.interval, "interval", 2*time.Second, "how often to ask the server")
	f.IntVarP(&flags.count, "count", "n", 0, "stop after this many blocks; 0 = never")
	f.IntVar(&flags.rows, "rows", 0, "show at most this many services; 0 = all, or as many as fit")
	f.BoolVar(&flags.plain, "plain", false, "print blocks of plain lines even on a terminal, as -n does")
	return cmd
}

// askTop gets what is shown.
type askTop func(context.Context) (admin.Overview, error)

func runTop(ctx context.Context, flags *topFlags, remote *admin.Remote, w io.Writer) error {
	if flags.live(isTerminal(w)) {
		return watchLive(ctx, flags, remote, w)
	}
	return watchPlain(ctx, flags, remote.Overview, w)
}

// live reports whether the view stays in place. The live view leaves nothing
// behind when it ends, so answers that are counted are printed: who asks for one
// wants to read it.
func (f *topFlags) live(terminal bool) bool {
	return terminal && f.output == outputText && !f.plain && f.count == 0
}

// asked returns the services in the order and to the number that were asked for;
// unless one was, in that of their names, which is the same in each answer.
func (f *topFlags) asked(o admin.Overview) admin.Overview {
	if f.sorted {
		f.sort.order(o.Services)
	}
	if f.rows > 0 && len(o.Services) > f.rows {
		o.Services = o.Services[:f.rows]
	}
	return o
}

// watchPlain prints a block at each interval. A server that does not answer the
// first time is an error; later it may come back.
func watchPlain(ctx context.Context, flags *topFlags, ask askTop, w io.Writer) error {
	ticker := time.NewTicker(flags.interval)
	defer ticker.Stop()
	for shown := 0; ; {
		o, err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (shown == 0 || shown+1 == flags.count):
			return err
		case err != nil:
			_, err = fmt.Fprintf(w, "no answer: %s\n\n", printable(err.Error()))
		case flags.output == outputJSON:
			err = json.NewEncoder(w).Encode(flags.asked(o))
		default:
			flags.sort.order(o.Services)
			_, err = io.WriteString(w, topBlock(&o, time.Now(), flags.rows, widthOf(w))+"\n")
		}
		if err != nil {
			return err
		}
		if shown++; shown == flags.count {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

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
	screen := max(1, m.pageSize())
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
	pageSize := m.pageSize()
	m.top = max(0, min(m.top, len(m.services())-pageSize))
	if m.chosen != "" {
		at := m.cursor()
		m.top = min(max(m.top, at-pageSize+1), at)
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

// pageSize is how many services can be shown, at least one.
func (m *topView) pageSize() int {
	if m.overview == nil {
		return 1
	}
	pageSize := max(1, m.height-len(m.head())-3) // an empty line, the heads of the columns, the keys
	if m.rows > 0 {
		pageSize = min(pageSize, m.rows)
	}
	return pageSize
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
	shown := services[m.top:min(len(services), m.top+m.pageSize())]
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
	for range m.pageSize() - len(shown) {
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
